"""What a search found: the table of trials, importances, and the winning experiment file."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from fedtempo.config import dump, fingerprint
from fedtempo.errors import TrainingError
from fedtempo.report import REPORT, Bars, Grid, Lines, Section, report
from fedtempo.support.csv_rows import CsvRows
from fedtempo.support.files import write_atomically
from fedtempo.support.json_text import JsonTable, finite
from fedtempo.tuning.study import Record, SearchPlan

FACTS = ("state", "value", "rounds", "best_round", "seconds", "reason")


@dataclass(frozen=True)
class Found:
    """A finished search. A trial's value is its best validation score: the mean over existing users, fine-tuned."""

    plan: SearchPlan
    records: list[Record]
    importances: dict[str, float]

    @property
    def best(self) -> Record:
        """The finished trial with the best score; of equals, the first."""
        finished = [record for record in self.records if record.outcome.state == "complete"]
        if not finished:
            reasons = [record.outcome.reason for record in self.records if record.outcome.reason]
            raise TrainingError(f"no trial finished. {reasons[0] if reasons else 'There was none.'}")
        return min(finished, key=self._rank)

    def rows(self) -> list[JsonTable]:
        """The table as plain data, by number."""
        return [
            {"trial": record.number, **record.values, **{f: finite(getattr(record.outcome, f)) for f in FACTS}}
            for record in self.records
        ]

    def as_dict(self) -> JsonTable:
        """Everything as plain data."""
        best = self.best
        return {
            "method": self.plan.method,
            "metric": self.plan.metric,
            "lower_is_better": self.plan.lower_is_better,
            "seeds": self.plan.seeds,
            "best": {"trial": best.number, "values": best.values, "value": best.outcome.value},
            "importances": self.importances,
            "trials": self.rows(),
        }

    def best_file(self) -> str:
        """The winning experiment file, ready for `fedtempo run`."""
        best, plan = self.best, self.plan
        file = plan.space.experiment(best.values)
        chosen = "".join(f"#   {name} = {json.dumps(value)}\n" for name, value in best.values.items())
        return (
            f"# The best of {len(self.records)} trials ({plan.method}): trial {best.number}, validation {plan.metric} "
            f"{best.outcome.value:.4f} over {plan.seeds} seed(s), in round {best.outcome.best_round}.\n"
            f"{chosen}# sha256 {fingerprint(file)}\n{dump(file)}"
        )

    def write(self, folder: Path) -> None:
        """Leave `best.toml`, `trials.csv`, `summary.json` and `report.html` in the folder."""
        files = {
            "trials.csv": self.csv(),
            "summary.json": json.dumps(self.as_dict(), indent=1) + "\n",
            "best.toml": self.best_file(),
            REPORT: self.page(),
        }
        for name, text in files.items():
            write_atomically(folder / name, text, "out")

    def page(self) -> str:
        """The search as a report page."""
        best, names = self.best, [dimension.name for dimension in self.plan.space.dimensions]
        ranked = sorted(self.records, key=self._rank)
        rows = [
            [
                one.number,
                *(_text(one.values.get(name)) for name in names),
                *(finite(getattr(one.outcome, f)) for f in FACTS),
            ]
            for one in ranked
        ]
        finished = [(float(one.number), one.outcome.value) for one in self.records if one.outcome.state == "complete"]
        return report(
            [],
            title=f"{len(self.records)} trials of {self.plan.method}: the best is trial {best.number}",
            sections=[
                Section("The winning experiment", self.best_file()),
                Section(f"What validation {self.plan.metric} depends on", figure=Bars(self.importances)),
                Section(
                    f"Validation {self.plan.metric} of the trials",
                    figure=Lines({"finished trials": finished}, "trial", self.plan.metric),
                ),
                Section("All trials, best first", table=Grid(["trial", *names, *FACTS], rows)),
            ],
        )

    def csv(self) -> str:
        """One line per trial; values that are no plain numbers or words are JSON."""
        names = [dimension.name for dimension in self.plan.space.dimensions]
        text = io.StringIO()
        writer = CsvRows(text, ["trial", *names, *FACTS])
        writer.header()
        for row in self.rows():
            writer.row({name: _cell(value) for name, value in row.items()})
        return text.getvalue()

    def table(self, most: int = 20) -> Table:
        """The best trials for a terminal, then those that ended early or failed."""
        names = [dimension.name for dimension in self.plan.space.dimensions]
        shown = sorted(self.records, key=self._rank)[:most]
        title = f"{len(shown)} of {len(self.records)} trials" if len(shown) < len(self.records) else None
        table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
        headings = (*(_heading(name, names) for name in names), self.plan.metric)
        for heading in ("trial", *headings, "rounds", "seconds", ""):
            table.add_column(heading, justify="right" if heading else "left", overflow="fold")
        for record in shown:
            outcome = record.outcome
            score = "-" if math.isnan(outcome.value) else f"{outcome.value:.4f}"
            state = "" if outcome.state == "complete" else f"{outcome.state} {outcome.reason}".strip()
            values = (_text(record.values.get(name)) for name in names)
            table.add_row(str(record.number), *values, score, str(outcome.rounds), f"{outcome.seconds:.1f}", state)
        return table

    def _rank(self, record: Record) -> tuple[bool, float, int]:
        """Finished trials first, the best first; of equals, the first that was tried."""
        value = record.outcome.value if self.plan.lower_is_better else -record.outcome.value
        return record.outcome.state != "complete", math.inf if math.isnan(value) else value, record.number


def line_of(record: Record, done: int, total: int) -> str:
    """A trial that has just ended, in one line."""
    outcome = record.outcome
    values = ", ".join(f"{name} {_text(value)}" for name, value in record.values.items())
    ended = outcome.reason if outcome.state == "failed" else f"{outcome.value:.4f} after {outcome.rounds} rounds"
    return f"{done}/{total}: trial {record.number} {outcome.state}: {values}: {ended} ({outcome.seconds:.1f} s)"


def _heading(name: str, names: list[str]) -> str:
    """The last word of a field, where that says which one it is."""
    last = name.rsplit(".", 1)[-1]
    return last if sum(other.rsplit(".", 1)[-1] == last for other in names) == 1 else name


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(_cell(value))


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, Mapping, bool)) else value
