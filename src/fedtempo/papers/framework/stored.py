"""Finished runs in one small file for the repository: pages are made from it, and interrupted work goes on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtempo.errors import ConfigError
from fedtempo.papers.framework.definitions import Measured, Tuning
from fedtempo.papers.framework.kept import Record, SeededRun, keep, kept, measured_of, measured_record
from fedtempo.support.files import write_atomically

SAME = ("name", "scale", "settings", "tuned", "tuned_by", "tuning_settings", "tuning_seeds")
"""What must be equal in two plans for the runs of one to be runs of the other; claims and seeds may be added.

Candidates of a contestant may be added too: a grid whose best rate was at its end becomes wider.
"""
Identity = tuple[str, float | None, int]


class StoredRuns:
    """The plan, where and when the runs were performed, and what was measured of each.

    Of a candidate that was tried only its validation score and its time are stored.
    """

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path = path
        self.plan = dict(plan)
        self.provenance = ""
        self.runs: dict[Identity, Record] = {}
        before = read_stored_runs(path)
        if before is not None and _same(before["plan"], plan):
            self.plan["judged_seeds"] = max(plan["judged_seeds"], before["plan"]["judged_seeds"], key=len)
            self.provenance = before["provenance"]
            self.runs = {_identity(record): record for record in before["runs"]}

    def fill(self, tasks: Sequence[SeededRun]) -> None:
        """Put stored runs where the tasks look for theirs; not those of code that has changed since."""
        for task in tasks:
            record = self.runs.get(_asked(task))
            if record is not None and kept(task.path) is None and record["key"] == task.key:
                keep(task, measured_of(record))

    def measured(self, label: str, seed: int, tried: float | None = None) -> Measured | None:
        """What a run measured when it was performed, None where it is not stored; the code may have changed since."""
        record = self.runs.get((label, tried, seed))
        return None if record is None else measured_of(record)

    def add(self, tasks: Sequence[SeededRun], tuning: Tuning | None, provenance: str) -> None:
        """Take what the tasks have measured, and write the file where there is something new."""
        new = False
        for task in tasks:
            identity = _asked(task)
            measured = kept(task.path)
            if measured is not None and self.runs.get(identity, {}).get("key") != task.key:
                self.runs[identity] = _record(task, measured, tuning)
                new = True
        if new:
            self.provenance = provenance
            write_atomically(self.path, self._text())

    def _text(self) -> str:
        head = json.dumps({"plan": self.plan, "provenance": self.provenance}, indent=1)
        ordered = sorted(self.runs.values(), key=lambda one: (one["tried"] is None, one["seed"]))
        lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in ordered)
        return f'{head.removesuffix("}").rstrip()},\n "runs": [\n{lines}\n]}}\n'


def read_stored_runs(path: Path) -> Record | None:
    """The file's content; None where there is no file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise ConfigError(f"{path} cannot be read as stored runs. Take it from the repository again.") from None
    found: Record = content
    return found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    others = (name for name in SAME if name != "tuned")
    return all(one.get(name) == other.get(name) for name in others) and _widened(one["tuned"], other["tuned"])


def _widened(tuned: Mapping[str, Any], wider: Mapping[str, Any]) -> bool:
    """Whether the second plan tries what the first one tries, or more."""
    return tuned.keys() == wider.keys() and all(
        {**own, "values": []} == {**wider[name], "values": []} and {*own["values"]} <= {*wider[name]["values"]}
        for name, own in tuned.items()
    )


def _identity(record: Record) -> Identity:
    return record["label"], record["tried"], record["seed"]


def _asked(task: SeededRun) -> Identity:
    return task.run.label, task.tried, task.seed


def _record(task: SeededRun, measured: Measured, tuning: Tuning | None) -> Record:
    if tuning is not None and task.tried is not None:
        column = {name: value for name, value in measured.values.items() if name == tuning.column}
        measured = Measured(column, seconds=measured.seconds)
    return {
        "label": task.run.label,
        "tried": task.tried,
        "seed": task.seed,
        "key": task.key,
        **measured_record(measured),
    }
