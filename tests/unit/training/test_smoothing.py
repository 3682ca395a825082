"""The smoothed loss that adaptive schedules look at, by hand."""

from __future__ import annotations

import math

import pytest

from fedtempo.training.smoothing import PATIENCE, Progress


def after(*losses: float) -> Progress:
    progress = Progress()
    for loss in losses:
        progress = progress.after(loss)
    return progress


def test_before_and_after_the_first_round() -> None:
    assert Progress().ratio == 1.0
    assert after(5.0) == Progress(5.0, 5.0, 5.0)


def test_a_tenth_of_every_new_loss_counts() -> None:
    """0.9 * 10 + 0.1 * 0 = 9, then 0.9 * 9 + 0.1 * 4 = 8.5."""
    progress = after(10.0, 0.0, 4.0)
    assert progress.smoothed == pytest.approx(8.5)
    assert progress.ratio == pytest.approx(0.85)


def test_a_loss_that_stands_still_is_a_plateau_every_ten_rounds() -> None:
    assert after(*[1.0] * PATIENCE).plateaus == 0
    assert after(*[1.0] * (PATIENCE + 1)).plateaus == 1
    assert after(*[1.0] * (2 * PATIENCE + 1)).plateaus == 2


def test_less_than_a_hundredth_is_no_improvement() -> None:
    """A loss of 0.95 leaves 0.995 after smoothing; a loss of 0.8 leaves 0.98, which is a new best."""
    assert after(1.0, 0.95).rounds_since_best == 1
    better = after(1.0, 0.8)
    assert (better.rounds_since_best, better.best) == (0, pytest.approx(0.98))


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_round_without_a_loss_changes_nothing(loss: float) -> None:
    assert after(3.0, loss) == after(3.0)
    assert after(loss) == Progress() or math.isnan(after(loss).first)


def test_a_negative_loss_that_stands_still_is_a_plateau_too() -> None:
    assert after(*[-1.0] * (PATIENCE + 1)).plateaus == 1
    assert after(-1.0, -1.05).rounds_since_best == 1
    assert after(-1.0, -1.2).best == pytest.approx(-1.02)
