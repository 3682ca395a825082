"""Figure 5's claims: every alpha must grow."""

from __future__ import annotations

from fedtempo.papers.fednar.clipping import CLIPPED, CLIPPING
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Measured
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import verdicts

CHANGES = ("clipped_change", "clipped_norm_change", "norm_change")


def test_one_alpha_that_does_not_grow_is_enough_to_say_no() -> None:
    labels = [run.label for run in CLIPPING.runs(CLIPPING.scales["medium"], 0)]
    assert len(labels) == 9
    rows = {label: tuple(Measured(dict.fromkeys(CHANGES, 1.0 + seed / 10)) for seed in range(3)) for label in labels}
    rows[labels[1]] = tuple(Measured({**dict.fromkeys(CHANGES, 1.0), "norm_change": -1.0}) for _ in range(3))
    found = [verdict.answer for verdict in verdicts(CLIPPING, Outcome("medium", CLIPPING.columns, rows)).values()]
    assert found == [Answer.HOLDS] * 6 + [Answer.FAILS] + [Answer.HOLDS] * 2
    assert len(CLIPPED) == 3
