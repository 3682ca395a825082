"""What a comparison is opened for: everybody's difference to the reference, in a picture and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedtempo.comparison.comparison import Comparison
from fedtempo.report import Forest, ForestRow, Grid, Section
from fedtempo.study.decisions import Decision, Finding, decide_pairs
from fedtempo.study.plan import GROUPS
from fedtempo.support.json_text import finite
from fedtempo.support.table import with_unit
from fedtempo.training.view import Run

POINT = 0.01
"""Of a share: a smaller difference counts as none."""


def differences_section(comparison: Comparison, runs: Mapping[str, Sequence[Run]]) -> Section | None:
    """The section for runs by contestant; None where there is nobody to compare with the reference."""
    pairs = [
        (line.label, comparison.reference, users)
        for line in comparison.lines
        for users in GROUPS
        if GROUPS[users] in line.differences
    ]
    if not pairs:
        return None
    margin = POINT if _is_share(runs) else 0.0
    found = decide_pairs(runs, pairs, margin)
    lower = " (positive: lower, which is better)" if comparison.lower_is_better else ""
    heads = ["contestant", "users", "answer", "difference", "over seeds, 95 %", "p (Holm)", "why"]
    rows = [
        [one.label, one.users, answer_in_words(one), one.seeds.value, _interval(one), one.corrected, one.reason]
        for one in found
    ]
    if comparison.target is not None:
        heads.insert(3, f"bytes to {comparison.target:g}")
        reached = {line.label: line.reached for line in comparison.lines}
        for row, one in zip(rows, found, strict=True):
            costs = reached[one.label]
            row.insert(3, "not reached" if costs is None or costs.costs is None else with_unit(costs.costs["bytes"]))
    text = (
        f"{comparison.metric} after fine-tuning, minus {comparison.reference}, paired seed by seed. "
        "An answer needs both intervals, over seeds and over seeds and users, and p after Holm's correction."
    )
    return Section("Differences", text, Grid(heads, finite(rows)), forest_of(found, comparison.metric + lower, margin))


def forest_of(decisions: Sequence[Decision], what: str, margin: float) -> Forest:
    """The picture of these answers."""
    several = len({one.other for one in decisions}) > 1
    rows = []
    for one in decisions:
        against = f" against {one.other}" if several else ""
        name = f"{one.label}{against}, {one.users}"
        rows.append(ForestRow(name, one.seeds.value, one.seeds.low, one.seeds.high, answer_in_words(one)))
    return Forest(rows, f"difference in {what}", margin)


def answer_in_words(one: Decision) -> str:
    """The answer with the seeds that would decide, where it is open.

    A difference within the margin is equal to a point.
    """
    if one.finding is Finding.SAME:
        return "equal to a point"
    if one.finding is Finding.UNCLEAR:
        return "not decided" if one.needed is None else f"not decided; about {one.needed} seeds would"
    return str(one.finding)


def _interval(one: Decision) -> str:
    return "-" if math.isnan(one.seeds.low) else f"{one.seeds.low:+.3f} to {one.seeds.high:+.3f}"


def _is_share(runs: Mapping[str, Sequence[Run]]) -> bool:
    """Whether every user's score lies in [0, 1], so that a point is a hundredth."""
    scores = [run.judged for own in runs.values() for run in own]
    values = [users.values[one.metric][users.scored(one.metric)] for one in scores for users in one.groups().values()]
    return scores[0].metric != "loss" and all(bool(((v >= 0) & (v <= 1)).all()) for v in values)
