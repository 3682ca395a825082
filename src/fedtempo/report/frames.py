"""Scores and rounds as tidy rows: for pandas, a CSV file or Parquet.

A row of scores is one run, round, part, group and metric. Its columns:

- `run`: the run's label, by default its algorithm; `seed`: the run's seed;
- `round`: from 1; `selected`: whether the run's scores and model are of this round;
- `part`: validation or test; `group`: existing_before, existing_after, new_before or new_after (fine-tuning);
- `metric`: its name, `loss` included; `lower_is_better`: whether lower is better;
- `users`: how many were scored; `undefined`: how many have rows that the metric says nothing about;
- `mean`, `weighted_mean` (by rows), `bottom_decile`, `worst_tenth`, `worst`, `std`: over users.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.errors import OutputError, require
from fedtempo.evaluation.protocol import STATISTICS
from fedtempo.support.csv_rows import CsvRows
from fedtempo.support.display import shows
from fedtempo.support.extras import library
from fedtempo.support.files import replacing, write_atomically
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.saved import SavedResult

COLUMNS = (
    *("run", "seed", "round", "selected", "part", "group", "metric", "lower_is_better", "users", "undefined"),
    *STATISTICS,
)
Row = dict[str, Any]


def tidy_rows(history: Sequence[RoundReport], run: str, seed: int | None) -> list[Row]:
    """The scores of a run, a row per round, part, group and metric."""
    # As `RunHistory.selected`: the last round that has test scores.
    selected = next((report.round for report in reversed(history) if report.test is not None), None)
    rows: list[Row] = []
    for report in history:
        whose = {"run": run, "seed": seed, "round": report.number, "selected": report.round == selected}
        for scores in filter(None, (report.validation, report.test)):
            for group, users in scores.groups().items():
                for metric in users.values:
                    found = users.summary(metric)
                    facts = {
                        "part": scores.part,
                        "group": group,
                        "metric": metric,
                        "lower_is_better": metric in users.lower,
                        "users": int(np.count_nonzero(users.scored(metric))),
                        "undefined": int(found["undefined"]),
                    }
                    rows.append({**whose, **facts, **{name: found[name] for name in STATISTICS}})
    return rows


def tidy_csv(rows: Sequence[Row]) -> str:
    """Rows of scores as CSV; a number that is not known is an empty cell."""
    text = io.StringIO()
    writer = CsvRows(text, COLUMNS)
    writer.header()
    for row in rows:
        writer.row({n: "" if isinstance(v, float) and math.isnan(v) else v for n, v in row.items()})
    return text.getvalue()


def write_rows(rows: Sequence[Row], path: Path) -> Path:
    """Rows of scores in a file; its ending says whether it is CSV or Parquet."""
    ending = path.suffix.lower()
    require(ending in (".csv", ".parquet"), "path", "a .csv or .parquet file", str(path))
    if ending == ".csv":
        return write_atomically(path, tidy_csv(rows), "path")
    arrow = library("pyarrow", "frames", "Parquet", OutputError)
    parquet = library("pyarrow.parquet", "frames", "Parquet", OutputError)
    with replacing(path, "path") as partial:
        parquet.write_table(arrow.table({name: [row[name] for row in rows] for name in COLUMNS}), partial)
    return path


@shows(SavedResult, "frame")
@shows(Result, "frame")
def _frame(result: Result | SavedResult) -> Any:
    pandas = library("pandas", "frames", "to_frame()", OutputError)
    return pandas.DataFrame(_rows(result), columns=list(COLUMNS))


@shows(SavedResult, "history_frame")
@shows(Result, "history_frame")
def _history_frame(result: Result | SavedResult) -> Any:
    pandas = library("pandas", "frames", "history_frame()", OutputError)
    return pandas.DataFrame([_round_row(report) for report in result.history])


@shows(SavedResult, "frame_file")
@shows(Result, "frame_file")
def _frame_file(result: Result | SavedResult, path: Path) -> Path:
    return write_rows(_rows(result), path)


def _rows(result: Result | SavedResult) -> list[Row]:
    if isinstance(result, SavedResult):
        return tidy_rows(result.history, str(result.summary["algorithm"]), int(result.identity["seed"]))
    federation = result.experiment.federation
    return tidy_rows(result.history, repr(federation.algorithm), federation.problem.seed)


def _round_row(report: RoundReport) -> Row:
    """A round's loss, who took part, what it cost, and the running total of every cost."""
    return {
        "round": report.number,
        "loss": report.loss,
        "clients": None if report.private else len(report.clients),
        "failures": len(report.failures),
        "abandoned": report.abandoned,
        "seconds": report.seconds,
        "time": report.time,
        "energy": report.energy,
        "total_time": report.total_time,
        "total_energy": report.total_energy,
        **vars(report.costs),
        **{f"total_{name}": value for name, value in vars(report.total_costs).items()},
        **report.measurements,
    }
