"""Weights & Biases, offline: files that `wandb sync` uploads when you want. It needs the extra `wandb`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fedtempo.errors import ConfigError, OutputError, StoreError, first_line, is_count
from fedtempo.support.files import read_inside, write_atomically
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.seals import MALFORMED
from fedtempo.training.trackers.numbers import numbers, score_numbers
from fedtempo.training.tracking import RunInfo, Tracker, tracker_library


def wandb(path: str | Path | None = None, project: str = "fedtempo") -> Tracker:
    """An offline run below the folder `path`, by default below the run folder. Nothing is sent."""
    tracker_library("wandb", "wandb")
    return WeightsAndBiases(None if path is None else Path(path), project)


def _noted(note: Path) -> tuple[str, int]:
    """The id and the number of logged rounds in a run folder's note. The id becomes part of a path."""
    try:
        values = json.loads(read_inside(note.parent, note.name, 1000))
        identifier, rounds = values["id"], values["rounds"]
        if re.fullmatch(r"[\w-]{1,128}", identifier) and is_count(rounds, 0):
            return identifier, rounds
    except (OSError, *MALFORMED):
        pass
    raise StoreError(f"{note.name} is damaged: it must hold the id of a W&B run and a number of rounds.")


class WeightsAndBiases:
    """Settings as configuration, every number of a round at that step, the digest in the summary."""

    name = "wandb"

    def __init__(self, path: Path | None, project: str) -> None:
        self._given, self._project = path, project
        self._note: Path | None = None
        self._run: Any = None

    def start(self, run: RunInfo) -> int:
        """Begin an offline run; a resumed one goes on under the id its folder holds."""
        place = self._given or run.folder
        if place is None:
            raise ConfigError("tracker 'wandb' must be given a path where the run has no out folder. Got none.")
        self._note = None if run.folder is None else run.folder / "wandb-run.json"
        identifier, rounds = None, 0
        if run.resumed and self._note is not None and self._note.exists():
            identifier, rounds = _noted(self._note)
        self._run = self._begin(place, run, identifier)
        return rounds

    def round(self, report: RoundReport) -> None:
        """Log the round. It is noted first: a kill in between may lose it here, but never logs it twice."""
        if self._note is not None:
            write_atomically(self._note, json.dumps({"id": self._run.id, "rounds": report.number}))
        self._run.log(numbers(report), step=report.number)

    def end(self, result: Result | None) -> None:
        """Write the summary of a finished run and close the files."""
        if result is not None:
            scores = score_numbers(result.scores) if result.scores else {}
            self._run.summary.update({**scores, "digest": result.digest()})
        self._run.finish(exit_code=0 if result is not None else 1)

    def _begin(self, place: Path, run: RunInfo, identifier: str | None) -> Any:
        theirs = tracker_library("wandb", self.name)
        settings = theirs.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        try:
            place.mkdir(parents=True, exist_ok=True)
            return theirs.init(
                mode="offline",
                project=self._project,
                id=identifier,
                dir=str(place),
                config=dict(run.settings),
                settings=settings,
            )
        except Exception as error:  # theirs has many; what matters is the folder it was given
            raise OutputError(f"wandb path must be a folder that works. Got {place}: {first_line(error)}.") from error
