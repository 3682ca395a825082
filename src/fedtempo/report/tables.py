"""The table of results: existing and new users before and after fine-tuning, over seeds, and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedtempo.evaluation.over_seeds import half_width, level_with_best
from fedtempo.evaluation.protocol import STATISTICS, Scores, decile_in_words
from fedtempo.federation.costs import Costs
from fedtempo.support.display import shows
from fedtempo.support.table import Cell, Form, Number, ResultTable, TableColumn, mean_over_seeds
from fedtempo.training.labels import names_of_results
from fedtempo.training.result import Result
from fedtempo.training.round_report import RunHistory
from fedtempo.training.saved import SavedResult

KINDS = ("existing", "new")
TIMES = ("before", "after")
COSTS = {"bytes": "bytes", "steps": "steps", "flops": "FLOPs"}
HEADS = {"weighted_mean": "mean by rows", "worst_tenth": "worst tenth", "worst": "worst", "std": "std"}
USUAL = {
    "before/mean": 3,
    "after/mean": 0,
    "after/bottom_decile": 2,
    "after/std": 1,
}
"""The statistics that are shown unless others are chosen, and the order in which a narrow terminal goes without."""
SPREAD = "mean ± half of the 95 % interval over {} seeds"


class Scored(Protocol):
    """What a row is made of: a result, or a run."""

    @property
    def scores(self) -> Scores | None:
        """The scores that count."""
        ...

    @property
    def costs(self) -> Costs:
        """What it cost."""
        ...


@dataclass(frozen=True)
class ScoredRow:
    """One row: statistics by group and name, each by seed; how many users each group has; costs."""

    label: str
    scores: Mapping[str, Mapping[str, Mapping[int, float]]]
    users: Mapping[str, Sequence[int]] = field(default_factory=dict)
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)


def result_table(results: Iterable[Scored], labels: Iterable[str] | None = None) -> ResultTable:
    """Results side by side; those with the same label, such as several seeds, are averaged."""
    results = list(results)
    names = list(labels) if labels is not None else _names(results)
    grouped: dict[str, list[Scored]] = {}
    for name, result in zip(names, results, strict=True):
        grouped.setdefault(name, []).append(result)
    scored = next((run.scores for run in results if run.scores), None)
    title = "costs"
    if scored is not None:
        lower = ", lower is better" if scored.lower_is_better else ""
        title = f"{scored.metric} on the {scored.part} part{lower}{_which_round(results)}"
    rows = [_row(name, group) for name, group in grouped.items()]
    told = {text: None for run in results if run.scores and (text := run.scores.undefined())}
    return scores_table(title, rows, scored is not None and scored.lower_is_better, notes=list(told), names="algorithm")


def scores_table(
    title: str,
    rows: Sequence[ScoredRow],
    lower_is_better: bool,
    *,
    notes: Sequence[str] = (),
    names: str = "contestant",
    p_values: Mapping[tuple[str, str], float] | None = None,
    costs_shown: bool = True,
    digits: int = 3,
) -> ResultTable:
    """Every statistic of every group, p of the paired tests by label and group, and costs: all can be chosen."""
    columns: list[TableColumn] = []
    cells: list[dict[str, Cell]] = [{} for _ in rows]
    for kind in KINDS:
        counts = [count for row in rows for count in row.users.get(f"{kind}_after", ())]
        for time in TIMES:
            group = f"{kind}_{time}"
            for statistic in STATISTICS if any(group in row.scores for row in rows) else ():
                found = [row.scores.get(group, {}).get(statistic, {}) for row in rows]
                if not any(found):
                    continue
                order = USUAL.get(f"{time}/{statistic}")
                head = decile_in_words(counts) if statistic == "bottom_decile" else HEADS.get(statistic, time)
                bare = f"{time}/{statistic}" != "after/mean"
                columns.append(
                    TableColumn(f"{group}/{statistic}", head, kind, order is not None, order or 0, bare=bare)
                )
                level = level_with_best(found, lower_is_better or statistic == "std") if len(rows) > 1 else [False]
                for row, by_seed, best in zip(cells, found, level, strict=True):
                    row[columns[-1].key] = _number(list(by_seed.values()), best)
        if p_values is not None and any(group == f"{kind}_after" for _, group in p_values):
            columns.append(TableColumn(f"{kind}_after/p", "p", kind))
            for scored, row in zip(rows, cells, strict=True):
                p = p_values.get((scored.label, f"{kind}_after"))
                row[columns[-1].key] = None if p is None else Number(p, "p")
    for cost in dict.fromkeys(name for row in rows for name in row.costs):
        columns.append(TableColumn(cost, COSTS.get(cost, cost), shown=costs_shown and cost in COSTS, left_out=4))
        form: Form = "seconds" if cost in ("seconds", "time") else "count"
        for scored, row in zip(rows, cells, strict=True):
            values = scored.costs.get(cost, ())
            row[cost] = mean_over_seeds(values, form=form) if values else None
    if not any("/" in column.key for column in columns):  # without scores, costs are all there is to see
        columns = [column._replace(left_out=0) for column in columns]
    seeds = sorted({len(values) for row in rows for each in row.scores.values() for values in each.values()})
    spread = SPREAD.format(" to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))) if seeds else ""
    labelled = [(row.label, cell) for row, cell in zip(rows, cells, strict=True)]
    return ResultTable(title, columns, labelled, notes, names, spread, digits)


def _number(values: Sequence[float], best: bool) -> Number | None:
    return mean_over_seeds(values, half_width(values), best=best) if values else None


def _row(label: str, runs: Sequence[Scored]) -> ScoredRow:
    scores: dict[str, dict[str, dict[int, float]]] = {}
    users: dict[str, list[int]] = {}
    seeds = [_seed(run) for run in runs]
    apart = None not in seeds and len(set(seeds)) == len(seeds)
    for place, run in enumerate(runs):
        seed = seeds[place] if apart else None
        for group, found in (run.scores.groups() if run.scores else {}).items():
            assert run.scores is not None
            users.setdefault(group, []).append(int(found.scored(run.scores.metric).sum()))
            for statistic, value in found.summary(run.scores.metric).items():
                if statistic in STATISTICS:
                    scores.setdefault(group, {}).setdefault(statistic, {})[place if seed is None else seed] = value
    return ScoredRow(label, scores, users, {cost: [float(getattr(run.costs, cost)) for run in runs] for cost in COSTS})


def _seed(run: Scored) -> int | None:
    """The run's seed, by which rows are paired."""
    if isinstance(run, Result):
        return run.experiment.federation.problem.seed
    seed = run.identity.get("seed") if isinstance(run, SavedResult) else getattr(run, "seed", None)
    return None if seed is None else int(seed)


def _which_round(results: Sequence[Scored]) -> str:
    """Which round the scores, and the model that is handed out, are of."""
    runs = [(run.selected, len(run.history)) for run in results if isinstance(run, RunHistory)]
    selected = {(report.number, rounds) for report, rounds in runs if report is not None and report.selects}
    if not selected:
        return ""
    if len(results) > 1:
        return ", each run in the round that validation selected"
    ((number, rounds),) = selected
    return f", round {number} of {rounds}, selected by validation"


def _names(results: Sequence[Scored]) -> list[str]:
    known = [result for result in results if isinstance(result, (Result, SavedResult))]
    return names_of_results(known) if len(known) == len(results) else ["run"] * len(results)


@shows(SavedResult, "table")
@shows(Result, "table")
def _table_of(result: Result | SavedResult) -> ResultTable:
    return result_table([result])
