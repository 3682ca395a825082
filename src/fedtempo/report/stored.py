"""A run as its folder knows it, read without disturbing the process that may still be training it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtempo.config import EXPERIMENT, settings_of, stored_file, without_places
from fedtempo.errors import FedTempoError, StoreError
from fedtempo.report.folder import AGAIN, SUMMARY
from fedtempo.report.pictures import picture_of, plan_of
from fedtempo.report.runs import ReportRun, facts_of, noted
from fedtempo.support.files import read_inside
from fedtempo.training.experiment import CONTENT
from fedtempo.training.prepare import prepare
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.storage.reader import RunReader

HASHES = ("model", "data", "version")
MOST_DIGITS = 100
"""Of a seed that is shown."""


class StoredRun:
    """Follows a run folder: `refresh` reads the rounds that were committed since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = RunReader(folder)

    def refresh(self) -> None:
        """Read what is new."""
        self._reader.refresh()

    def run(self, label: str | None = None) -> ReportRun:
        """The run as far as it was read, without pictures of the data and the schedules."""
        summary = _summary(self.folder)
        text = _text(self.folder, EXPERIMENT)
        identity, history = self._reader.identity, self._reader.history
        seed = identity.get("seed", "")
        notes = noted(summary.get("notes") or [])
        return ReportRun(
            label=label or identity.get("algorithm", self.folder.name),
            history=history,
            seed=int(seed) if seed.isdecimal() and len(seed) <= MOST_DIGITS else None,
            total=int(identity.get("rounds", len(history))),
            facts={**{name: value for name, value in identity.items() if not _is_hash(name)}, **notes}
            | _privacy(summary),
            digest=summary.get("digest"),
            command=summary.get("command") if text is None else AGAIN,
            experiment=text,
            versions=summary.get("versions") or {"fedtempo": identity.get("version", "")},
            finished=summary.get("finished"),
        )

    def age(self) -> float:
        """Seconds since the last write."""
        files = (self.folder / DATABASE, self.folder / f"{DATABASE}-wal")
        return max(0.0, time.time() - max(file.stat().st_mtime for file in files if file.exists()))


def read_run(folder: str | Path, label: str | None = None, allow_code: Sequence[str] = ()) -> ReportRun:
    """The run of a folder, with pictures where its experiment file and its data are there."""
    stored = StoredRun(Path(folder))
    stored.refresh()
    return with_pictures(stored.run(label), stored.folder, allow_code)


def with_pictures(run: ReportRun, folder: Path, allow_code: Sequence[str] = ()) -> ReportRun:
    """The run with what its experiment file tells: settings, who has which labels, which rates were used.

    A file that names code of its own tells it only where the user allows that code; without, the page has no pictures.
    """
    if run.experiment is None:
        return run
    try:
        experiment = prepare(**settings_of(without_places(stored_file(folder / EXPERIMENT, allow_code))))
    except FedTempoError:  # the data may not be on this machine, or the code not be allowed; the page does without
        return run
    if experiment.federation.private:
        return replace(run, facts={**facts_of(experiment), **_privacy(_summary(folder))})
    picture, plan = picture_of(experiment.federation.problem.data), plan_of(experiment, run.history)
    notes = {name: value for name, value in run.facts.items() if name in ("notes", "selected round", "fine-tuning")}
    return replace(run, facts={**facts_of(experiment), **notes}, picture=picture, plan=plan)


def _is_hash(field: str) -> bool:
    return field in HASHES or field.endswith(CONTENT)


def _privacy(summary: Mapping[str, Any]) -> dict[str, str]:
    """What a finished private run was accounted for."""
    privacy = summary.get("privacy")
    return {"privacy": str(privacy.get("words"))} if isinstance(privacy, dict) else {}


def _text(folder: Path, name: str) -> str | None:
    """A file of the folder as text; None where it has none."""
    if not os.path.lexists(folder / name):
        return None
    try:
        return read_inside(folder, name).decode(errors="replace")
    except OSError as error:
        raise StoreError(f"{name} in {folder} cannot be read: {error.strerror}.") from None


def _summary(folder: Path) -> Mapping[str, Any]:
    """What was written at the end of the run; nothing before that. Somebody else may have written it."""
    text = _text(folder, SUMMARY)
    if text is None:
        return {}
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()  # half a character, which JSON can name, cannot be written
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise StoreError(f"{SUMMARY} is damaged: it must be a JSON object.")
    for name, (rule, holds) in _FORMS.items():
        if values.get(name) is not None and not holds(values[name]):
            raise StoreError(f"{SUMMARY} is damaged: {name} must be {rule}.")
    return values


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("digest", "command", "finished"), ("text", _is_text)),
    "versions": ("an object of texts", lambda value: isinstance(value, dict) and all(map(_is_text, value.values()))),
    "notes": ("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value))),
    "privacy": ("an object", lambda value: isinstance(value, dict)),
}
"""The form of what a page shows of the summary."""
