"""The paper's claims as rules from what was measured to a verdict.

A rule holds where the whole confidence interval is on the right side, does not hold where the whole interval is on the
wrong one, and can't tell otherwise. With one seed nothing can be told but about exact counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from fedtempo.papers.framework.outcomes import Interval, Outcome


class Answer(StrEnum):
    """Whether a claim stands."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "can't tell at this scale"


@dataclass(frozen=True)
class Verdict:
    """An answer and the numbers behind it."""

    answer: Answer
    reason: str


Rule = Callable[[Outcome], Verdict]


@dataclass(frozen=True)
class Claim:
    """What the paper says, and the rule that tests it."""

    text: str
    rule: Rule

    def judge(self, outcome: Outcome) -> Verdict:
        """The verdict. A smoke run is too small to say anything."""
        if outcome.scale == "smoke":
            return Verdict(Answer.UNCLEAR, "a smoke run only shows that everything runs")
        return self.rule(outcome)


def higher(label: str, other: str, column: str, by: float = 0.0) -> Rule:
    """`label` has more of `column` than `other`, by at least `by`; paired over seeds. A negative `by` is a margin."""

    def rule(outcome: Outcome) -> Verdict:
        difference = outcome.difference(label, other, column)
        return _above(difference, by, f"{column}: {label} minus {other} is {_shown(difference)}, must exceed {by:g}")

    return rule


def lower(label: str, other: str, column: str, by: float = 0.0) -> Rule:
    """`label` has less of `column` than `other`, by at least `by`; paired over seeds. A negative `by` is a margin."""
    return higher(other, label, column, by)


def at_most(label: str, column: str, bound: float) -> Rule:
    """`label`'s value is at most `bound`."""

    def rule(outcome: Outcome) -> Verdict:
        value = outcome.interval(label, column)
        negated = Interval(-value.mean, -value.high, -value.low)
        return _above(
            negated, -bound, f"{column}: {label} has {_shown(value)}, must be at most {bound:g}", strict=False
        )

    return rule


def at_least(label: str, column: str, bound: float) -> Rule:
    """`label`'s value is at least `bound`."""

    def rule(outcome: Outcome) -> Verdict:
        value = outcome.interval(label, column)
        return _above(value, bound, f"{column}: {label} has {_shown(value)}, must be at least {bound:g}", strict=False)

    return rule


def above(label: str, column: str, bound: float) -> Rule:
    """`label`'s value is larger than `bound`: a gain of exactly 0 is none."""

    def rule(outcome: Outcome) -> Verdict:
        value = outcome.interval(label, column)
        return _above(value, bound, f"{column}: {label} has {_shown(value)}, must exceed {bound:g}")

    return rule


def near(label: str, column: str, target: float, within: float) -> Rule:
    """`label`'s value is `target`, give or take `within`."""
    return all_of(at_least(label, column, target - within), at_most(label, column, target + within))


def equal(label: str, other: str, column: str, tolerance: float = 0.0) -> Rule:
    """`label` and `other` agree in every seed."""

    def rule(outcome: Outcome) -> Verdict:
        pairs = zip(outcome.values(label, column), outcome.values(other, column), strict=True)
        gap = max(abs(mine - theirs) for mine, theirs in pairs)
        answer = Answer.HOLDS if gap <= tolerance else Answer.FAILS
        return Verdict(answer, f"{column}: {label} and {other} differ by at most {gap:.3g} in any seed")

    return rule


def all_of(*rules: Rule) -> Rule:
    """Every rule holds; one that does not is enough to say no."""
    return _joined(rules, first=Answer.FAILS, last=Answer.HOLDS)


def any_of(*rules: Rule) -> Rule:
    """Some rule holds."""
    return _joined(rules, first=Answer.HOLDS, last=Answer.FAILS)


def at_paper_scale(rule: Rule) -> Rule:
    """A rule about a number that depends on how long the paper trained; below that scale it can't be told."""

    def bound(outcome: Outcome) -> Verdict:
        verdict = rule(outcome)
        return verdict if outcome.scale == "paper" else Verdict(Answer.UNCLEAR, f"fewer rounds; {verdict.reason}")

    return bound


def _joined(rules: tuple[Rule, ...], first: Answer, last: Answer) -> Rule:
    def rule(outcome: Outcome) -> Verdict:
        verdicts = [each(outcome) for each in rules]
        answers = {verdict.answer for verdict in verdicts}
        answer = first if first in answers else last if answers == {last} else Answer.UNCLEAR
        return Verdict(answer, "; ".join(verdict.reason for verdict in verdicts))

    return rule


def _above(interval: Interval, bound: float, reason: str, strict: bool = True) -> Verdict:
    """Where the interval lies; a NaN, such as a target that was never reached, tells nothing."""
    if interval.low > bound or (not strict and interval.low >= bound):
        return Verdict(Answer.HOLDS, reason)
    if interval.high < bound or (strict and interval.high <= bound):
        return Verdict(Answer.FAILS, reason)
    return Verdict(Answer.UNCLEAR, reason)


def _shown(interval: Interval) -> str:
    return f"{interval.mean:.4g} [{interval.low:.4g}, {interval.high:.4g}]"
