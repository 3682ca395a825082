"""A paper's figure as a value: learning curves, a sweep over a setting, or one point per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedtempo.papers.framework.definitions import Values
from fedtempo.papers.framework.outcomes import Interval, Outcome
from fedtempo.papers.framework.svg import Axes, Series, draw


@dataclass(frozen=True)
class Curves:
    """A measured curve of every run (or of `labels`): the mean over seeds with its 95 % confidence band."""

    name: str
    """The file's name, without its ending."""
    curve: str
    axes: Axes
    labels: tuple[str, ...] = ()

    def series(self, outcome: Outcome, reported: Values) -> list[Series]:
        """The curves to draw."""
        there = [label for label in self.labels or outcome.labels if label in outcome.measured]
        series = (self._series(outcome, label) for label in there)
        return [one for one in series if one is not None]

    def _series(self, outcome: Outcome, label: str) -> Series | None:
        curves = outcome.curves(label, self.curve)
        if not curves:
            return None
        length = min(len(curve.x) for curve in curves)
        bands = [Interval.of([curve.y[i] for curve in curves]) for i in range(length)]
        return _spread(label, list(curves[0].x[:length]), bands, marks=False)


@dataclass(frozen=True)
class Sweep:
    """A column against a setting: one line per method, through the label that ran with each value of the setting.

    The paper's values, where it reports some, are drawn as a line of their own.
    """

    name: str
    column: str
    axes: Axes
    methods: Mapping[str, Mapping[float, str]] = field(default_factory=dict)
    """By method: from the setting's value to the label."""

    def series(self, outcome: Outcome, reported: Values) -> list[Series]:
        """The curves to draw."""
        lines = []
        for method, labels in self.methods.items():
            there = {x: label for x, label in labels.items() if label in outcome.measured}
            bands = [outcome.interval(label, self.column) for label in there.values()]
            lines.append(_spread(method, list(there), bands, marks=True))
            paper = {
                x: reported[label][self.column] for x, label in there.items() if self.column in reported.get(label, {})
            }
            if paper:
                lines.append(Series(f"{method} (paper)", list(paper), list(paper.values())))
        return lines


@dataclass(frozen=True)
class Points:
    """One point per run: a column against another one, such as accuracy against bytes."""

    name: str
    x_column: str
    column: str
    axes: Axes

    def series(self, outcome: Outcome, reported: Values) -> list[Series]:
        """The points to draw."""
        return [
            _spread(label, [outcome.mean(label, self.x_column)], [outcome.interval(label, self.column)], marks=True)
            for label in outcome.labels
        ]


Figure = Curves | Sweep | Points


def svg(figure: Figure, outcome: Outcome, reported: Values) -> str:
    """The drawing as a file of its own."""
    return draw(figure.series(outcome, reported), figure.axes)


def _spread(name: str, x: list[float], bands: list[Interval], marks: bool) -> Series:
    return Series(name, x, [b.mean for b in bands], [b.low for b in bands], [b.high for b in bands], marks)
