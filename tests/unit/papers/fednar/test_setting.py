"""What FedNAR's experiments share: rounds to a target are compared where somebody reaches it."""

from __future__ import annotations

import pytest

from fedtempo.papers.fednar.measuring import ACCURACY, TO_TARGET
from fedtempo.papers.fednar.setting import sooner
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Column, Curve, Measured
from fedtempo.papers.framework.outcomes import Outcome

NEVER = 11.0
"""The round after the last of ten."""


def outcome(**rounds: tuple[float, ...]) -> Outcome:
    curve = {ACCURACY: Curve((5.0, 10.0), (20.0, 25.0))}
    measured = {label: tuple(Measured({TO_TARGET: one}, curve) for one in ones) for label, ones in rounds.items()}
    return Outcome("medium", {TO_TARGET: Column("rounds", margin=5.0)}, measured)


@pytest.mark.parametrize(
    ("plain", "answer"),
    [((NEVER, NEVER, NEVER), Answer.UNCLEAR), ((10.0, 10.0, 10.0), Answer.FAILS), ((NEVER, NEVER, 10.0), Answer.SAME)],
)
def test_a_target_that_nobody_reaches_says_nothing(plain: tuple[float, ...], answer: Answer) -> None:
    nar = (NEVER, NEVER, NEVER)
    verdict = sooner("nar", "plain")(outcome(nar=nar, plain=plain))
    assert verdict.answer == answer
    assert ("reaches the target in any seed" in verdict.reason) == (answer == Answer.UNCLEAR)
