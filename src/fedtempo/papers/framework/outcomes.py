"""What a reproduction measured, over all seeds, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from fedtempo.comparison.decide import last_quarter_gain
from fedtempo.errors import ConfigError, unknown
from fedtempo.evaluation.over_seeds import LEVEL, half_width
from fedtempo.papers.framework.definitions import Column, Curve, Measured, Settling

LEVELS = {1: LEVEL, 2: 0.97, 3: 0.978, 4: 0.982}
"""The level of an interval by the number of looks, with which all looks together mislead in 5 % (Pocock, 1977)."""


class NotRunError(ConfigError):
    """A label that was left out by `--only`."""


@dataclass(frozen=True)
class Units:
    """What is independent where seeds are not: seed s belongs to unit s mod `count`, and more seeds add no unit."""

    name: str
    count: int


@dataclass(frozen=True)
class TriedValue:
    """One candidate of a contestant and its validation score, the mean over the tuning seeds."""

    value: float
    score: float


@dataclass(frozen=True)
class TuningChoice:
    """What tuning chose for a contestant, and everything that it tried."""

    value: float
    trials: tuple[TriedValue, ...]

    @property
    def score(self) -> float:
        """The validation score of what was chosen."""
        return next(trial.score for trial in self.trials if trial.value == self.value)

    def bounded(self, tie: float) -> bool:
        """Whether a better value outside the candidates is unlikely.

        False where the best candidate is the smallest or the largest, and is better than its neighbour by more than
        `tie`, or where its neighbour diverged.
        """
        ordered = sorted(self.trials, key=lambda trial: trial.value)
        place = next(place for place, trial in enumerate(ordered) if trial.value == self.value)
        if len(ordered) < 2 or 0 < place < len(ordered) - 1:
            return True
        neighbour = ordered[1 if place == 0 else -2]
        return abs(ordered[place].score - neighbour.score) <= tie


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval (Student's t); unbounded where there is one seed only.

    >>> Interval.of([1.0, 2.0, 3.0]).text()
    '2.000 ± 2.484'
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], exact: bool = False, level: float = LEVEL) -> Interval:
        """The interval of a sample; `exact` values have no uncertainty."""
        mean = fmean(values)
        if exact or not math.isfinite(mean):
            return cls(mean, mean, mean)
        half = half_width(values, level)
        return cls(mean, mean - half, mean + half)

    @property
    def half(self) -> float:
        """Half the interval's width; infinite where there is one seed only."""
        return (self.high - self.low) / 2

    def text(self, format: str = ".3f") -> str:
        """`0.523 ± 0.004`; the mean alone where there is no interval; a dash where there is no number."""
        if math.isnan(self.mean):
            return "-"
        spread = f" ± {self.half:{format}}" if math.isfinite(self.half) and self.half > 0 else ""
        return f"{self.mean:{format}}{spread}"


@dataclass(frozen=True)
class Outcome:
    """Every label's measurements, one entry per seed: 0, 1, 2, ...

    A label may have more seeds than another, because claims about small differences need more of them. Two labels are
    compared on the seeds that both have.
    """

    scale: str
    columns: Mapping[str, Column]
    measured: Mapping[str, tuple[Measured, ...]]
    settling: Settling | None = None
    choices: Mapping[str, TuningChoice] = field(default_factory=dict)
    """What tuning chose, by contestant."""
    left_out: tuple[str, ...] = ()
    """Labels that were not run."""
    unbounded: tuple[str, ...] = ()
    """Labels whose rate has no bound: the largest or the smallest candidate was clearly better than its neighbour."""
    looks: int = 1
    """How often the seeds were looked at; with two looks an interval has 97 %, so that both have 5 % together."""
    units: Units | None = None
    """What is independent, where seeds are not."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The runs' labels, in their order."""
        return tuple(self.measured)

    @property
    def seeds(self) -> int:
        """How many seeds there are, of the label that has most."""
        return max(map(len, self.measured.values()))

    @property
    def fewest_seeds(self) -> int:
        """How many seeds every label has."""
        return min(map(len, self.measured.values()))

    def on_common_seeds(self, labels: Iterable[str]) -> Outcome:
        """These labels alone, on the seeds that all of them have."""
        chosen = {label: self._of(label) for label in labels}
        common = min(map(len, chosen.values()))
        return replace(self, measured={label: runs[:common] for label, runs in chosen.items()})

    def values(self, label: str, column: str) -> tuple[float, ...]:
        """A column's values, seed by seed; NaN where a run has none."""
        runs = self._of(label)
        # A column that is derived from all labels ends with the last seed that all of them have.
        ends = [seed + 1 for seed, one in enumerate(runs) if column in one.values]
        return tuple(one.values.get(column, math.nan) for one in runs[: max(ends, default=len(runs))])

    def curves(self, label: str, name: str) -> tuple[Curve, ...]:
        """A curve, seed by seed; none where the run has no such curve."""
        return tuple(one.curves[name] for one in self._of(label) if name in one.curves)

    def mean(self, label: str, column: str) -> float:
        """The mean over seeds."""
        return fmean(self.values(label, column))

    @property
    def level(self) -> float:
        """That of every interval."""
        return LEVELS[self.looks]

    def interval(self, label: str, column: str) -> Interval:
        """Mean and confidence interval over what is independent."""
        return Interval.of(self.independent(self.values(label, column)), self._exact(column), self.level)

    def difference(self, label: str, other: str, column: str) -> Interval:
        """`label` minus `other`, paired over seeds: what the seeds have in common cancels."""
        return Interval.of(self.differences(label, other, column), self._exact(column), self.level)

    def differences(self, label: str, other: str, column: str) -> list[float]:
        """`label` minus `other` on the seeds that both have: seed by seed, or the mean of each unit's seeds."""
        pairs = zip(self.values(label, column), self.values(other, column), strict=False)
        return self.independent([mine - theirs for mine, theirs in pairs])

    def independent(self, by_seed: Sequence[float]) -> list[float]:
        """The values of seeds, or the mean over the seeds of each unit."""
        if self.units is None:
            return [*by_seed]
        return [fmean(by_seed[unit :: self.units.count]) for unit in range(min(self.units.count, len(by_seed)))]

    def without_bound(self, column: str, *labels: str) -> list[str]:
        """Which of the labels, or of the labels that their values are made of, have a rate without a bound."""
        known = self.columns.get(column)
        if known is not None and known.exact:
            return []
        made_of = known.made_of if known is not None else None
        needed = dict.fromkeys(one for label in labels for one in (made_of(label) if made_of else (label,)))
        return [label for label in needed if label in self.unbounded]

    def still_improving(self, label: str, column: str) -> float | None:
        """By how much the last quarter of the label's runs improves, where that is too much to compare a score."""
        if self.settling is None or column not in self.columns or not self.columns[column].settles:
            return None
        curves = self.curves(label, self.settling.curve)
        gains = [last_quarter_gain(curve.y, self.settling.higher_is_better) for curve in curves]
        gain = fmean(gains) if gains else math.nan
        return None if gain < self.settling.within else gain

    def training_raises(self, column: str) -> bool:
        """Whether a run that still improves can only end with more of this column."""
        if self.settling is None or column not in self.columns:
            return False
        return self.settling.higher_is_better and self.columns[column].of_one_run

    def tuning_raises(self, column: str) -> bool:
        """Whether a better rate can only add to this column: it is a score of one run, by which rates are chosen."""
        known = self.columns.get(column)
        return known is not None and known.point is not None and known.of_one_run and known.made_of is None

    def _exact(self, column: str) -> bool:
        return column in self.columns and self.columns[column].exact

    def _of(self, label: str) -> tuple[Measured, ...]:
        if label in self.left_out:
            raise NotRunError(f"{label} was not run")
        if label not in self.measured:
            raise unknown("label", label, self.measured)
        return self.measured[label]
