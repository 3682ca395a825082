"""Tables: runs side by side, averaged over seeds."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import Protocol

from rich.table import Table as RichTable

from fedtempo.evaluation.over_seeds import half_width
from fedtempo.evaluation.protocol import Scores, decile_in_words
from fedtempo.federation.costs import Costs
from fedtempo.support.display import shows
from fedtempo.support.json_text import JsonTable
from fedtempo.support.terminal import Terminal
from fedtempo.training.labels import names_of_results
from fedtempo.training.result import Result
from fedtempo.training.round_report import RunHistory
from fedtempo.training.saved import SavedResult

GROUPS = {
    "existing_before": "existing, before",
    "existing_after": "existing, after",
    "new_before": "new, before",
    "new_after": "new, after",
}
STATISTICS = {"mean": "mean", "bottom_decile": "bottom decile", "std": "std"}
KINDS = ("existing", "new")
WIDE = 170
ROOM_FOR_SPREAD = 90
ROOM_FOR_COSTS = 76
COSTS = {"bytes": "bytes", "steps": "steps", "flops": "FLOPs"}


class Scored(Protocol):
    """What a row is made of: a result, or a run as a report knows it."""

    @property
    def scores(self) -> Scores | None:
        """The scores that count."""
        ...

    @property
    def costs(self) -> Costs:
        """What it cost."""
        ...


@dataclass(frozen=True)
class Row:
    """One algorithm: every number with one entry per seed."""

    label: str
    values: dict[str, list[float]]

    def text(self, column: str, spread: bool = True) -> str:
        """Mean over seeds, with half of its 95 % interval where there are several; large numbers with a unit."""
        values = self.values.get(column)
        if not values:
            return "-"
        if column in COSTS:
            return with_unit(fmean(values))
        half = half_width(values) if spread else math.inf
        return f"{fmean(values):.3f}{f' ±{half:.3f}' if math.isfinite(half) else ''}"


def with_unit(number: float) -> str:
    """12345678 as 12M, 1234567 as 1.2M."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000 or unit == "P":
            return f"{number:.0f}{unit}" if unit == "" or abs(number) >= 10 else f"{number:.1f}{unit}"
        number /= 1000
    return str(number)


class ResultTable:
    """Existing and new users: mean, bottom decile and spread of the main metric, and costs."""

    def __init__(self, results: Iterable[Scored], labels: Iterable[str] | None = None) -> None:
        results = list(results)
        names = list(labels) if labels is not None else _names(results)
        grouped: dict[str, list[Scored]] = {}
        for name, result in zip(names, results, strict=True):
            grouped.setdefault(name, []).append(result)
        self.rows = [Row(name, _numbers(group)) for name, group in grouped.items()]
        scored = next((r.scores for r in results if r.scores), None)
        self.metric = scored.metric if scored else "loss"
        self._deciles = {kind: decile_in_words(_users(results, kind)) for kind in KINDS}
        self.title = (
            f"{self.metric} on the {scored.part} part{direction(scored)}{_which_round(results)}" if scored else "costs"
        )
        told = {text: None for result in results if result.scores and (text := result.scores.undefined())}
        self.notes = list(told)
        """What the numbers leave out."""

    @property
    def columns(self) -> list[str]:
        """The columns that some row has a number for, in reading order."""
        wanted = [f"{group}/{statistic}" for group in GROUPS for statistic in STATISTICS]
        return [c for c in [*wanted, *COSTS] if any(c in row.values for row in self.rows)]

    def records(self) -> list[JsonTable]:
        """The table as plain data: one dict per row, a list over seeds per column."""
        return [{"label": row.label, **row.values} for row in self.rows]

    def rich(self, width: int = 200) -> RichTable:
        """For a terminal. Where it is narrow, the mean before and after fine-tuning share a column.

        Below 90 columns the spread over users is left out, so that no cost falls off the edge. Below 76 the costs are
        left out too, so that the algorithms keep their names; the caption says so.
        """
        if width >= WIDE:
            return self._wide()
        return self._narrow(spread=width >= ROOM_FOR_SPREAD, costs=width >= ROOM_FOR_COSTS)

    def _wide(self) -> RichTable:
        table = RichTable(title=self.title + self._spread, caption=self._caption, caption_justify="left")
        table.add_column("algorithm", overflow="fold", max_width=60)
        for column in self.columns:
            table.add_column(self._heading(column), justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(row.label, *(row.text(column) for column in self.columns))
        return table

    def _heading(self, column: str) -> str:
        if column in COSTS:
            return COSTS[column]
        group, statistic = column.split("/")
        words = self._deciles[group.split("_")[0]] if statistic == "bottom_decile" else STATISTICS[statistic]
        return f"{GROUPS[group]}\n{words}"

    def _narrow(self, spread: bool, costs: bool) -> RichTable:
        shape = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False}
        users = [kind for kind in KINDS if f"{kind}_after/mean" in self.columns]
        shown_costs = COSTS if costs or not users else {}
        left_out = () if shown_costs else (f"costs are shown from {ROOM_FOR_COSTS} columns on",)
        caption = "; ".join([*self.notes, *left_out]) or None
        table = RichTable(title=self.title, caption=caption, caption_justify="left", **shape)  # type: ignore[arg-type]
        table.add_column("\nalgorithm", overflow="fold", min_width=12, max_width=40)
        for kind in users:
            decile = self._deciles[kind].replace(" ", "\n", 1)
            for heading in (f"{kind}\nbefore→after", decile, "\nstd")[: 3 if spread else 2]:
                table.add_column(heading, justify="right", no_wrap=True)
        for heading in shown_costs.values():
            table.add_column(f"\n{heading}", justify="right", no_wrap=True)
        for row in self.rows:
            cells = [cell for kind in users for cell in _user_cells(row, kind)[: 3 if spread else 2]]
            table.add_row(row.label, *cells, *(row.text(cost) for cost in shown_costs))
        return table

    def __str__(self) -> str:
        buffer = io.StringIO()
        Terminal(file=buffer, width=110, force_terminal=False).print(self.rich(width=110))
        return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())

    @property
    def _spread(self) -> str:
        """What ± is, where some row has several seeds."""
        several = any(len(values) > 1 for row in self.rows for values in row.values.values())
        return ", mean ± half of the 95 % interval over seeds" if several else ""

    @property
    def _caption(self) -> str | None:
        return "; ".join(self.notes) or None

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(self._heading(c)).replace(chr(10), '<br>')}</th>" for c in self.columns)
        body = "".join(
            f"<tr><td>{escape(row.label)}</td>"
            + "".join(f"<td>{escape(row.text(c))}</td>" for c in self.columns)
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape('. '.join([self.title + self._spread, *self.notes]))}</caption>"
        return f"<table>{caption}<thead><tr><th>algorithm</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def direction(scores: Scores) -> str:
    """Said only where it would surprise: that lower is better."""
    return ", lower is better" if scores.lower_is_better else ""


def _which_round(results: list[Scored]) -> str:
    """Which round the scores, and the model that is handed out, are of."""
    runs = [(run.selected, len(run.history)) for run in results if isinstance(run, RunHistory)]
    selected = {(report.round + 1, rounds) for report, rounds in runs if report is not None and report.selects}
    if not selected:
        return ""
    if len(results) > 1:
        return ", each run in the round that validation selected"
    ((number, rounds),) = selected
    return f", round {number} of {rounds}, selected by validation"


def _names(results: list[Scored]) -> list[str]:
    known = [result for result in results if isinstance(result, (Result, SavedResult))]
    return names_of_results(known) if len(known) == len(results) else ["run"] * len(results)


def _users(results: list[Scored], kind: str) -> list[int]:
    """How many users of a kind each run has scored."""
    groups = [(run.scores, run.scores.groups().get(f"{kind}_after")) for run in results if run.scores]
    return [int(users.scored(scores.metric).sum()) for scores, users in groups if users is not None]


def _numbers(results: list[Scored]) -> dict[str, list[float]]:
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


def _user_cells(row: Row, kind: str) -> tuple[str, str, str]:
    before, after = (row.text(f"{kind}_{when}/mean", spread=False) for when in ("before", "after"))
    decile, deviation = (row.text(f"{kind}_after/{s}", spread=False) for s in ("bottom_decile", "std"))
    short = [text.removeprefix("0") if text.startswith("0.") else text for text in (before, after, decile, deviation)]
    return f"{short[0]}→{short[1]}", short[2], short[3]


@shows(SavedResult, "table")
@shows(Result, "table")
def _table_of(result: Result | SavedResult) -> ResultTable:
    return ResultTable([result])
