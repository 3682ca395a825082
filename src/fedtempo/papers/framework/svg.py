"""Line plots as SVG text: lines with bands, marks with whiskers, ticks, a legend. Same input, same text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 36, 48
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8c564b", "#7f3c8d", "#b8a000")
MOST_POINTS = 300
DASHES = ("", "6 3", "2 2")


@dataclass(frozen=True)
class Series:
    """One line or, where it has marks, points with whiskers from `low` to `high`."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    marks: bool = False


@dataclass(frozen=True)
class Axes:
    """Title, what the axes mean, and what is drawn beside the series."""

    title: str
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    reference: float | None = None
    """A horizontal line, such as the true minimiser."""
    ticks: Sequence[str] = ()
    """Names for x = 0, 1, 2, ... instead of numbers."""


@dataclass(frozen=True)
class PixelRange:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers inside the range, about five; powers of ten where it is logarithmic."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers] or [self.low, self.high]
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        return [step * i for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def draw(series: Sequence[Series], axes: Axes) -> str:
    """The plot as the text of an SVG file; values that are not finite, or not positive on a log axis, are left out."""
    shown = [_drawable(one, axes) for one in series]
    shown = [one for one in shown if len(one.x)]
    xs = [x for one in shown for x in one.x] or [0.0, 1.0]
    reference = [] if axes.reference is None else [axes.reference]
    ys = [y for one in shown for y in (*one.y, *one.low, *one.high)] + reference or [0.0, 1.0]
    across = _range(xs, LEFT, WIDTH - RIGHT, axes.log_x)
    up = _range(ys, HEIGHT - BOTTOM, TOP, axes.log_y)
    parts = [*_frame(axes, across, up)]
    if axes.reference is not None:
        y = up(axes.reference)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "#999", ' stroke-dasharray="5 4"'))
    for index, one in enumerate(shown):
        parts += _series(one, across, up, index)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _drawable(one: Series, axes: Axes) -> Series:
    def fits(x: float, y: float) -> bool:
        return math.isfinite(x) and math.isfinite(y) and (x > 0 or not axes.log_x) and (y > 0 or not axes.log_y)

    kept = [i for i in range(len(one.x)) if fits(one.x[i], one.y[i])]
    stride = max(1, -(-len(kept) // MOST_POINTS))
    kept = sorted({*kept[::stride], *kept[-1:]})
    x, y, low, high = ([values[i] for i in kept if i < len(values)] for values in (one.x, one.y, one.low, one.high))
    bounded = all(fits(*ends) for ends in zip((*x, *x), (*low, *high), strict=False))
    return Series(one.name, x, y, low if bounded else (), high if bounded else (), one.marks)


def _range(values: Sequence[float], start: float, end: float, log: bool) -> PixelRange:
    low, high = min(values), max(values)
    if log:
        return PixelRange(low / 1.1, high * 1.1, start, end, log)
    margin = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    return PixelRange(low - margin, high + margin, start, end, log)


def _frame(axes: Axes, across: PixelRange, up: PixelRange) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [_text((LEFT + right) / 2, 20, axes.title, "middle", ' font-weight="bold"')]
    named = [(float(i), name) for i, name in enumerate(axes.ticks)]
    for value, name in named or [(tick, f"{tick:g}") for tick in across.ticks()]:
        parts += [_line(across(value), bottom, across(value), bottom + 4, "#333")]
        parts += [_text(across(value), bottom + 18, name, "middle")]
    for tick in up.ticks():
        parts += [
            _line(LEFT, up(tick), right, up(tick), "#e5e5e5"),
            _text(LEFT - 6, up(tick) + 4, f"{tick:.4g}", "end"),
        ]
    parts += [_line(LEFT, bottom, right, bottom, "#333"), _line(LEFT, TOP, LEFT, bottom, "#333")]
    parts += [_text((LEFT + right) / 2, HEIGHT - 10, axes.x, "middle")]
    turned = f' transform="rotate(-90 16 {(TOP + bottom) / 2:g})"'
    return [*parts, _text(16, (TOP + bottom) / 2, axes.y, "middle", turned)]


def _series(one: Series, across: PixelRange, up: PixelRange, index: int) -> list[str]:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
    points = [(across(x), up(y)) for x, y in zip(one.x, one.y, strict=True)]
    parts = []
    if one.low and one.marks:
        spans = zip(points, one.low, one.high, strict=True)
        parts += [_line(x, up(low), x, up(high), colour) for (x, _), low, high in spans]
    elif one.low:
        edge = [(across(x), up(y)) for x, y in zip(one.x, one.high, strict=True)]
        edge += [(across(x), up(y)) for x, y in reversed(list(zip(one.x, one.low, strict=True)))]
        parts.append(f'<polygon points="{_path(edge)}" fill="{colour}" fill-opacity="0.15"/>')
    if len(points) > 1:
        style = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<polyline points="{_path(points)}" fill="none" stroke="{colour}" stroke-width="1.6"{style}/>')
    if one.marks or len(points) == 1:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    x, y = WIDTH - RIGHT + 12, TOP + 10 + 18 * index
    style = f' stroke-width="2" stroke-dasharray="{dash}"' if dash else ' stroke-width="2"'
    return [*parts, _line(x, y, x + 20, y, colour, style), _text(x + 26, y + 4, one.name, "start")]


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Points to a tenth of a pixel; repeated ones once."""
    texts = [f"{x:.1f},{y:.1f}" for x, y in points]
    return " ".join(texts[:1] + [here for before, here in pairwise(texts) if here != before])


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, style: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{style}/>'


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222"{style}>{escape(text)}</text>'
