"""A run folder with what its experiment file tells: data, model and algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedtempo.config import EXPERIMENT, settings_of, stored_file, without_places
from fedtempo.errors import FedTempoError
from fedtempo.support.room import with_room
from fedtempo.training.prepare import prepare
from fedtempo.training.view import Run

ROOM = 1 << 30
"""Bytes that the data and the model of a run may take for the pictures of a page."""


def read_run(folder: str | Path, label: str | None = None, allow_code: Sequence[str] = ()) -> Run:
    """The run of a folder, with pictures where its experiment file and its data are there."""
    return with_experiment(Run.of(folder, label), Path(folder), allow_code).drawn()


def with_experiment(run: Run, folder: Path, allow_code: Sequence[str] = ()) -> Run:
    """The run with what its experiment file tells: settings, who has which labels, which rates were used.

    A file that names code of its own tells it only where the user allows that code.
    """
    if run.file is None:
        return run
    try:
        with with_room(ROOM):  # a page is drawn beside other work
            return run.known_as(prepare(**settings_of(without_places(stored_file(folder / EXPERIMENT, allow_code)))))
    except FedTempoError:  # the data may not be on this machine, or the code not be allowed; the page does without
        return run
