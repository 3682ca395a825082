"""Claims about users who did not train: other such users must show the same, not only other seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedtempo.comparison.bootstrap import over_seeds_and_users
from fedtempo.comparison.intervals import Pairs
from fedtempo.evaluation.over_seeds import Estimate
from fedtempo.papers.framework.claims import Answer, Rule, Verdict, higher
from fedtempo.papers.framework.definitions import Measured
from fedtempo.papers.framework.outcomes import Outcome

DECIDED = (Answer.HOLDS, Answer.FAILS)


def higher_for_users(label: str, other: str, group: str) -> Rule:
    """`label` serves the group's users better on average, also if users are drawn anew."""

    def rule(outcome: Outcome) -> Verdict:
        verdict = higher(label, other, f"{group}/mean")(outcome)
        if verdict.answer not in DECIDED:
            return verdict
        drawn = resampled(outcome, label, other, group)
        if math.isnan(drawn.low):
            told = "users' scores are not stored"
        elif drawn.low > 0 or drawn.high < 0:
            return verdict
        else:
            told = f"users drawn anew: [{drawn.low:+.3g}, {drawn.high:+.3g}]"
        numbers = f"{verdict.numbers}; {told}"
        return replace(verdict, answer=Answer.UNCLEAR, reason=f"{verdict.reason}; {told}", deciding=numbers)

    return rule


def resampled(outcome: Outcome, label: str, other: str, group: str) -> Estimate:
    """The mean difference with an interval from seeds and users; without one where a run has no users' scores.

    Seeds with the same users are one population, seeds with other users are others.
    """
    by_users: dict[tuple[int, ...], list[tuple[list[float], list[float]]]] = {}
    for mine, theirs in zip(outcome.measured[label], outcome.measured[other], strict=False):
        ours, others = _scores(mine, group), _scores(theirs, group)
        common = tuple(sorted(ours.keys() & others.keys()))
        if not common:
            return Estimate(math.nan)
        pair = ([ours[user] for user in common], [others[user] for user in common])
        by_users.setdefault(common, []).append(pair)
    pairs = [
        Pairs(np.array([one for one, _ in seeds]), np.array([two for _, two in seeds])) for seeds in by_users.values()
    ]
    return over_seeds_and_users(pairs)


def _scores(measured: Measured, group: str) -> dict[int, float]:
    return {user: score for user, _, score in measured.users.get(group, ())}
