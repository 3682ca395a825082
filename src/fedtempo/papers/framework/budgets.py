"""Scores when a given number of steps or bytes has been spent: runs of different lengths and costs side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedtempo.papers.framework.definitions import Measured
from fedtempo.papers.framework.measures import AXES
from fedtempo.training.result import Result


def at_budgets(
    result: Result, group: str, budgets: Mapping[str, float], statistic: str = "mean", metric: str | None = None
) -> Measured:
    """`GROUP/at_steps`, `GROUP/at_bytes`, ...: the group's score once that much has been spent.

    Between two evaluations the score is interpolated; a run that spends less than the budget counts with its last one.
    """
    reports = [report for report in result.history if report.scores is not None]
    scores = [
        report.scores.groups()[group].summary(metric or report.scores.metric)[statistic]  # type: ignore[union-attr]
        for report in reports
    ]
    return Measured(
        {
            f"{group}/at_{axis}": float(np.interp(budget, [AXES[axis](report) for report in reports], scores))
            for axis, budget in budgets.items()
        }
    )
