"""A comparison for a terminal: scores, differences to the reference, costs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from fedtempo.comparison.comparison import Comparison, Difference, Line
from fedtempo.comparison.intervals import Estimate
from fedtempo.comparison.targets import CLOCK, COSTS
from fedtempo.report.notebook import tables_html
from fedtempo.report.tables import with_unit
from fedtempo.support.display import shows

KINDS = ("existing", "new")


def tables_of(comparison: Comparison) -> list[Table]:
    """Scores, differences if there are several contestants, costs, and costs to the target if there is one."""
    tables = [_scores(comparison)]
    if len(comparison.lines) > 1:
        tables.append(_differences(comparison))
    tables.append(_costs(comparison))
    if comparison.target is not None:
        tables.append(_to_target(comparison))
    return tables


def _scores(comparison: Comparison) -> Table:
    seeds = max(len(line.seeds) for line in comparison.lines)
    spread = f", mean ± 95 % interval over {seeds} seeds" if seeds > 1 else ""
    lower = ", lower is better" if comparison.lower_is_better else ""
    table = _table(f"{comparison.metric} on the {comparison.part} part{lower}{spread}")
    kinds = [kind for kind in KINDS if any(f"{kind}_after" in line.scores for line in comparison.lines)]
    for kind in kinds:
        for heading in (f"{kind}\nbefore", "\nafter", "\nworst10%", "\nstd"):
            table.add_column(heading, justify="right", no_wrap=True)
    for line in comparison.lines:
        table.add_row(line.label, *(cell for kind in kinds for cell in _user_cells(line, kind)))
    return table


def _user_cells(line: Line, kind: str) -> tuple[str, str, str, str]:
    before, after = line.scores.get(f"{kind}_before"), line.scores.get(f"{kind}_after")
    if before is None or after is None:
        return "-", "-", "-", "-"
    plain = (_short(after[name].value) for name in ("bottom_decile", "std"))
    return _short(before["mean"].value), _with_half(after["mean"]), *plain  # type: ignore[return-value]


def _differences(comparison: Comparison) -> Table:
    """A line for each contestant and kind of user."""
    table = _table(f"after fine-tuning, minus {comparison.reference}; 95 % intervals over seeds (t), users (bootstrap)")
    table.add_column("users")
    for heading in ("mean", "over seeds", "over users", "ahead", "worst10%"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in comparison.lines:
        for kind in KINDS:
            if f"{kind}_after" in line.differences:
                table.add_row(line.label, kind, *_gain_cells(line.differences[f"{kind}_after"]))
    return table


def _gain_cells(found: Mapping[str, Difference]) -> list[str]:
    mean = found["mean"]
    ahead = "-" if math.isnan(mean.ahead) else f"{mean.ahead:.0%}"
    low = signed(found["bottom_decile"].seeds.value)
    return [signed(mean.seeds.value), interval_text(mean.seeds), interval_text(mean.users), ahead, low]


def _costs(comparison: Comparison) -> Table:
    table = _table("whole run")
    names = _cost_names(comparison)
    for heading in names.values():
        table.add_column(heading, justify="right")
    for line in comparison.lines:
        table.add_row(line.label, *_cost_cells(line.costs, names))
    return table


def _to_target(comparison: Comparison) -> Table:
    table = _table(f"to reach {comparison.metric} {comparison.target:g} (existing users after fine-tuning, validation)")
    names = _cost_names(comparison)
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


def _cost_names(comparison: Comparison) -> dict[str, str]:
    """The costs that are shown: time and energy of devices only where some run has them."""
    return COSTS | {name: words for name, words in CLOCK.items() if any(line.costs[name] for line in comparison.lines)}


def _cost_cells(costs: dict[str, float], names: Mapping[str, str]) -> list[str]:
    return [f"{costs[name]:.1f}" if name == "seconds" else with_unit(costs[name]) for name in names]


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("contestant", overflow="fold", min_width=12, max_width=40)
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
