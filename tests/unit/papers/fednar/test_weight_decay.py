"""Figure 2's rules on numbers made by hand."""

from __future__ import annotations

import pytest

from fedtempo.papers.fednar.measuring import FINAL
from fedtempo.papers.fednar.setting import BACKBONES, FEDAVG, SCAFFOLD
from fedtempo.papers.fednar.weight_decay import SETTINGS, SWEEP, WEIGHT_DECAYS, weight_decay_drops
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Measured
from fedtempo.papers.framework.pages import verdicts
from fedtempo.papers.framework.reproduction import gathered

ACCURACIES = (40.0, 44.0, 47.0, 45.0, 35.0)


def swept(backbones: tuple[str, ...], lost: dict[str, float]) -> dict[str, dict[str, float]]:
    """Accuracy over weight decay; the largest costs as much less as the setting says."""
    return {
        f"{name} {setting}, WD = {decay:g}": {FINAL: value + (lost[setting] if decay == 0.1 else 0.0)}
        for name in backbones
        for setting in SETTINGS
        for decay, value in zip(WEIGHT_DECAYS, ACCURACIES, strict=True)
    }


def test_what_is_lost_against_the_best_and_won_over_the_smallest() -> None:
    values = swept((FEDAVG, SCAFFOLD), dict.fromkeys(SETTINGS, 0.0))
    values["SCAFFOLD (c) alpha 10, WD = 0.1"] = {FINAL: 45.0}
    found = weight_decay_drops(values)
    assert found["FedAvg (a) alpha 0.3, WD = 0.1"] == {"drop": 12.0, "rise": 7.0, "mean_drop": 12.0}
    assert found["FedAvg (c) alpha 10, WD = 0.1"]["mean_drop"] == pytest.approx((12 + 2) / 2)


def test_a_backbone_that_a_scale_does_not_have_cannot_be_judged() -> None:
    lost = dict(zip(SETTINGS, (0.0, 5.0, 6.0), strict=True))

    def seed(number: int, backbones: tuple[str, ...]) -> dict[str, Measured]:
        return {label: Measured({FINAL: v[FINAL] + number / 100}) for label, v in swept(backbones, lost).items()}

    whole, few = (
        verdicts(SWEEP, gathered(SWEEP, "paper", [seed(number, backbones) for number in range(3)]))
        for backbones in (BACKBONES, (FEDAVG, SCAFFOLD))
    )
    assert {verdict.answer for verdict in whole.values()} == {Answer.HOLDS}
    missing = [verdict for verdict in few.values() if "no run of this scale" in verdict.reason]
    assert [verdict.answer for verdict in missing[:4]] == [Answer.NOT_RUN] * 4
    assert sum(verdict.answer == Answer.HOLDS for verdict in few.values()) == 6
