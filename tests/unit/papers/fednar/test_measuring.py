"""What is measured of a FedNAR run, on one run on digits and on numbers made by hand."""

from __future__ import annotations

import math

import pytest
import torch

import fedtempo as ft
from fedtempo.papers.fednar.measuring import (
    ACCURACY,
    FINAL,
    TO_TARGET,
    VALIDATION,
    accuracy,
    final,
    growth,
    plug_in_gains,
    rounds_to,
)
from fedtempo.papers.framework.definitions import Data, Model


def trained(validation: float) -> ft.Result:
    parts = {"validation": validation, "test": 0.2}
    return ft.run(
        model=Model("softmax_regression", {"inputs": 64, "outputs": 10}).maker(None),
        data=Data("digits", ft.data.dirichlet(5, 1.0, equal=True), 0, parts, rows=300).load(None),
        algorithm=ft.algorithms.fedavg(0.3, 3),
        rounds=6,
        cohort=3,
        batch_size=16,
        seed=1,
        evaluation=ft.Evaluation(every=2, steps=0),
    )


@pytest.fixture(scope="module")
def validated() -> ft.Result:
    return trained(0.2)


def test_accuracy_is_that_of_the_round_which_validation_selects(validated: ft.Result) -> None:
    measured = accuracy(validated, last=1)
    assert validated.selected is not None
    test, validation = validated.selected.test, validated.selected.validation
    assert test is not None
    assert validation is not None
    assert measured.values[ACCURACY] == pytest.approx(100 * test.existing_before.summary("accuracy")["weighted_mean"])
    assert measured.values[VALIDATION] == pytest.approx(
        100 * validation.existing_before.summary("accuracy")["weighted_mean"]
    )
    assert measured.curves[ACCURACY].x == (2, 4, 6)


def test_without_validation_rows_it_is_the_mean_of_the_last_evaluations() -> None:
    result = trained(0.0)
    curve = accuracy(result, last=2).curves[ACCURACY]
    assert accuracy(result, last=2).values[ACCURACY] == pytest.approx((curve.y[1] + curve.y[2]) / 2)
    assert math.isnan(accuracy(result, last=2).values[VALIDATION])
    assert final(result).values[FINAL] == pytest.approx(curve.y[2]), "the last round's model on all test rows"


def test_a_target_that_is_never_reached_counts_as_the_round_after_the_last(validated: ft.Result) -> None:
    assert rounds_to(validated, 1.0).values[TO_TARGET] == 2
    assert rounds_to(validated, 101.0).values[TO_TARGET] == 7


def test_growth_is_the_norm_of_the_last_third_over_the_first(validated: ft.Result) -> None:
    norms = [
        math.sqrt(sum(float(torch.sum(tensor.double() ** 2)) for tensor in report.params.values()))
        for report in validated.history
    ]
    measured = growth(validated)
    assert measured.curves["norm"].y == pytest.approx(tuple(norms))
    assert measured.values["norm_change"] == pytest.approx((norms[4] + norms[5] - norms[0] - norms[1]) / 2)


def test_gains_are_paired_and_averaged_over_settings_and_over_everything() -> None:
    pairs = {"A": {"A+ 1": "A 1", "A+ 2": "A 2"}, "B": {"B+ 1": "B 1", "B+ 2": "B 2"}}
    scores = {
        "A 1": 10.0,
        "A+ 1": 12.0,
        "A 2": 20.0,
        "A+ 2": 21.0,
        "B 1": 30.0,
        "B+ 1": 29.0,
        "B 2": 40.0,
        "B+ 2": 42.0,
    }
    found = plug_in_gains(pairs, {label: {ACCURACY: value} for label, value in scores.items()})
    assert [found[label]["gain"] for label in ("A+ 1", "A+ 2", "B+ 1", "B+ 2")] == [2, 1, -1, 2]
    assert found["A+ 1"]["gain_of_backbone"] == found["A+ 1"]["of_backbone"] - found["A 2"]["of_backbone"] == 1.5
    assert found["A+ 1"]["of_all"] - found["B 1"]["of_all"] == 1.0
    assert "gain" not in found["A 1"]
