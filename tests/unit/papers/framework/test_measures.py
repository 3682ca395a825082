"""What is measured of a run."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from tests.unit.papers.framework.small_runs import digits_runs


def test_measures_of_users_costs_and_targets() -> None:
    measured = digits_runs(None, 0)[0].perform(None)
    assert 0 <= measured.values["new_after/mean"] <= 1
    assert measured.values["steps"] == 6 * 4 * 3
    assert measured.values["steps_used"] == 1
    assert measured.values["rounds_to_target"] == 2
    assert measured.values["steps_to_target"] == 2 * 4 * 3
    assert math.isnan(measured.values["never"])
    assert measured.curves["existing_after"].x == (2, 4, 6)
    assert measured.values["existing_after/best"] == max(measured.curves["existing_after"].y)
    assert measured.values["min_train_loss"] == min(measured.curves["train_loss"].y)
    new = measured.users["new_after"]
    assert fmean(score for _, _, score in new) == pytest.approx(measured.values["new_after/mean"])
    assert all(rows > 0 for _, rows, _ in new)
