"""How long a reproduction would take, from a few timed rounds of each run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from fedtempo.papers.framework.definitions import Training
from fedtempo.papers.framework.kept import SeededRun
from fedtempo.papers.framework.running import PROCESSES
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
