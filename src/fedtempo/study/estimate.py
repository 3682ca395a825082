"""How long a study will take, from a few timed rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from fedtempo.evaluation.protocol import Evaluation
from fedtempo.study.plan import FairPlan
from fedtempo.study.tunable import Tunable
from fedtempo.training.run import run

ROUNDS = 3
MOST_PROBES = 6
"""Contestants that are timed; of more, some all over the list."""


def seconds_of_study(tunables: Sequence[Tunable], plan: FairPlan, workers: int = 1) -> float:
    """Time three rounds of some contestants, the last with its evaluation, and multiply.

    It is a bound: runs that validation ends take less, and so do local steps that become fewer. Wider trials come on
    top of it.
    """
    probed = tunables[:: -(-len(tunables) // MOST_PROBES)]
    points = {one.label: plan.contestants[one.label]["points"] for one in tunables}
    judged = fmean(seconds_of_run({**one.make(points[one.label][0], plan.seeds[0]), **_length(plan)}) for one in probed)
    trial = judged * plan.tuning_rounds / plan.rounds
    runs = len(tunables) * len(plan.seeds)
    return (plan.trials * trial + runs * judged) / max(1, min(workers, plan.trials + runs))


def _length(plan: FairPlan) -> dict[str, Any]:
    return {"rounds": plan.rounds, "evaluation": Evaluation(every=plan.every), "workers": 1, "progress": False}


def seconds_of_run(settings: Mapping[str, object]) -> float:
    """About how long `fedtempo.run` with these settings takes."""
    given: dict[str, Any] = dict(settings)
    rounds: int = given["rounds"]
    protocol: Evaluation | None = given.get("evaluation", Evaluation())
    probe = min(rounds, ROUNDS)
    shortened = None if protocol is None else replace(protocol, every=probe)
    history = run(**{**given, "rounds": probe, "evaluation": shortened}).history
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
