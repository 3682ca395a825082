"""A reproduction as a report page: the table beside the paper's, the verdicts, the figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedtempo.papers import Reproduction
from fedtempo.papers.framework.figures import Figure
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import cell, claims_and_verdicts, seeds_text
from fedtempo.report import REPORT, Grid, Lines, Section, report, write_page


def write_reproduction(reproduction: Reproduction, outcome: Outcome, folder: Path, provenance: str) -> Path:
    """Write the page into the folder."""
    title = f"{reproduction.source}: {reproduction.title}"
    command = f"fedtempo reproduce {reproduction.name} --scale {outcome.scale}"
    page = report([], title=title, command=command, sections=list(_sections(reproduction, outcome, provenance)))
    write_page(folder / REPORT, page)
    return folder / REPORT


def _sections(reproduction: Reproduction, outcome: Outcome, provenance: str) -> Iterator[Section]:
    settings = ", ".join(f"{name} {value}" for name, value in reproduction.scales[outcome.scale].settings.items())
    columns = reproduction.columns
    rows = [[label, *(cell(reproduction, outcome, label, name, ", ") for name in columns)] for label in outcome.labels]
    yield Section(
        f"Ours, and the paper's: {outcome.scale} scale, {seeds_text(outcome)} seeds",
        f"Mean over seeds ± half the {100 * outcome.level:g} % confidence interval. {settings}. {provenance}",
        Grid(["run", *(column.heading for column in columns.values())], rows),
    )
    claims = [[*line] for line in claims_and_verdicts(reproduction, outcome)]
    notes = " ".join(reproduction.notes)
    yield Section("The paper's sentences, and our questions", notes, Grid(["sentence", "verdict", "numbers"], claims))
    for figure in reproduction.figures:
        yield Section(figure.axes.title, figure=_lines(figure, outcome, reproduction))


def _lines(figure: Figure, outcome: Outcome, reproduction: Reproduction) -> Lines:
    series = figure.series(outcome, reproduction.reported)
    points = {one.name: list(zip(one.x, one.y, strict=True)) for one in series}
    return Lines(points, figure.axes.x, figure.axes.y)
