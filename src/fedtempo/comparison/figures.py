"""Figures of a comparison for a paper: scores by round, and final scores with intervals, as SVG, PDF and PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.protocol import contestants_of
from fedtempo.errors import OutputError
from fedtempo.evaluation.over_seeds import Estimate, over_seeds
from fedtempo.support.extras import library
from fedtempo.support.files import replacing
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
WIDTH, HEIGHT = 3.4, 2.4
"""Inches: a column of a two-column page."""
GROUPS = {"existing_after": "existing users", "new_after": "new users"}


def write_figures(comparison: Comparison, runs: Sequence[Run], folder: Path) -> list[Path]:
    """`curves` and `scores` in three formats each; needs matplotlib. Returns the files."""
    library("matplotlib", "plots", "figures", OutputError)
    with _style() as figures:
        drawn = {"curves": _curves(figures, comparison, runs), "scores": _scores(figures, comparison)}
        return [path for name, figure in drawn.items() for path in _written(figure, folder / name)]


@contextmanager
def _style() -> Iterator[Any]:
    """Figures without pyplot: no window, and no state that the caller's own figures share."""
    matplotlib = library("matplotlib", "plots", "figures", OutputError)
    with matplotlib.rc_context(STYLE):
        yield library("matplotlib.figure", "plots", "figures", OutputError)


def curve_of(runs: Sequence[Run]) -> dict[int, Estimate]:
    """By round, from 1: the score that guides the run, over the seeds that were evaluated then."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for report in run.history:
            if report.scores is not None:
                mean = report.scores.guiding.summary(report.scores.metric)["mean"]
                found.setdefault(report.round + 1, []).append(mean)
    return {number: over_seeds(values) for number, values in sorted(found.items())}


def _curves(figures: Any, comparison: Comparison, runs: Sequence[Run]) -> Any:
    figure = figures.Figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_subplot()
    for index, contestant in enumerate(contestants_of(runs)):
        curve = curve_of([contestant.runs[seed] for seed in contestant.seeds])
        colour, line = COLOURS[index % len(COLOURS)], LINES[index // len(COLOURS) % len(LINES)]
        rounds, marker = list(curve), "o" if len(curve) < 2 else None
        values = [one.value for one in curve.values()]
        axes.plot(rounds, values, color=colour, linestyle=line, marker=marker, linewidth=1.2, label=contestant.label)
        low, high = [one.low for one in curve.values()], [one.high for one in curve.values()]
        axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    guiding = runs[0].history[-1].scores
    part = guiding.part if guiding is not None else comparison.part
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"{comparison.metric}, {part} part")
    axes.legend(fontsize=7)
    return figure


def _scores(figures: Any, comparison: Comparison) -> Any:
    groups = [group for group in GROUPS if any(group in line.scores for line in comparison.lines)]
    rows = len(comparison.lines)
    figure = figures.Figure(figsize=(WIDTH * len(groups), 0.6 + 0.3 * rows))
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


def _written(figure: Any, stem: Path) -> Iterator[Path]:
    for ending in FORMATS:
        path = stem.with_name(f"{stem.name}.{ending}")
        # No date: two drawings of the same numbers are the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[ending]
        with replacing(path, "figures") as partial:
            figure.savefig(partial, format=ending, metadata=metadata)
        yield path
