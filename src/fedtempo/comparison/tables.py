"""The tables of a comparison: scores, differences to the reference, costs of whole runs and to a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fedtempo.comparison.comparison import Comparison, Difference, Line
from fedtempo.comparison.significance import Method, paired_tests, smallest_p
from fedtempo.comparison.targets import CLOCK, COSTS
from fedtempo.evaluation.over_seeds import Estimate
from fedtempo.report.notebook import tables_html
from fedtempo.report.tables import KINDS, ScoredRow, scores_table
from fedtempo.support.display import shows
from fedtempo.support.table import Cell, Ends, Number, ResultTable, TableColumn


def tables_of(comparison: Comparison) -> list[ResultTable]:
    """Scores, differences if there are several contestants, costs, and costs to the target if there is one."""
    tables = [table_of(comparison)]
    if len(comparison.lines) > 1:
        tables.append(_differences(comparison))
    tables.append(_costs("whole run", comparison, lambda line: line.costs))
    if comparison.target is not None:
        title = f"to reach {comparison.metric} {comparison.target:g} (existing users after fine-tuning, validation)"
        tables.append(_costs(title, comparison, _to_target))
    return tables


def table_of(comparison: Comparison, digits: int = 3) -> ResultTable:
    """The scores of a comparison; every other statistic and the costs can be chosen."""
    return _scores(comparison, None, digits)


def paper_table(comparison: Comparison, test: Method = "t", digits: int = 3) -> ResultTable:
    """The table for a paper: before, after, bottom decile and p of the paired test against the reference."""
    table = _scores(comparison, test, digits)
    wanted = ("_before/mean", "_after/mean", "_after/bottom_decile", "_after/p")
    return table.choose(*(column.key for column in table.columns if column.key.endswith(wanted)))


def interval_of(estimate: Estimate) -> Ends:
    """The two ends of an estimate's interval."""
    return Ends(estimate.low, estimate.high)


def _scores(comparison: Comparison, test: Method | None, digits: int) -> ResultTable:
    rows = [
        ScoredRow(
            line.label,
            {
                group: {s: dict(zip(line.seeds, values, strict=True)) for s, values in found.items()}
                for group, found in line.by_seed.items()
            },
            {group: [count] for group, count in line.users.items()},
            {name: [line.costs[name]] for name in _cost_names(comparison) if name in line.costs},
        )
        for line in comparison.lines
    ]
    lower = ", lower is better" if comparison.lower_is_better else ""
    title = f"{comparison.metric} on the {comparison.part} part{lower}"
    tests = [] if test is None else [one for one in paired_tests(comparison, test) if not math.isnan(one.p)]
    notes = []
    if tests:
        methods = " and ".join(sorted({_in_words(one.method) for one in tests}))
        against = f"against {comparison.reference}, two-sided, Holm-corrected over {len(tests)} tests"
        notes.append(f"p: {methods} {against}")
        floor = smallest_p(tests)
        notes += [] if floor is None else [f"With {floor[0]} seeds an uncorrected p is at least {floor[1]:.3g}"]
    p_values = {(one.label, one.group): one.corrected for one in tests} or None
    return scores_table(
        title, rows, comparison.lower_is_better, notes=notes, p_values=p_values, costs_shown=False, digits=digits
    )


def _in_words(method: str) -> str:
    return "paired t test" if method == "t" else "exact sign-flip test"


def _differences(comparison: Comparison) -> ResultTable:
    """A line for each contestant and kind of user."""
    kinds = [kind for kind in KINDS if any(f"{kind}_after" in line.differences for line in comparison.lines)]
    names = {comparison.decile(kind) for kind in kinds if any(f"{kind}_after" in one.users for one in comparison.lines)}
    columns = [
        TableColumn("users", "users", words=True),
        TableColumn("mean", "mean"),
        TableColumn("over_seeds", "over seeds"),
        TableColumn("over_users", "over users", left_out=3),
        TableColumn("ahead", "ahead", left_out=2),
        TableColumn("bottom_decile", names.pop() if len(names) == 1 else "bottom decile", left_out=1),
    ]
    rows = [
        (line.label, {"users": kind, **_gains(line.differences[f"{kind}_after"])})
        for line in comparison.lines
        for kind in KINDS
        if f"{kind}_after" in line.differences
    ]
    title = f"after fine-tuning, minus {comparison.reference}; 95 % intervals over seeds (t), users (bootstrap)"
    return ResultTable(title, columns, rows)


def _gains(found: Mapping[str, Difference]) -> dict[str, Cell]:
    mean = found["mean"]
    return {
        "mean": Number(mean.seeds.value, "signed"),
        "over_seeds": interval_of(mean.seeds),
        "over_users": interval_of(mean.users),
        "ahead": Number(mean.ahead, "share"),
        "bottom_decile": Number(found["bottom_decile"].seeds.value, "signed"),
    }


def _costs(title: str, comparison: Comparison, costs: Callable[[Line], Mapping[str, float] | str]) -> ResultTable:
    names = _cost_names(comparison)
    drop = {"flops": 1, "seconds": 2}
    columns = [TableColumn(name, words, left_out=drop.get(name, 0)) for name, words in names.items()]
    rows: list[tuple[str, Mapping[str, Cell]]] = []
    for line in comparison.lines:
        found = costs(line)
        if isinstance(found, str):
            rows.append((line.label, {next(iter(names)): found}))
            continue
        rows.append((line.label, {n: Number(found[n], "seconds" if n == "seconds" else "count") for n in names}))
    return ResultTable(title, columns, rows)


def _to_target(line: Line) -> Mapping[str, float] | str:
    reached = line.reached
    assert reached is not None
    some = f" by {reached.of - reached.seeds} of {reached.of} seeds" if reached.seeds else ""
    return f"not reached{some}" if reached.costs is None else reached.costs


def _cost_names(comparison: Comparison) -> dict[str, str]:
    """The costs that are shown: time and energy of devices only where some run has them."""
    clock = {name: words for name, words in CLOCK.items() if any(line.costs.get(name) for line in comparison.lines)}
    return COSTS | clock


@shows(Comparison)
def _html(comparison: Comparison) -> str:
    return tables_html(tables_of(comparison), comparison.notes)
