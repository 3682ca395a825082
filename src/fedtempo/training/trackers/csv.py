"""One row of comma-separated values per round, for a spreadsheet, written as the rounds end."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedtempo.support.csv_rows import CsvRows, csv_cell
from fedtempo.support.files import OWNERS, replacing
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.trackers.lines import whole_lines
from fedtempo.training.trackers.numbers import numbers
from fedtempo.training.tracking import RunInfo, Tracker


def csv(path: str | Path | None = None) -> Tracker:
    """A table in `path`, by default `rounds.csv` in the run folder. Numbers that a round lacks are empty."""
    return CommaSeparated(None if path is None else Path(path))


def rounds_as_csv(history: Iterable[RoundReport]) -> str:
    """The rounds of a finished run as one table."""
    rows = [{"round": report.number, **numbers(report)} for report in history]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return _rows(columns, [{name: name for name in columns}, *rows])


class CommaSeparated:
    """A row per round. The first evaluation brings new columns; the file is then written again, with them."""

    name = "csv"

    def __init__(self, path: Path | None) -> None:
        self._given = path
        self._path = Path()
        self._columns: list[str] = []

    def start(self, run: RunInfo) -> int:
        """Keep the whole rows of a resumed run."""
        self._path = run.place(self._given, "rounds.csv", self.name)
        lines, first = whole_lines(self._path, self.name)
        self._columns = next(csv_format.reader([first]), [])
        return max(0, lines - 1)

    def round(self, report: RoundReport) -> None:
        """Append a row."""
        row = {str(csv_cell(name)): value for name, value in {"round": report.number, **numbers(report)}.items()}
        new = [name for name in row if name not in self._columns]
        if new:
            self._widen(new)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(_rows(self._columns, [row]))

    def end(self, result: Result | None) -> None:
        """Nothing is open."""

    def _widen(self, new: list[str]) -> None:
        """The same rows with more columns; a reader sees the old file or the new one."""
        self._columns += new
        with (
            self._path.open(encoding="utf-8", newline="") as file,
            replacing(self._path, mode=OWNERS) as partial,
            partial.open("w", encoding="utf-8", newline="") as wider,
        ):
            table = CsvRows(wider, self._columns)
            table.header()
            table.rows(csv_format.DictReader(file))


def _rows(columns: list[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    CsvRows(text, columns).rows(rows)
    return text.getvalue()
