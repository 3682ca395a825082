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


def what_is_left(
    tasks: Sequence[SeededRun], stored: StoredRuns | None = None
) -> tuple[list[SeededRun], list[tuple[SeededRun, float]]]:
    """The runs that have not finished, here or among the stored ones; and those that have, with processor seconds.

    A judged run is known by its label and seed: its rate, and so its key, may not be chosen yet.
    """
    here = {folder: _judged_here(folder) for folder in {task.path.parent for task in tasks}}
    waiting, timed = [], []
    for task in tasks:
        measured = kept(task.path)
        if measured is None and task.tried is None:
            measured = here[task.path.parent].get((task.run.label, task.seed))
        if measured is None and stored is not None:
            measured = stored.measured(task.run.label, task.seed, task.tried)
        if measured is None:
            waiting.append(task)
        elif measured.seconds is not None:
            timed.append((task, measured.seconds))
    return waiting, timed


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

    A trial takes as long as finished trials of its label on average, or of all labels; so does a judged run.
    """
    total = 0.0
    for task in waiting:
        alike = [(one.run.label, seconds) for one, seconds in timed if (one.tried is None) == (task.tried is None)]
        if not alike:
            return None
        same = [seconds for label, seconds in alike if label == task.run.label]
        total += fmean(same or [seconds for _, seconds in alike])
    return total
