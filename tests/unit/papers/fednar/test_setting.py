"""What FedNAR's experiments share: rounds to a target, and to another one where nobody reaches it."""

from __future__ import annotations

from collections.abc import Sequence

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


@pytest.mark.parametrize(("plain", "answer"), [((10.0, 10.0, 10.0), Answer.FAILS), ((NEVER, NEVER, 10.0), Answer.SAME)])
def test_a_target_that_somebody_reaches_is_kept(plain: tuple[float, ...], answer: Answer) -> None:
    nar = (NEVER, NEVER, NEVER)
    verdict = sooner("nar", "plain")(outcome(nar=nar, plain=plain))
    assert verdict.answer == answer and "with a point to spare" not in verdict.reason


def test_where_nobody_reaches_the_target_it_is_what_the_other_reaches_in_every_seed() -> None:
    """The baseline ends at 25, 26 and 27, so the target is 24; FedNAR has it in round 2, the baseline in round 9."""
    slow = [Curve((1.0, 2.0, 9.0), (10.0, 20.0, end)) for end in (25.0, 26.0, 27.0)]
    fast = Curve((1.0, 2.0, 9.0), (10.0, 24.0, 24.5))

    def runs(curves: Sequence[Curve]) -> tuple[Measured, ...]:
        return tuple(Measured({TO_TARGET: NEVER}, {ACCURACY: curve}) for curve in curves)

    columns = {TO_TARGET: Column("rounds", margin=5.0)}
    found = Outcome("medium", columns, {"nar": runs([fast] * 3), "plain": runs(slow)})
    verdict = sooner("nar", "plain")(found)
    assert verdict.answer == Answer.HOLDS
    assert verdict.numbers.startswith("plain minus nar: 7; to 24.0 %, which plain reaches in every seed")
    never = Outcome("medium", columns, {"nar": runs([Curve((1.0,), (10.0,))] * 3), "plain": runs(slow)})
    assert sooner("nar", "plain")(never).numbers.startswith("plain minus nar: -1; "), "never: the round after the last"
