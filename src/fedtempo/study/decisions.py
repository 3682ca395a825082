"""The answers of a fair comparison: better, worse, no difference, can't tell, not converged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from fedtempo.comparison.bootstrap import over_seeds_and_users
from fedtempo.comparison.decide import last_quarter_gain, no_difference, seeds_needed
from fedtempo.comparison.intervals import Pairs, of_common_users, paired_by_data
from fedtempo.comparison.significance import holm, paired_t, sign_flip
from fedtempo.comparison.targets import COSTS, whole_costs
from fedtempo.errors import ConfigError
from fedtempo.evaluation.over_seeds import LEVEL, Estimate, over_seeds
from fedtempo.study.plan import GROUPS, FairPlan, Test
from fedtempo.training.view import Run

ONE_USER = "one user says nothing about other users"


class Finding(StrEnum):
    """What a pair of contestants showed."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    UNCLEAR = "can't tell"
    SHORT = "not converged"


@dataclass(frozen=True)
class Decision:
    """One contestant against another, for one kind of user. Differences are positive where the first is better."""

    label: str
    other: str
    users: str
    finding: Finding
    seeds: Estimate
    """The mean difference with Student's interval over seeds."""
    both: Estimate
    """The same with the interval from resampling seeds and users."""
    p: float
    corrected: float
    """Two-sided p of the paired t test, and the same by Holm's correction over all pairs of the plan."""
    needed: int | None
    """About how many seeds would decide where it can't be told; None where more seeds would not."""
    reason: str

    def __str__(self) -> str:
        gap = f"{self.seeds.value:+.4f} [{self.seeds.low:+.4f}, {self.seeds.high:+.4f}]"
        return f"{self.label} against {self.other}, {about(self.users)}: {self.finding}, {gap}: {self.reason}"


def about(users: str) -> str:
    """What a claim is about, in words: a kind of users, or a cost."""
    return f"{users} users" if users in GROUPS else users


@dataclass(frozen=True)
class Ending:
    """How a contestant's judged runs ended."""

    stopped: int
    """How many validation ended; the others used all rounds."""
    of: int
    gain: float
    """The mean gain of the last quarter of those that used all rounds; NaN where there are none."""
    converged: bool


def how_it_ended(runs: Sequence[Run], within: float) -> Ending:
    """Whether a contestant has converged: validation ended its runs, or their last quarters gain less than `within`."""
    used_all = [run for run in runs if not run.history[-1].stops]
    gains = [last_quarter_gain(validation_curve(run)) for run in used_all]
    gain = fmean(gains) if gains else math.nan
    return Ending(len(runs) - len(used_all), len(runs), gain, not used_all or gain < within)


def validation_curve(run: Run) -> list[float]:
    """The score that guides a run, by evaluation; larger is better."""
    return [report.validation.quality() for report in run.history if report.validation is not None]


def decide_all(runs: Mapping[str, Sequence[Run]], plan: FairPlan) -> tuple[list[Decision], dict[str, Ending]]:
    """An answer for every claim of the plan, and how each contestant's training ended."""
    ended = {label: how_it_ended(own, plan.converged_within) for label, own in runs.items()}
    short = [label for label, one in ended.items() if not one.converged]
    there = [claim for claim in plan.claims if {claim[0], claim[1]} <= runs.keys()]
    return decide_pairs(runs, there, plan.margin, short, plan.test), ended


def decide_pairs(
    runs: Mapping[str, Sequence[Run]],
    claims: Sequence[tuple[str, str, str]],
    margin: float,
    short: Sequence[str] = (),
    test: Test = "t",
) -> list[Decision]:
    """An answer for every claim: (label, other, "existing", "new" or a cost). Those in `short` have not converged."""
    gaps = [_gaps(runs[label], runs[other], users) for label, other, users in claims]
    tests = [(paired_t if test == "t" else sign_flip)(by_seed) for by_seed, _ in gaps]
    decisions = []
    for claim, (by_seed, populations), p, corrected in zip(claims, gaps, tests, holm(tests), strict=True):
        label, other, users = claim
        seeds, cost = over_seeds(by_seed), users in COSTS
        both = seeds if cost else over_seeds_and_users(populations)
        improving = [] if cost else [name for name in (label, other) if name in short]
        finding, reason = _finding(seeds, both, corrected, 0.0 if cost else margin, improving)
        open_ended = finding is Finding.UNCLEAR and reason != ONE_USER
        needed = seeds_needed(by_seed, 0.0 if cost else margin, len(claims)) if open_ended else None
        if finding is Finding.UNCLEAR:
            reason = f"{reason}; {_more(needed, len(by_seed))}"
        decisions.append(Decision(label, other, users, finding, seeds, both, p, corrected, needed, reason))
    return decisions


def _finding(
    seeds: Estimate, both: Estimate, corrected: float, margin: float, short: Sequence[str]
) -> tuple[Finding, str]:
    """Both intervals must agree; a difference must also survive the correction for many comparisons."""
    if short:
        return Finding.SHORT, f"validation still improved when the rounds of {' and '.join(short)} were used up"
    if math.isnan(seeds.low):
        return Finding.UNCLEAR, "one seed says nothing about the spread"
    if math.isnan(both.low):
        return Finding.UNCLEAR, ONE_USER
    equal = seeds.low == seeds.high == both.low == both.high == 0.0
    if equal or (no_difference(seeds.low, seeds.high, margin) and no_difference(both.low, both.high, margin)):
        return Finding.SAME, "they are equal in every seed" if equal else f"both intervals lie within ±{margin:g}"
    if corrected < 1 - LEVEL and (min(seeds.low, both.low) > 0 or max(seeds.high, both.high) < 0):
        better = seeds.value > 0
        side = "above" if better else "below"
        return (Finding.BETTER if better else Finding.WORSE), f"both intervals lie {side} 0, also after the correction"
    reason = "the interval over seeds contains 0 and is wider than the margin"
    if not seeds.low <= 0 <= seeds.high:
        cause = "other users could turn it around" if both.low <= 0 <= both.high else "there are many comparisons"
        reason = f"the seeds agree, but {cause}"
    elif no_difference(seeds.low, seeds.high, margin):
        reason = "over seeds the difference is small, but other users could make it larger"
    return Finding.UNCLEAR, reason


def _more(needed: int | None, seeds: int) -> str:
    if needed is None:
        return "more seeds would hardly decide it"
    if needed <= seeds:
        return "more users would decide it, rather than more seeds"
    return f"about {needed} seeds would decide it"


def _gaps(ours: Sequence[Run], theirs: Sequence[Run], users: str) -> tuple[list[float], list[Pairs]]:
    """The differences of means by seed, and the users' scores by data. Positive where ours is better."""
    by_seed = {run.seed: run for run in theirs}
    pairs = [(run, by_seed[run.seed]) for run in ours if run.seed in by_seed]
    if not pairs:
        raise ConfigError("contestants must have seeds in common. Got none.")
    if users in COSTS:  # less is better
        return [whole_costs([other])[users] - whole_costs([mine])[users] for mine, other in pairs], []
    group = GROUPS[users]
    metric, sign = pairs[0][0].judged.metric, -1.0 if pairs[0][0].judged.lower_is_better else 1.0
    scores = [(mine.judged.groups()[group], other.judged.groups()[group]) for mine, other in pairs]
    means = [[each["mean"] for each in of_common_users(a, b, metric)] for a, b in scores]
    gaps = [sign * (ours_mean - theirs_mean) for ours_mean, theirs_mean in means]
    data = [run.identity["data"] for run, _ in pairs]
    populations = paired_by_data(scores, data, metric)
    return gaps, [Pairs(sign * found.ours, sign * found.theirs) for found in populations]
