"""How long a reproduction would take: from the times of finished runs, or from a few timed rounds of each run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from fedtempo.papers.framework.definitions import Measured, Training
from fedtempo.papers.framework.kept import SeededRun, kept
from fedtempo.papers.framework.running import PROCESSES
from fedtempo.papers.framework.stored import StoredRuns
from fedtempo.study.estimate import MOST_PROBES, seconds_of_run


def estimated_seconds(tasks: Sequence[SeededRun], data_dir: Path | None, processes: int = PROCESSES) -> float:
    """Time three rounds of some of the first seed's runs, the last of them with its evaluation, and multiply.

    Local steps that become fewer over the rounds make the real time shorter.
    """
    first = [task.run for task in tasks if task.seed == tasks[0].seed and isinstance(task.run, Training)]
    if not first:
        return 0.0
    probed = first[:: -(-len(first) // MOST_PROBES)]
    each = fmean(seconds_of_run(training.arguments(data_dir)) for training in probed)
    trainings = sum(isinstance(task.run, Training) for task in tasks)
    return each * trainings / min(processes, trainings)


def timed_before(tasks: Sequence[SeededRun], stored: StoredRuns | None = None) -> list[tuple[SeededRun, float]]:
    """Those of the runs that have finished, here or among the stored ones, with their processor seconds.

    A judged run is known by its label and seed: its rate, and so its key, may not be chosen yet.
    """
    here = {folder: _judged_here(folder) for folder in {task.path.parent for task in tasks}}
    found = []
    for task in tasks:
        measured = kept(task.path)
        if measured is None and task.tried is None:
            measured = here[task.path.parent].get((task.run.label, task.seed))
        if measured is None and stored is not None:
            measured = stored.measured(task.run.label, task.seed, task.tried)
        if measured is not None and measured.seconds is not None:
            found.append((task, measured.seconds))
    return found


def _judged_here(folder: Path) -> dict[tuple[str, int], Measured]:
    found = {}
    for path in folder.glob("*.json"):
        measured = kept(path)
        if measured is not None:
            record = json.loads(path.read_text(encoding="utf-8"))
            found[record["label"], record["seed"]] = measured
    return found


def timed_seconds(waiting: Sequence[SeededRun], timed: Sequence[tuple[SeededRun, float]]) -> float | None:
    """The processor seconds of these runs, from those of finished ones; None where nothing is known of some run.

    A run takes as long as the finished runs of its label on average, or of the same contestant's kind: a trial as long
    as trials, a judged run as long as judged runs.
    """
    total = 0.0
    for task in waiting:
        alike = [seconds for one, seconds in timed if (one.tried is None) == (task.tried is None)]
        same = [
            seconds
            for one, seconds in timed
            if one.run.label == task.run.label and (one.tried is None) == (task.tried is None)
        ]
        if not alike:
            return None
        total += fmean(same or alike)
    return total
