"""How long a reproduction would take, from a few timed rounds of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.framework.definitions import Training
from fedtempo.papers.framework.kept import SeededRun
from fedtempo.papers.framework.running import PROCESSES
from fedtempo.training.run import run

ROUNDS = 3
MOST_PROBES = 6


def estimated_seconds(tasks: Sequence[SeededRun], data_dir: Path | None, processes: int = PROCESSES) -> float:
    """Time three rounds of some of the first seed's runs, the last of them with its evaluation, and multiply.

    Local steps that become fewer over the rounds make the real time shorter.
    """
    first = [task.run for task in tasks if task.seed == tasks[0].seed and isinstance(task.run, Training)]
    if not first:
        return 0.0
    probed = first[:: -(-len(first) // MOST_PROBES)]
    each = fmean(_seconds(training, data_dir) for training in probed)
    trainings = sum(isinstance(task.run, Training) for task in tasks)
    return each * trainings / min(processes, trainings)


def _seconds(training: Training, data_dir: Path | None) -> float:
    arguments = training.arguments(data_dir)
    rounds: int = arguments["rounds"]
    protocol: Evaluation | None = arguments.get("evaluation", Evaluation())
    probe = min(rounds, ROUNDS)
    shortened = None if protocol is None else replace(protocol, every=probe)
    history = run(**{**arguments, "rounds": probe, "evaluation": shortened}).history
    plain = min(report.seconds for report in history)
    evaluated = sum(protocol.due(number, rounds) for number in range(rounds)) if protocol else 0
    return rounds * plain + evaluated * max(history[-1].seconds - plain, 0.0)


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(40), duration(600), duration(7200), duration(400000)
    ('40 s', '10 min', '2.0 h', '4.6 days')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"
