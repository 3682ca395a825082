"""Tables: runs side by side, averaged over seeds."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from statistics import fmean, pstdev
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from fedtempo.result import Result

GROUPS = {"existing_initial": "existing, initial", "existing_tuned": "existing, tuned", "new_initial": "new, initial", "new_tuned": "new, tuned"}
STATISTICS = {"mean": "mean", "bottom_decile": "bottom 10%", "std": "std"}
COSTS = {"bytes": "bytes", "steps": "steps", "flops": "FLOPs"}


@dataclass(frozen=True)
class Row:
    """One algorithm: every number with one entry per seed."""

    label: str
    values: dict[str, list[float]]

    def text(self, column: str) -> str:
        """Mean over seeds, with the spread where there are several; large numbers with a unit."""
        values = self.values.get(column)
        if not values:
            return "-"
        if column in COSTS:
            return with_unit(fmean(values))
        spread = f" ±{pstdev(values):.3f}" if len(values) > 1 else ""
        return f"{fmean(values):.3f}{spread}"


def with_unit(number: float) -> str:
    """12345678 as 12.3M."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000 or unit == "P":
            return f"{number:.0f}{unit}" if unit == "" else f"{number:.1f}{unit}"
        number /= 1000
    return str(number)


class ResultTable:
    """Existing and new users: mean, bottom decile and spread of the main metric, and costs."""

    def __init__(self, results: Iterable[Result], labels: Iterable[str] | None = None) -> None:
        results = list(results)
        names = list(labels) if labels is not None else [repr(r.experiment.federation.algorithm) for r in results]
        grouped: dict[str, list[Result]] = {}
        for name, result in zip(names, results, strict=True):
            grouped.setdefault(name, []).append(result)
        self.rows = [Row(name, _numbers(group)) for name, group in grouped.items()]
        scored = next((r.scores for r in results if r.scores), None)
        self.metric = scored.metric if scored else "loss"
        self.title = f"{self.metric} on the {scored.part} part" if scored else "costs"

    @property
    def columns(self) -> list[str]:
        """The columns that some row has a number for, in reading order."""
        wanted = [f"{group}/{statistic}" for group in GROUPS for statistic in STATISTICS]
        return [c for c in [*wanted, *COSTS] if any(c in row.values for row in self.rows)]

    def records(self) -> list[dict[str, Any]]:
        """The table as plain data: one dict per row, a list over seeds per column."""
        return [{"label": row.label, **row.values} for row in self.rows]

    def rich(self, wide: bool = True) -> RichTable:
        """For a terminal; the narrow form has the mean and bottom decile after fine-tuning only."""
        table = RichTable(title=self.title, show_lines=False)
        table.add_column("algorithm", overflow="fold")
        columns = self.columns if wide else [c for c in self.columns if _essential(c)]
        for column in columns:
            table.add_column(_heading(column), justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(row.label, *(row.text(column) for column in columns))
        return table

    def __str__(self) -> str:
        buffer = io.StringIO()
        Console(file=buffer, width=200, force_terminal=False).print(self.rich())
        return buffer.getvalue().rstrip()

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(_heading(c)).replace(chr(10), '<br>')}</th>" for c in self.columns)
        body = "".join(
            f"<tr><td>{escape(row.label)}</td>" + "".join(f"<td>{escape(row.text(c))}</td>" for c in self.columns) + "</tr>"
            for row in self.rows
        )
        return f"<table><caption>{escape(self.title)}</caption><thead><tr><th>algorithm</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _numbers(results: list[Result]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for result in results:
        scores = result.scores
        for group, users in (scores.groups() if scores else {}).items():
            summary = users.summary(scores.metric)  # type: ignore[union-attr]
            for statistic in STATISTICS:
                values.setdefault(f"{group}/{statistic}", []).append(summary[statistic])
        for cost in COSTS:
            values.setdefault(cost, []).append(float(getattr(result.costs, cost)))
    return values


def _essential(column: str) -> bool:
    return column in COSTS or column.endswith(("tuned/mean", "tuned/bottom_decile"))


def _heading(column: str) -> str:
    if column in COSTS:
        return COSTS[column]
    group, statistic = column.split("/")
    return f"{GROUPS[group]}\n{STATISTICS[statistic]}"
