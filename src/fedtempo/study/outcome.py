"""What a fair comparison found: tuned values, scores, answers and costs, beside the plan they were made by."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.publish import latex, markdown
from fedtempo.comparison.tables import contestants_table, interval_text, signed, tables_of, with_room
from fedtempo.report import REPORT, Grid, Lines, Section, report, tidy_csv, tidy_rows
from fedtempo.report.notebook import tables_html
from fedtempo.study.claims import Ruling, rulings_of
from fedtempo.study.decisions import Decision, Ending, Finding, about, validation_curve
from fedtempo.study.plan import FairPlan
from fedtempo.support.display import html_of, shows
from fedtempo.support.files import write_atomically
from fedtempo.support.json_text import JsonTable, finite
from fedtempo.training.view import Run


@dataclass(frozen=True)
class TunedValues:
    """What tuning chose for a contestant, and every trial's mean score."""

    values: Mapping[str, Any]
    score: float
    """The mean over tuning seeds of the best validation score; NaN where nothing was tuned."""
    trials: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FairComparison:
    """A finished fair comparison. `print` shows it; `as_dict`, `json` and `write` hand it on."""

    plan: FairPlan
    tuned: Mapping[str, TunedValues]
    training: Mapping[str, Ending]
    comparison: Comparison
    decisions: Sequence[Decision]
    runs: Sequence[Run]
    missing: tuple[str, ...] = ()
    """Why runs failed, a line for each; the others were judged without them."""

    @property
    def notes(self) -> list[str]:
        """What a reader should know beside the numbers."""
        own = [f"{label}: {note}" for label, one in self.tuned.items() for note in one.notes]
        return [*own, *(f"missing: {reason}" for reason in self.missing), *self.comparison.notes]

    @property
    def rulings(self) -> list[Ruling]:
        """What the study says of each of its claims, in their order."""
        return rulings_of(self.plan, self.decisions, self.comparison)

    @property
    def undecided(self) -> list[str]:
        """Why a question has no answer, and what would give one; a line for each reason."""
        lines: dict[str, list[str]] = {}
        for one in self.decisions:
            if one.finding in (Finding.UNCLEAR, Finding.SHORT):
                pair = f"{one.label} against {one.other}, {about(one.users)}"
                lines.setdefault(f"{one.finding}: {one.reason}", []).append(pair)
        return [f"{'; '.join(pairs)}: {reason}" for reason, pairs in lines.items()]

    def tables(self, width: int | None = None) -> list[Table]:
        """For a terminal: tuned values, scores, differences, costs, and the answers at the end."""
        tuned = with_room(self._tuned_table, ("last quarter", "ended early", "trials"), width)
        answers = with_room(self._answers_table, ("p, Holm", "over both", "over seeds"), width)
        return [tuned, *tables_of(self.comparison, width), *([answers] if self.decisions else [])]

    def as_dict(self) -> JsonTable:
        """Everything as plain data; a number that is not known is None."""
        found = {
            "plan": self.plan.as_dict(),
            "tuned": {label: asdict(one) for label, one in self.tuned.items()},
            "training": {label: asdict(one) for label, one in self.training.items()},
            "answers": [{**asdict(one), "finding": str(one.finding)} for one in self.decisions],
            "claims": [asdict(one) for one in self.rulings],
            "comparison": self.comparison.as_dict(),
            "notes": self.notes,
        }
        plain: dict[str, Any] = finite(found)
        return plain

    def json(self) -> str:
        """Everything as JSON."""
        return json.dumps(self.as_dict(), indent=1)

    def write(self, folder: Path) -> None:
        """Leave `fair.json`, `comparison.csv`, `.md`, `.tex`, `tidy.csv` and `report.html` in the folder."""
        rows = [row for run in self.runs for row in tidy_rows(run.history, str(run.label), run.seed)]
        files = {
            "fair.json": self.json() + "\n",
            "comparison.csv": self.comparison.csv(),
            "comparison.md": markdown(self.comparison, "t"),
            "comparison.tex": latex(self.comparison, "t"),
            "tidy.csv": tidy_csv(rows),
            REPORT: self.page(),
        }
        for name, text in files.items():
            write_atomically(folder / name, text, "out")

    def page(self) -> str:
        """The comparison as a page that needs no network."""
        curves: dict[str, list[tuple[float, float]]] = {}
        for run in self.runs:
            rounds = [float(one.round + 1) for one in run.history if one.validation is not None]
            scores = map(self.plan.in_unit, validation_curve(run))
            curves[f"{run.label}, seed {run.seed}"] = list(zip(rounds, scores, strict=True))
        answers = [
            [one.label, one.other, one.users, str(one.finding), one.seeds.value, *_ends(one), one.corrected, one.reason]
            for one in self.decisions
        ]
        heads = ["contestant", "against", "users", "answer", "difference", "over seeds", "seeds and users", "p", "why"]
        tuned = [[label, _text(one.values), _short(one.score)] for label, one in self.tuned.items()]
        claims = [[one.text, one.answer, one.reason, one.paper] for one in self.rulings]
        said = Section("Claims", table=Grid(["claim", "verdict", "why", "the paper"], claims))
        return report(
            [],
            title=self.plan.title or f"A fair comparison on {len(self.plan.seeds)} seeds",
            sections=[
                *([said] if claims else []),
                Section("Answers", table=Grid(heads, finite(answers))),
                Section("Tuned values", table=Grid(["contestant", "values", f"validation {self.plan.metric}"], tuned)),
                Section(f"Validation {self.plan.metric} by round", figure=Lines(curves, "round", self.plan.metric)),
                Section("The plan, written before the first run", "\n".join(self.plan.in_words())),
            ],
        )

    def __str__(self) -> str:
        return "\n".join([*self.plan.in_words(), *map(str, self.decisions), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return html_of(self)

    def _tuned_table(self, without: Collection[str] = ()) -> Table:
        rows = [self._tuned_cells(label) for label in self.tuned]
        shown = [heading for heading in rows[0] if heading not in without]
        table = contestants_table("tuned on validation; how the judged runs ended")
        for heading in shown:
            if heading == "values":
                table.add_column(heading, overflow="fold", max_width=20)
            else:
                table.add_column(heading, justify="right", no_wrap=True)
        for label, cells in zip(self.tuned, rows, strict=True):
            table.add_row(label, *(cells[heading] for heading in shown))
        return table

    def _tuned_cells(self, label: str) -> dict[str, str]:
        one, ended = self.tuned[label], self.training[label]
        return {
            "values": _text(one.values),
            "trials": str(len(one.trials)),
            self.plan.metric: _short(one.score),
            "ended early": f"{ended.stopped} of {ended.of}",
            "last quarter": "-" if math.isnan(ended.gain) else f"{ended.gain:+.4f}",
            "converged": "yes" if ended.converged else "no",
        }

    def _answers_table(self, without: Collection[str] = ()) -> Table:
        others = {one.other for one in self.decisions}
        against = f"against {others.pop()}" if len(others) == 1 else "answers"
        table = contestants_table(f"{against}; 95 % intervals over seeds (t), over seeds and users (bootstrap)")
        headings = ("users", "answer", "mean", "over seeds", "over both", "p, Holm")
        shown = [*(["against"] if others else []), *(heading for heading in headings if heading not in without)]
        for heading in shown:
            table.add_column(heading, justify="left" if heading == "against" else "right", no_wrap=heading != "against")
        for one in self.decisions:
            p = "-" if math.isnan(one.corrected) else f"{one.corrected:.2g}"
            values = (one.users, str(one.finding), signed(one.seeds.value), *_ends(one), p)
            cells = {"against": one.other, **dict(zip(headings, values, strict=True))}
            table.add_row(one.label, *(cells[heading] for heading in shown))
        return table


def _ends(decision: Decision) -> tuple[str, str]:
    return interval_text(decision.seeds), interval_text(decision.both)


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.removeprefix('algorithm.')} {value}" for name, value in values.items()) or "as given"


@shows(FairComparison)
def _html(found: FairComparison) -> str:
    return tables_html(found.tables(), found.notes)
