"""A round's numbers by name, as trackers write them."""

from __future__ import annotations

from dataclasses import asdict

from fedtempo.evaluation.protocol import Scores
from fedtempo.training.round_report import RoundReport


def numbers(report: RoundReport) -> dict[str, float]:
    """All numbers of a round by name, such as `costs/steps` and `test/new_after/accuracy/mean`."""
    values = {
        "loss": report.loss,
        "seconds": report.seconds,
        "clients": len(report.clients),
        "failures": len(report.failures),
        "abandoned": int(report.abandoned),
    }
    if report.total_time or report.total_energy:
        values |= {"time": report.time, "energy": report.energy}
        values |= {"total_time": report.total_time, "total_energy": report.total_energy}
    for kind, costs in (("costs", report.costs), ("total_costs", report.total_costs)):
        values.update({f"{kind}/{name}": value for name, value in asdict(costs).items()})
    values.update({f"measurements/{name}": value for name, value in report.measurements.items()})
    for part in (report.validation, report.test):
        values.update(score_numbers(part) if part is not None else {})
    return {name: float(value) for name, value in values.items()}


def score_numbers(scores: Scores) -> dict[str, float]:
    """The statistics of one evaluation by name."""
    return {
        f"{scores.part}/{group}/{metric}/{statistic}": value
        for group, metrics in scores.summary().items()
        for metric, statistics in metrics.items()
        for statistic, value in statistics.items()
    }
