"""Figures for a paper: scores against rounds or costs, and final scores with intervals, as SVG, PDF and PNG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.protocol import contestants_of
from fedtempo.errors import OutputError, require
from fedtempo.evaluation.over_seeds import Estimate, over_seeds
from fedtempo.support.extras import library
from fedtempo.support.files import replacing
from fedtempo.training.round_report import RoundReport
from fedtempo.training.view import Run

FORMATS = ("svg", "pdf", "png")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts that journals accept: text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "fedtempo",  # the same figure has the same bytes
    "savefig.dpi": 300,
    "savefig.bbox": "tight",
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
LINES = ("-", "--", "-.", ":")
WIDTHS = {"column": 3.4, "page": 7.0}
"""Inches: one column of a two-column page, or both."""
HEIGHT = 2.4
MOST_INSIDE = 4
"""Contestants whose legend has room inside the axes."""
GROUPS = {"existing_after": "existing users", "new_after": "new users"}
Against = Literal["rounds", "bytes", "steps", "flops", "seconds", "time"]
"""What a curve is drawn against: rounds, or what all clients have cost by then; `time` is that of their devices."""
AXES: dict[str, str] = {
    "rounds": "round",
    "bytes": "bytes sent, both ways",
    "steps": "local steps of all clients",
    "flops": "FLOPs of all clients",
    "seconds": "seconds of this machine",
    "time": "seconds of the clients' devices",
}
Width = Literal["column", "page"]


def write_figures(
    comparison: Comparison, runs: Sequence[Run], folder: Path, x: Against = "rounds", width: Width = "column"
) -> list[Path]:
    """`curves` against x and `scores`, in three formats each; needs matplotlib. Returns the files."""
    _check(x, width)
    with _style() as figures:
        drawn = {"curves": _curves(figures, runs, x, width), "scores": _scores(figures, comparison)}
        return [_written(figure, folder / f"{name}.{ending}") for name, figure in drawn.items() for ending in FORMATS]


def plot(runs: Sequence[Run], path: str | Path, x: Against = "rounds", width: Width = "column") -> Path:
    """Draw the score that guides each run against rounds or a cost, with bands over seeds; needs matplotlib.

    The ending says what is written: .svg, .pdf or .png. Runs with the same label are seeds of one curve.
    """
    _check(x, width)
    ending = Path(path).suffix.lower().removeprefix(".")
    require(ending in FORMATS, "path", f"a file that ends with .{', .'.join(FORMATS)}", str(path))
    with _style() as figures:
        return _written(_curves(figures, runs, x, width), Path(path))


def _check(x: str, width: str) -> None:
    require(x in AXES, "x", " or ".join(map(repr, AXES)), x)
    require(width in WIDTHS, "width", " or ".join(map(repr, WIDTHS)), width)


@contextmanager
def _style() -> Iterator[Any]:
    """Figures without pyplot: no window, and no state that the caller's own figures share."""
    matplotlib = library("matplotlib", "plots", "figures", OutputError)
    with matplotlib.rc_context(STYLE):
        yield library("matplotlib.figure", "plots", "figures", OutputError)


class Point(NamedTuple):
    """One evaluation, over the seeds that were evaluated in that round."""

    x: float
    """The round, or the mean over seeds of what the runs had cost by then."""
    score: Estimate


def curve_of(runs: Sequence[Run], x: Against = "rounds") -> list[Point]:
    """The score that guides the runs, evaluation by evaluation."""
    found: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        seconds = accumulate(report.seconds for report in run.history)
        for report, so_far in zip(run.history, seconds, strict=True):
            if report.scores is not None:
                mean = report.scores.guiding.summary(report.scores.metric)["mean"]
                found.setdefault(report.number, []).append((_place(report, so_far, x), mean))
    return [
        Point(fmean(place for place, _ in each), over_seeds([score for _, score in each]))
        for _, each in sorted(found.items())
    ]


def _place(report: RoundReport, seconds: float, x: Against) -> float:
    if x == "rounds":
        return float(report.number)
    if x == "seconds":
        return seconds
    return report.total_time if x == "time" else float(getattr(report.total_costs, x))


def _curves(figures: Any, runs: Sequence[Run], x: Against, width: Width) -> Any:
    contestants = contestants_of(runs)
    rows = 0 if len(contestants) <= MOST_INSIDE else math.ceil(len(contestants) / 2)
    figure = figures.Figure(figsize=(WIDTHS[width], HEIGHT + 0.17 * rows), layout="constrained")
    axes = figure.add_subplot()
    for index, contestant in enumerate(contestants):
        curve = curve_of([contestant.runs[seed] for seed in contestant.seeds], x)
        colour, line = COLOURS[index % len(COLOURS)], LINES[index // len(COLOURS) % len(LINES)]
        places, marker = [one.x for one in curve], "o" if len(curve) < 2 else None
        values = [one.score.value for one in curve]
        axes.plot(places, values, color=colour, linestyle=line, marker=marker, linewidth=1.2, label=contestant.label)
        low, high = [one.score.low for one in curve], [one.score.high for one in curve]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    guiding = next((report.scores for run in runs for report in run.history if report.scores is not None), None)
    axes.set_xlabel(AXES[x])
    axes.xaxis.get_major_locator().set_params(integer=x == "rounds")
    axes.set_ylabel("score" if guiding is None else f"{guiding.metric}, {guiding.part} part")
    if rows:
        figure.legend(loc="outside lower center", ncols=2, fontsize=6)
    else:
        axes.legend(fontsize=7)
    return figure


def _scores(figures: Any, comparison: Comparison) -> Any:
    groups = [group for group in GROUPS if any(group in line.scores for line in comparison.lines)]
    rows = len(comparison.lines)
    figure = figures.Figure(figsize=(WIDTHS["column"] * len(groups), 0.6 + 0.3 * rows))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, group in zip(panels, groups, strict=True):
        for row, line in enumerate(comparison.lines):
            one = line.scores[group]["mean"] if group in line.scores else None
            if one is not None:
                half = 0.0 if one.high != one.high else one.high - one.value
                axes.errorbar(
                    one.value, row, xerr=half, fmt="o", color=COLOURS[row % len(COLOURS)], capsize=2, markersize=4
                )
        axes.set_yticks(range(rows), [line.label for line in comparison.lines])
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_xlabel(f"{comparison.metric}, {GROUPS[group]}")
    return figure


def _written(figure: Any, path: Path) -> Path:
    ending = path.suffix.lower().removeprefix(".")
    # No date: two drawings of the same numbers are the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[ending]
    with replacing(path, "figures") as partial:
        figure.savefig(partial, format=ending, metadata=metadata)
    return path
