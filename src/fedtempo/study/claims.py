"""Claims in words, such as "PFLEGO is more accurate than FedPer", and what the answers of a study say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedtempo.comparison.comparison import Comparison
from fedtempo.study.decisions import Decision, Finding, about
from fedtempo.study.plan import GROUPS, FairPlan, Said

WORDS = {
    Finding.BETTER: "holds",
    Finding.WORSE: "does not hold",
    Finding.SAME: "no difference",
    Finding.UNCLEAR: "can't tell",
    Finding.SHORT: "not converged",
}
NOT_RUN = "not run"


@dataclass(frozen=True)
class Ruling:
    """What the study says of one claim."""

    text: str
    answer: str
    reason: str
    ours: str
    """The numbers of the contestants that the claim names."""
    paper: str
    """The same as the paper reports them."""

    def __str__(self) -> str:
        numbers = [self.ours, f"the paper: {self.paper}" if self.paper else ""]
        return f"{self.answer}: {self.text} ({'; '.join(filter(None, [self.reason, *numbers]))})"


def rulings_of(plan: FairPlan, decisions: Sequence[Decision], comparison: Comparison) -> list[Ruling]:
    """A verdict on every claim that the study makes in words."""
    found = {(one.label, one.other, one.users): one for one in decisions}
    return [_ruling(said, found.get(said["claim"]), comparison) for said in plan.said]


def _ruling(said: Said, decision: Decision | None, comparison: Comparison) -> Ruling:
    label, other, users = said["claim"]
    text = said["text"] or f"{label} is better than {other}: {about(users)}"
    reported = ", ".join(f"{name} {value:g}" for name, value in said["paper"].items())
    if decision is None:
        return Ruling(text, NOT_RUN, f"{label} or {other} was not judged", "", reported)
    ours = ", ".join(f"{name} {_number(comparison, name, users)}" for name in (label, other))
    return Ruling(text, WORDS[decision.finding], decision.reason, ours, reported)


def _number(comparison: Comparison, label: str, users: str) -> str:
    line = next(line for line in comparison.lines if line.label == label)
    if users not in GROUPS:
        return f"{line.costs[users]:.4g}"
    value = line.scores[GROUPS[users]]["mean"].value
    return "-" if math.isnan(value) else f"{value:.4f}"
