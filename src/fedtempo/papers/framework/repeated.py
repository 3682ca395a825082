"""Runs that were repeated, against the stored ones: where they differ, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtempo.errors import ConfigError
from fedtempo.papers.framework.choosing import plan_record
from fedtempo.papers.framework.kept import SeededRun, kept
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.running import scale_of, trial_runs
from fedtempo.papers.framework.stored import StoredRuns


@dataclass(frozen=True)
class Repetition:
    """One run against its stored one."""

    name: str
    differences: dict[str, float]
    """Repeated minus stored, of every value that is not equal."""


def stored_of(reproduction: Reproduction, scale: str, path: Path) -> StoredRuns:
    """The stored runs of the same plan."""
    found = StoredRuns(path, plan_record(reproduction, scale, 1))
    if not found.runs:
        raise ConfigError(f"{path} has no runs of {reproduction.name} with these settings.")
    return found


def take_trials(reproduction: Reproduction, scale: str, out: Path, only: Sequence[str], stored: StoredRuns) -> None:
    """Put the stored trials where the runs look for them: the same rates are chosen, without trying them again."""
    stored.fill(trial_runs(reproduction, scale_of(reproduction, scale), out, only))


def repetitions(tasks: Sequence[SeededRun], stored: StoredRuns) -> tuple[list[Repetition], int]:
    """Every finished run that is also stored, and how many are not stored with the same settings."""
    found, missing = [], 0
    for task in tasks:
        record, mine = stored.runs.get((task.run.label, None, task.seed)), kept(task.path)
        if record is None or mine is None or record["key"] != task.key:
            missing += 1
            continue
        theirs = record["values"]
        gaps = {name: mine.values.get(name, math.nan) - value for name, value in theirs.items()}
        unequal = {
            name: gap for name, gap in gaps.items() if gap != 0 and not _both_nan(mine.values.get(name), theirs[name])
        }
        found.append(Repetition(task.name, unequal))
    return found, missing


def in_lines(compared: Sequence[Repetition], missing: int) -> list[str]:
    """What differs, for people: how many runs, and the largest difference of each value."""
    equal = sum(not one.differences for one in compared)
    lines = [f"{len(compared)} runs compared with the stored ones: {equal} equal in every digit"]
    if missing:
        lines.append(f"{missing} not compared: not stored with the same settings")
    names = dict.fromkeys(name for one in compared for name in one.differences)
    for name in names:
        gap, where = max(
            ((one.differences[name], one.name) for one in compared if name in one.differences),
            key=lambda pair: math.inf if math.isnan(pair[0]) else abs(pair[0]),
        )
        count = sum(name in one.differences for one in compared)
        lines.append(f"{name} differs in {count}, most by {gap:+.3g} ({where})")
    return lines


def _both_nan(mine: float | None, theirs: float) -> bool:
    return mine is not None and math.isnan(mine) and math.isnan(theirs)
