"""A run as its folder knows it, read without disturbing the process that may still be training it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtempo.config import settings_of, stored_file, without_places
from fedtempo.errors import FedTempoError, OutputError, StoreError
from fedtempo.report.folder import AGAIN, EXPERIMENT, SUMMARY
from fedtempo.report.pictures import picture_of, plan_of
from fedtempo.report.runs import ReportRun, facts_of
from fedtempo.training.durable import DATABASE
from fedtempo.training.experiment import CONTENT, prepare
from fedtempo.training.round_report import RoundReport, from_json

HASHES = ("model", "data", "version", "run", "sha256")


class StoredRun:
    """Follows a run folder: `refresh` reads the rounds that were committed since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / DATABASE).is_file():
            raise OutputError(f"a run folder must hold {DATABASE}. Got {folder}, which does not.")
        self._history: list[RoundReport] = []
        self.identity: dict[str, str] = dict(_rows(folder, "SELECT field, value FROM identity"))

    def refresh(self) -> None:
        """Read what is new. A run that went back a round is read from the start."""
        latest = int(_rows(self.folder, "SELECT COALESCE(MAX(round), -1) FROM reports")[0][0])
        if latest + 1 < len(self._history):
            self._history = []
        query = "SELECT report FROM reports WHERE round >= ? ORDER BY round"
        try:
            self._history += [from_json(row[0]) for row in _rows(self.folder, query, len(self._history))]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{DATABASE} is damaged: a report cannot be read ({type(error).__name__}).") from None

    def run(self, label: str | None = None) -> ReportRun:
        """The run as far as it was read, without pictures of the data and the schedules."""
        summary, experiment = _summary(self.folder), self.folder / EXPERIMENT
        has_file = experiment.is_file()
        notes = {"notes": "; ".join(map(str, summary["notes"]))} if isinstance(summary.get("notes"), list) else {}
        return ReportRun(
            label=label or self.identity.get("algorithm", self.folder.name),
            history=list(self._history),
            seed=int(self.identity["seed"]) if self.identity.get("seed", "").isdecimal() else None,
            total=int(self.identity.get("rounds", len(self._history))),
            facts={**{name: value for name, value in self.identity.items() if not _is_hash(name)}, **notes}
            | _privacy(summary),
            digest=summary.get("digest"),
            command=AGAIN if has_file else summary.get("command"),
            experiment=experiment.read_text(encoding="utf-8") if has_file else None,
            versions=summary.get("versions") or {"fedtempo": self.identity.get("version", "")},
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
    if not (folder / EXPERIMENT).is_file():
        return run
    try:
        experiment = prepare(**settings_of(without_places(stored_file(folder / EXPERIMENT, allow_code))))
    except FedTempoError:  # the data may not be on this machine, or the code not be allowed; the page does without
        return run
    if experiment.federation.private:
        return replace(run, facts={**facts_of(experiment), **_privacy(_summary(folder))})
    picture, plan = picture_of(experiment.federation.problem.data), plan_of(experiment, run.history)
    notes = {name: value for name, value in run.facts.items() if name == "notes"}
    return replace(run, facts={**facts_of(experiment), **notes}, picture=picture, plan=plan)


def _is_hash(field: str) -> bool:
    return field in HASHES or field.endswith(CONTENT)


def _privacy(summary: Mapping[str, Any]) -> dict[str, str]:
    """What a finished private run was accounted for."""
    privacy = summary.get("privacy")
    return {"privacy": str(privacy.get("words"))} if isinstance(privacy, dict) else {}


def _summary(folder: Path) -> Mapping[str, Any]:
    """What was written at the end of the run; nothing before that."""
    path = folder / SUMMARY
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise StoreError(f"{SUMMARY} is damaged: it must be a JSON object.")
    return values


def _rows(folder: Path, query: str, *values: int) -> list[tuple[Any, ...]]:
    """The answer to a query. Nothing is locked for longer than it takes, and nothing is written.

    Without a write-ahead log nobody is writing; then SQLite is told so, or it would leave a log behind.
    """
    path = (folder / DATABASE).absolute()
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=5)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{DATABASE} in {folder} cannot be read: {error}.") from None
