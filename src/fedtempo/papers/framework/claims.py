"""Claims as rules from what was measured to a verdict.

A rule holds where the whole confidence interval is on the right side, and does not hold where the whole interval is on
the wrong one. Where neither is so, an interval that lies within the column's margin says that there is no difference,
which decides "beats" as well; any other can't tell. Nothing is decided where a model that is behind is still improving,
or where its rate has no bound: it may catch up. With one seed nothing can be told but about exact counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fedtempo.comparison.decide import no_difference, seeds_needed
from fedtempo.comparison.significance import paired_t
from fedtempo.papers.framework.outcomes import Interval, NotRunError, Outcome


class Answer(StrEnum):
    """Whether a claim stands."""

    HOLDS = "holds"
    FAILS = "does not hold"
    SAME = "no difference"
    UNCLEAR = "not decided"
    UNBOUNDED = "rate not bounded"
    IMPROVING = "not converged"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Verdict:
    """An answer and the numbers behind it."""

    answer: Answer
    reason: str
    deciding: str = ""
    """The comparison that decides, in few words; the reason where that is short."""
    value: str = ""
    """The difference or the value that decides, with its interval, without the labels."""
    p: float = math.nan
    """Of the deciding comparison, two-sided; NaN for an exact count."""

    @property
    def numbers(self) -> str:
        """What a page with little room says."""
        return self.deciding or self.reason


Rule = Callable[[Outcome], Verdict]


@dataclass(frozen=True)
class Claim:
    """A sentence, and the rule that tests it."""

    text: str
    rule: Rule
    section: str = ""
    """Where the paper says so; without one the sentence is a question of ours."""

    @property
    def said(self) -> str:
        """The sentence with who says it."""
        return f"{self.text} ({self.section})" if self.section else f"We ask: {self.text}"

    def judge(self, outcome: Outcome) -> Verdict:
        """The verdict. A smoke run is too small to say anything."""
        if outcome.scale == "smoke":
            return Verdict(Answer.UNCLEAR, "a smoke run only shows that everything runs")
        try:
            return self.rule(outcome)
        except NotRunError as error:
            return Verdict(Answer.NOT_RUN, str(error))


def higher(label: str, other: str, column: str, by: float = 0.0) -> Rule:
    """`label` has more of `column` than `other`, by at least `by`; paired over seeds. A negative `by` is a margin."""

    def rule(outcome: Outcome) -> Verdict:
        gaps = outcome.differences(label, other, column)
        difference = outcome.difference(label, other, column)
        more = f", must exceed {_brief(outcome, column, Interval(by, by, by), '+')}" if by else ""
        value = _brief(outcome, column, difference, "+")
        short = f"{label} minus {other}: {value}{more}"
        reason = f"{column}: {label} minus {other} is {_shown(difference)}, must exceed {by:g}"
        clear = difference.low > by or difference.high < by
        # Better training of the one that is ahead only adds to its lead: only the one behind must be at its best.
        behind = (other if difference.low > by else label,) if clear else (label, other)
        doubtful = behind if outcome.tuning_raises(column) else (label, other)
        unbounded = outcome.without_bound(column, *doubtful)
        if unbounded:
            told = f"no bound for the rate of {' and '.join(unbounded)}"
            return Verdict(Answer.UNBOUNDED, f"{reason}; {told}", f"{short}; {told}", value)
        improving = _still_improving(outcome, column, *(behind if outcome.training_raises(column) else (label, other)))
        if improving:
            return Verdict(Answer.IMPROVING, f"{reason}; {improving}", f"{short}; {improving}", value)
        p = paired_t([gap - by for gap in gaps])
        verdict = replace(_above(difference, by, reason, short=short), value=value, p=p)
        return verdict if clear else _unclear(outcome, label, other, column, by, verdict)

    return rule


def _unclear(outcome: Outcome, label: str, other: str, column: str, by: float, verdict: Verdict) -> Verdict:
    """A difference on neither side of `by`: too small to matter, or how many seeds would tell."""
    difference = outcome.difference(label, other, column)
    margin = outcome.columns[column].margin if column in outcome.columns else None
    # A claim that allows a difference (`by` below 0) is about that bound; being within the margin does not decide it.
    if by == 0 and margin is not None and no_difference(difference.low, difference.high, margin):
        return replace(verdict, answer=Answer.SAME, reason=f"{verdict.reason}; within {margin:g} either way")
    if verdict.answer != Answer.UNCLEAR:  # an exact tie of a quantity of which every difference counts
        return verdict
    shifted = [one - by for one in outcome.differences(label, other, column)]
    return _with_seeds(outcome, verdict, shifted, margin if by == 0 and margin is not None else 0.0)


def _still_improving(outcome: Outcome, column: str, *labels: str) -> str:
    """Which of the labels had not converged, as a reason; empty where all had."""
    gains = {label: outcome.still_improving(label, column) for label in labels}
    return ", ".join(
        f"{label} still improves by {gain:.2g} in its last quarter" for label, gain in gains.items() if gain is not None
    )


def lower(label: str, other: str, column: str, by: float = 0.0) -> Rule:
    """`label` has less of `column` than `other`, by at least `by`; paired over seeds. A negative `by` is a margin."""
    return higher(other, label, column, by)


def at_most(label: str, column: str, bound: float) -> Rule:
    """`label`'s value is at most `bound`."""
    return _bounded(label, column, bound, "at most", negated=True)


def at_least(label: str, column: str, bound: float) -> Rule:
    """`label`'s value is at least `bound`."""
    return _bounded(label, column, bound, "at least")


def above(label: str, column: str, bound: float) -> Rule:
    """`label`'s value is larger than `bound`: a gain of exactly 0 is none."""
    return _bounded(label, column, bound, "more than", strict=True)


def _bounded(label: str, column: str, bound: float, relation: str, strict: bool = False, negated: bool = False) -> Rule:
    """`label`'s value is on one side of the bound."""

    def rule(outcome: Outcome) -> Verdict:
        value = outcome.interval(label, column)
        least = _brief(outcome, column, Interval(bound, bound, bound))
        brief = _brief(outcome, column, value)
        short = f"{label}: {brief}, {relation} {least}"
        reason = f"{column}: {label} has {_shown(value)}, must be {relation} {bound:g}"
        unbounded = outcome.without_bound(column, label)
        if unbounded:
            told = f"no bound for the rate of {' and '.join(unbounded)}"
            return Verdict(Answer.UNBOUNDED, f"{reason}; {told}", f"{short}; {told}", brief)
        side = Interval(-value.mean, -value.high, -value.low) if negated else value
        shifted = outcome.independent([one - bound for one in outcome.values(label, column)])
        verdict = _above(side, -bound if negated else bound, reason, strict, short)
        verdict = replace(verdict, value=brief, p=paired_t(shifted))
        return _with_seeds(outcome, verdict, shifted) if verdict.answer == Answer.UNCLEAR else verdict

    return rule


def _with_seeds(outcome: Outcome, verdict: Verdict, shifted: Sequence[float], margin: float = 0.0) -> Verdict:
    """An open verdict with the number of seeds that would decide it, from the spread of these."""
    if len(shifted) == 1:
        return verdict
    count = seeds_needed(shifted, margin)
    told = "more than 1,000 seeds would be needed" if count is None else f"about {count} seeds would tell"
    if outcome.units is not None and len(shifted) == outcome.units.count:
        told = f"there are {outcome.units.count} {outcome.units.name}, and more seeds add none"
    return replace(verdict, reason=f"{verdict.reason}; {told}", deciding=f"{verdict.numbers}; {told}")


def near(label: str, column: str, target: float, within: float) -> Rule:
    """`label`'s value is `target`, give or take `within`."""
    return all_of(at_least(label, column, target - within), at_most(label, column, target + within))


def equal(label: str, other: str, column: str, tolerance: float = 0.0) -> Rule:
    """`label` and `other` agree in every seed."""

    def rule(outcome: Outcome) -> Verdict:
        gap = max(map(abs, outcome.differences(label, other, column)))
        answer = Answer.HOLDS if gap <= tolerance else Answer.FAILS
        return Verdict(answer, f"{column}: {label} and {other} differ by at most {gap:.3g} in any seed")

    return rule


NOT_ALL = (Answer.FAILS, Answer.SAME, Answer.NOT_RUN, Answer.UNBOUNDED, Answer.IMPROVING, Answer.UNCLEAR, Answer.HOLDS)
ANY = (Answer.HOLDS, Answer.UNBOUNDED, Answer.IMPROVING, Answer.UNCLEAR, Answer.SAME, Answer.FAILS, Answer.NOT_RUN)


def all_of(*rules: Rule) -> Rule:
    """Every rule holds; one that does not, or that makes no difference, is enough to say no."""
    return _joined(rules, NOT_ALL, every=Answer.HOLDS)


def any_of(*rules: Rule) -> Rule:
    """Some rule holds."""
    return _joined(rules, ANY, every=Answer.FAILS)


def at_paper_scale(rule: Rule) -> Rule:
    """A rule about a number that depends on how long the paper trained; below that scale it can't be told."""

    def bound(outcome: Outcome) -> Verdict:
        verdict = rule(outcome)
        return verdict if outcome.scale == "paper" else Verdict(Answer.UNCLEAR, f"fewer rounds; {verdict.reason}")

    return bound


def where_tuned(rule: Rule) -> Rule:
    """A rule about runs that only scales with tuning have; elsewhere they were not run."""

    def bound(outcome: Outcome) -> Verdict:
        return rule(outcome) if outcome.choices else Verdict(Answer.NOT_RUN, "not run at this scale")

    return bound


def _joined(rules: tuple[Rule, ...], order: tuple[Answer, ...], every: Answer) -> Rule:
    """The answer that comes first in the order, told by the part that decides.

    `every` is the answer that all parts must give: of those the closest one is told, with its p. Of the others the
    clearest one is told; its p counts for all parts, because one of them was enough.
    """

    def rule(outcome: Outcome) -> Verdict:
        verdicts = [each(outcome) for each in rules]
        answer = min((verdict.answer for verdict in verdicts), key=order.index)
        agreeing = [verdict for verdict in verdicts if verdict.answer == answer]
        told = max(agreeing, key=_doubt) if answer == every else min(agreeing, key=_doubt)
        p = told.p if answer == every else len(rules) * told.p
        return Verdict(answer, "; ".join(verdict.reason for verdict in verdicts), told.numbers, told.value, p)

    return rule


def _doubt(verdict: Verdict) -> float:
    """How uncertain an answer is; an exact count is certain."""
    return 0.0 if math.isnan(verdict.p) else verdict.p


def _above(interval: Interval, bound: float, reason: str, strict: bool = True, short: str = "") -> Verdict:
    """Where the interval lies; a NaN, such as a target that was never reached, tells nothing."""
    if interval.low > bound or (not strict and interval.low >= bound):
        return Verdict(Answer.HOLDS, reason, short)
    if interval.high < bound or (strict and interval.high <= bound):
        return Verdict(Answer.FAILS, reason, short)
    return Verdict(Answer.UNCLEAR, reason, short)


def _shown(interval: Interval) -> str:
    between = f" [{interval.low:.4g}, {interval.high:.4g}]" if interval.low < interval.high else ""
    return f"{interval.mean:.4g}{between}"


def _brief(outcome: Outcome, column: str, interval: Interval, sign: str = "") -> str:
    """The same in points where the column is a score: what a page with little room says."""
    point = outcome.columns[column].point if column in outcome.columns else None
    if point is None:
        return _shown(interval)
    mean, low, high = (bound / point for bound in (interval.mean, interval.low, interval.high))
    between = f" [{low:{sign}.2f}, {high:{sign}.2f}]" if low < high else ""
    return f"{mean:{sign}.2f} points{between}" if between else f"{mean:{sign}g} point{'s' * (abs(mean) != 1)}"
