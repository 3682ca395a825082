"""What the PFLEGO paper reports: the mean over all clients and the last rounds."""

from __future__ import annotations

from statistics import fmean

import pytest

import fedtempo as ft
from fedtempo.papers import REPRODUCTIONS
from fedtempo.papers.pflego.setting import KEPT, TUNED, mean_of_last


def test_each_of_the_last_rounds_is_evaluated() -> None:
    protocol = ft.Evaluation(every=20, last=10)
    due = [number + 1 for number in range(50) if protocol.due(number, 50)]
    assert due == [20, 40, *range(41, 51)]


def test_scores_are_averaged_over_the_last_rounds() -> None:
    data = ft.data.load("digits").split(ft.data.dirichlet(6, 0.5), seed=0, min_samples=4)
    result = ft.run(
        model=ft.models.mlp(64, [8], 10),
        data=data,
        algorithm=ft.algorithms.fedavg(lr=0.3, steps=2),
        rounds=6,
        cohort=3,
        evaluation=ft.Evaluation(every=6, last=3),
        progress=False,
    )
    scores = [report.scores for report in result.history if report.scores is not None]
    assert len(scores) == 3
    for name, group in ((TUNED, "existing_after"), (KEPT, "existing_before")):
        means = [one.groups()[group].summary(one.metric)["mean"] for one in scores]
        assert len(set(means)) > 1
        assert mean_of_last(result, 3).values[name] == pytest.approx(fmean(means))


def test_the_papers_scale_reports_the_last_ten_rounds() -> None:
    for name in ("pflego-mnist-high", "pflego-emnist", "pflego-cifar10", "pflego-omniglot", "pflego-fedrecon"):
        chosen = REPRODUCTIONS[name]
        assert chosen.scales["paper"]["last"] == 10
        assert "last" not in chosen.scales["medium"].settings
