"""What it cost to reach a target, and what whole runs cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedtempo.training.round_report import RoundReport
from fedtempo.training.view import Run

COSTS = {"rounds": "rounds", "steps": "steps", "bytes": "bytes", "flops": "FLOPs", "seconds": "seconds"}
CLOCK = {"time": "device s", "energy": "joules"}
"""Seconds and joules of the devices. They are 0, and no table shows them, where runs have no clock."""


@dataclass(frozen=True)
class Reached:
    """How many seeds reached the target, and the mean cost of those where all did; None where some did not."""

    seeds: int
    of: int
    costs: dict[str, float] | None


def whole_costs(runs: Sequence[Run]) -> dict[str, float]:
    """What a run costs from the first to the last round, averaged over seeds."""
    return _mean([_costs(run.history[-1], run.seconds) for run in runs if run.history])


def cost_to_reach(runs: Sequence[Run], target: float) -> Reached:
    """The cost up to the first evaluated round whose score is at least the target (at most, where lower is better).

    The score is the one that guides a run: the mean over existing users after fine-tuning on the validation part, or on
    the part there is. A run is evaluated every few rounds, so the cost is exact to that many.
    """
    found = [cost for run in runs if (cost := _first_reaching(run, target)) is not None]
    return Reached(len(found), len(runs), _mean(found) if len(found) == len(runs) else None)


def _first_reaching(run: Run, target: float) -> dict[str, float] | None:
    seconds = 0.0
    for report in run.history:
        seconds += report.seconds
        if report.scores is None:
            continue
        wanted = -target if report.scores.lower_is_better else target
        if report.scores.quality() >= wanted:
            return _costs(report, seconds)
    return None


def _costs(report: RoundReport, seconds: float) -> dict[str, float]:
    """What a run has cost after a round."""
    costs = report.total_costs
    return {
        "rounds": float(report.number),
        "steps": float(costs.steps),
        "bytes": float(costs.bytes),
        "flops": float(costs.flops),
        "seconds": seconds,
        "time": report.total_time,
        "energy": report.total_energy,
    }


def _mean(costs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(cost[name] for cost in costs) for name in (*COSTS, *CLOCK)}
