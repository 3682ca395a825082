"""A comparison for a terminal: scores, differences to the reference, costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from rich.cells import cell_len
from rich.table import Column, Table

from fedtempo.comparison.comparison import Comparison, Difference, Line
from fedtempo.comparison.targets import CLOCK, COSTS
from fedtempo.evaluation.over_seeds import Estimate
from fedtempo.report.notebook import tables_html
from fedtempo.report.tables import with_unit
from fedtempo.support.display import shows

KINDS = ("existing", "new")
NAME_WIDTH, WIDEST_NAME = 12, 40
"""The least and the largest width of a contestant's name; a longer one goes on in the next line."""


def tables_of(comparison: Comparison, width: int | None = None) -> list[Table]:
    """Scores, differences if there are several contestants, costs, and costs to the target if there is one.

    Where `width` has no room for all columns, the least important ones are left out, and a line below says so.
    """
    costs = ("FLOPs", "seconds")
    tables = [with_room(lambda without: _scores(comparison, without), ("std", "decile", "before"), width)]
    if len(comparison.lines) > 1:
        least = ("decile", "ahead", "over users")
        tables.append(with_room(lambda without: _differences(comparison, without), least, width))
    tables.append(with_room(lambda without: _costs(comparison, without), costs, width))
    if comparison.target is not None:
        tables.append(with_room(lambda without: _to_target(comparison, without), costs, width))
    return tables


def with_room(make: Callable[[Collection[str]], Table], least: Sequence[str], width: int | None) -> Table:
    """The table that `make` makes without as many of the `least` important columns as have no room in `width`.

    Rich would cut the contestants' names, and numbers in the middle.
    """
    table = make(())
    for count in range(1, len(least) + 1):
        if width is None or _least_width(table) <= width:
            break
        table = make(least[:count])
        table.caption = f"no room here for: {', '.join(least[:count])}"
        table.caption_justify = "left"
    if width is not None:  # Rich would share what is missing between the names and the other columns
        table.columns[0].max_width = min(WIDEST_NAME, max(NAME_WIDTH, NAME_WIDTH + width - _least_width(table)))
    return table


def _least_width(table: Table) -> int:
    """The columns that the table needs if names are folded and nothing else is cut; one blank between columns."""
    return NAME_WIDTH + sum(1 + _column_width(column) for column in table.columns[1:])


def _column_width(column: Column) -> int:
    """The width of its longest line, where nothing says that it may be less."""
    lines = (line for text in (column.header, *column.cells) for line in str(text).splitlines())
    return min(max(map(cell_len, lines), default=0), column.max_width or WIDEST_NAME)


def _scores(comparison: Comparison, without: Collection[str]) -> Table:
    seeds = max(len(line.seeds) for line in comparison.lines)
    spread = f", mean ± half of the 95 % interval over {seeds} seeds" if seeds > 1 else ""
    lower = ", lower is better" if comparison.lower_is_better else ""
    table = contestants_table(f"{comparison.metric} on the {comparison.part} part{lower}{spread}")
    kinds = [kind for kind in KINDS if any(f"{kind}_after" in line.scores for line in comparison.lines)]
    headings = [heading for heading in ("before", "after", "decile", "std") if heading not in without]
    for kind in kinds:
        for place, heading in enumerate(headings):
            words = comparison.decile(kind).replace(" ", "\n", 1) if heading == "decile" else f"\n{heading}"
            table.add_column(f"{kind}{words}" if place == 0 else words, justify="right", no_wrap=True)
    for line in comparison.lines:
        cells = [_user_cells(line, kind) for kind in kinds]
        table.add_row(line.label, *(each[heading] for each in cells for heading in headings))
    return table


def _user_cells(line: Line, kind: str) -> dict[str, str]:
    before, after = line.scores.get(f"{kind}_before"), line.scores.get(f"{kind}_after")
    if before is None or after is None:
        return dict.fromkeys(("before", "after", "decile", "std"), "-")
    return {
        "before": _short(before["mean"].value),
        "after": _with_half(after["mean"]),
        "decile": _short(after["bottom_decile"].value),
        "std": _short(after["std"].value),
    }


def _differences(comparison: Comparison, without: Collection[str]) -> Table:
    """A line for each contestant and kind of user."""
    table = contestants_table(
        f"after fine-tuning, minus {comparison.reference}; 95 % intervals over seeds (t), users (bootstrap)"
    )
    table.add_column("users", no_wrap=True)
    headings = ("mean", "over seeds", "over users", "ahead", "decile")
    shown = [heading for heading in headings if heading not in without]
    names = {
        comparison.decile(kind) for kind in KINDS if any(f"{kind}_after" in line.users for line in comparison.lines)
    }
    decile = names.pop() if len(names) == 1 else "bottom decile"
    for heading in shown:
        table.add_column(decile if heading == "decile" else heading, justify="right", no_wrap=True)
    for line in comparison.lines:
        for kind in KINDS:
            if f"{kind}_after" in line.differences:
                cells = _gain_cells(line.differences[f"{kind}_after"])
                table.add_row(line.label, kind, *(cells[heading] for heading in shown))
    return table


def _gain_cells(found: Mapping[str, Difference]) -> dict[str, str]:
    mean = found["mean"]
    return {
        "mean": signed(mean.seeds.value),
        "over seeds": interval_text(mean.seeds),
        "over users": interval_text(mean.users),
        "ahead": "-" if math.isnan(mean.ahead) else f"{mean.ahead:.0%}",
        "decile": signed(found["bottom_decile"].seeds.value),
    }


def _costs(comparison: Comparison, without: Collection[str]) -> Table:
    table = contestants_table("whole run")
    names = _cost_names(comparison, without)
    for heading in names.values():
        table.add_column(heading, justify="right")
    for line in comparison.lines:
        table.add_row(line.label, *_cost_cells(line.costs, names))
    return table


def _to_target(comparison: Comparison, without: Collection[str]) -> Table:
    table = contestants_table(
        f"to reach {comparison.metric} {comparison.target:g} (existing users after fine-tuning, validation)"
    )
    names = _cost_names(comparison, without)
    for heading in names.values():
        table.add_column(heading, justify="right")
    for line in comparison.lines:
        reached = line.reached
        assert reached is not None
        if reached.costs is not None:
            table.add_row(line.label, *_cost_cells(reached.costs, names))
        else:
            some = f" by {reached.of - reached.seeds} of {reached.of} seeds" if reached.seeds else ""
            table.add_row(line.label, f"not reached{some}")
    return table


def _cost_names(comparison: Comparison, without: Collection[str]) -> dict[str, str]:
    """The costs that are shown: time and energy of devices only where some run has them."""
    known = COSTS | {name: words for name, words in CLOCK.items() if any(line.costs[name] for line in comparison.lines)}
    return {name: words for name, words in known.items() if words not in without}


def _cost_cells(costs: dict[str, float], names: Mapping[str, str]) -> list[str]:
    return [f"{costs[name]:.1f}" if name == "seconds" else with_unit(costs[name]) for name in names]


def contestants_table(title: str) -> Table:
    """A table for a terminal that begins with the contestants' names."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("contestant", overflow="fold", min_width=NAME_WIDTH, max_width=WIDEST_NAME)
    return table


def _short(value: float) -> str:
    """.912 for 0.912."""
    return "-" if math.isnan(value) else f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def signed(value: float) -> str:
    """A difference with its sign: +.012."""
    return "-" if math.isnan(value) else f"{'+' if value >= 0 else '-'}{_short(abs(value))}"


def _with_half(estimate: Estimate) -> str:
    half = "" if math.isnan(estimate.high) else f" ±{_short(estimate.high - estimate.value)}"
    return f"{_short(estimate.value)}{half}"


def interval_text(estimate: Estimate) -> str:
    """The ends of an interval: -.170…+.451."""
    return "-" if math.isnan(estimate.low) else f"{signed(estimate.low)}…{signed(estimate.high)}"


@shows(Comparison)
def _html(comparison: Comparison) -> str:
    return tables_html(tables_of(comparison), comparison.notes)
