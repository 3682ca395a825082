"""Whether differences over seeds could be chance: paired tests, corrected for the number of comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedtempo.comparison.comparison import Comparison, Line
from fedtempo.errors import require
from fedtempo.evaluation.over_seeds import half_width, student_mass, student_quantile

Method = Literal["t", "sign-flip"]
"""Student's paired t test, or the exact test of all signs, which assumes symmetry and no normal distribution."""
MOST_FLIPPED = 20
GROUPS = ("existing_after", "new_after")


@dataclass(frozen=True)
class PairedTest:
    """A contestant against the reference, on the seeds that both have."""

    label: str
    group: str
    method: str
    seeds: int
    difference: float
    p: float
    """Two-sided. NaN where there are fewer than two seeds."""
    corrected: float
    """The same by Holm's correction over all tests of the comparison."""


def paired_tests(comparison: Comparison, method: Method = "t", statistic: str = "mean") -> list[PairedTest]:
    """Every contestant against the reference, for existing and for new users after fine-tuning."""
    require(method in get_args(Method), "test", " or ".join(map(repr, get_args(Method))), method)
    base = next(line for line in comparison.lines if line.label == comparison.reference)
    found = []
    for line in comparison.lines:
        for group in GROUPS if line is not base else ():
            gaps = _gaps(line, base, group, statistic)
            if gaps:
                p = sign_flip(gaps) if method == "sign-flip" else paired_t(gaps)
                found.append((line.label, group, method, len(gaps), float(np.mean(gaps)), p))
    corrected = holm([entry[-1] for entry in found])
    return [PairedTest(*entry, adjusted) for entry, adjusted in zip(found, corrected, strict=True)]


def tests_in_words(comparison: Comparison, method: Method = "t") -> list[str]:
    """A line for each test, and one for the correction; none where there is one seed."""
    known = [one for one in paired_tests(comparison, method) if not math.isnan(one.p)]
    lines = [
        f"{one.label} against {comparison.reference}, {one.group.removesuffix('_after')} users: "
        f"p = {one.p:.3g}, {one.corrected:.3g} after Holm's correction ({one.method} test, {one.seeds} seeds)"
        for one in known
    ]
    floor = smallest_p(known)
    if floor is not None:
        lines.append(f"with {floor[0]} seeds the sign-flip test cannot give a p below {floor[1]:.3g}")
    return lines


def smallest_p(tests: Iterable[PairedTest]) -> tuple[int, float] | None:
    """The fewest seeds of a sign-flip test among these, and the smallest p that it can give with them: 2 / 2^n."""
    seeds = min((one.seeds for one in tests if one.method == "sign-flip"), default=None)
    return None if seeds is None else (seeds, 2.0 ** (1 - seeds))


def _gaps(line: Line, base: Line, group: str, statistic: str) -> list[float]:
    """The contestant's score minus the reference's, seed by seed."""
    if group not in line.by_seed or group not in base.by_seed:
        return []
    ours = dict(zip(line.seeds, line.by_seed[group][statistic], strict=True))
    theirs = dict(zip(base.seeds, base.by_seed[group][statistic], strict=True))
    gaps = [ours[seed] - theirs[seed] for seed in line.seeds if seed in theirs]
    return [gap for gap in gaps if not math.isnan(gap)]


def paired_t(gaps: Sequence[float]) -> float:
    """The two-sided p of Student's test that the mean of the differences is zero.

    >>> round(paired_t([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    if len(gaps) < 2 or not all(map(math.isfinite, gaps)):
        return math.nan
    degrees, half = len(gaps) - 1, half_width(gaps)
    mean = abs(float(np.mean(gaps)))
    if half == 0.0:
        return 0.0 if mean else 1.0
    t = mean / half * student_quantile(degrees)
    return max(0.0, 1.0 - student_mass(math.atan(t / math.sqrt(degrees)), degrees))


def sign_flip(gaps: Sequence[float]) -> float:
    """The exact two-sided p: the share of all 2^n choices of signs whose sum is at least as far from zero.

    With n seeds it cannot be below 2 / 2^n.

    >>> sign_flip([1.0, 2.0, 3.0])
    0.25
    """
    count = len(gaps)
    if count < 2 or not all(map(math.isfinite, gaps)):
        return math.nan
    require(count <= MOST_FLIPPED, "seeds", f"at most {MOST_FLIPPED} for the sign-flip test", count)
    values = np.abs(np.asarray(gaps, dtype=np.float64))
    sums = np.zeros(1)
    for value in values:  # all sums of the first k values with either sign
        sums = np.concatenate([sums + value, sums - value])
    # Rounding must not make one order of the same sum smaller than another.
    observed = abs(math.fsum(gaps)) - 1e-12 * float(values.sum())
    return float((np.abs(sums) >= observed).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) step-down correction: the chance of any false alarm stays below the level. NaN counts for nothing.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        corrected[index] = largest
    return corrected
