"""What a fair comparison found: tuned values, scores, answers and costs, beside the plan they were made by."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.publish import latex, markdown
from fedtempo.comparison.tables import interval_of, tables_of
from fedtempo.report import REPORT, Grid, Lines, Section, report, tidy_csv, tidy_rows
from fedtempo.report.notebook import tables_html
from fedtempo.study.claims import Ruling, rulings_of
from fedtempo.study.decisions import Decision, Ending, Finding, about, validation_curve
from fedtempo.study.differences import forest_of
from fedtempo.study.plan import GROUPS, FairPlan
from fedtempo.support.display import html_of, shows
from fedtempo.support.files import write_atomically
from fedtempo.support.json_text import JsonTable, finite
from fedtempo.support.table import Cell, Number, ResultTable, TableColumn
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

    def tables(self) -> list[ResultTable]:
        """Tuned values, scores, differences, costs, and the answers at the end."""
        answers = [self._answers_table()] if self.decisions else []
        return [self._tuned_table(), *tables_of(self.comparison), *answers]

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
            rounds = [float(one.number) for one in run.history if one.validation is not None]
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
        scored = [one for one in self.decisions if one.users in GROUPS]
        drawn = forest_of(scored, self.plan.metric, self.plan.margin) if scored else None
        return report(
            [],
            title=self.plan.title or f"A fair comparison on {len(self.plan.seeds)} seeds",
            sections=[
                *([said] if claims else []),
                Section("Answers", table=Grid(heads, finite(answers)), figure=drawn),
                Section("Tuned values", table=Grid(["contestant", "values", f"validation {self.plan.metric}"], tuned)),
                Section(f"Validation {self.plan.metric} by round", figure=Lines(curves, "round", self.plan.metric)),
                Section("The plan, written before the first run", "\n".join(self.plan.in_words())),
            ],
        )

    def __str__(self) -> str:
        return "\n".join([*self.plan.in_words(), *map(str, self.decisions), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return html_of(self)

    def _tuned_table(self) -> ResultTable:
        columns = [
            TableColumn("values", "values", words=True, widest=20),
            TableColumn("trials", "trials", left_out=3),
            TableColumn("score", self.plan.metric),
            TableColumn("ended_early", "ended early", left_out=2),
            TableColumn("last_quarter", "last quarter", left_out=1),
            TableColumn("converged", "converged"),
        ]
        title = "tuned on validation; how the judged runs ended"
        return ResultTable(title, columns, [(label, self._tuned_cells(label)) for label in self.tuned], digits=4)

    def _tuned_cells(self, label: str) -> dict[str, Cell]:
        one, ended = self.tuned[label], self.training[label]
        return {
            "values": _text(one.values),
            "trials": Number(len(one.trials), "count"),
            "score": Number(one.score),
            "ended_early": f"{ended.stopped} of {ended.of}",
            "last_quarter": Number(ended.gain, "signed"),
            "converged": "yes" if ended.converged else "no",
        }

    def _answers_table(self) -> ResultTable:
        others = {one.other for one in self.decisions}
        against = f"against {next(iter(others))}" if len(others) == 1 else "answers"
        columns = [
            TableColumn("against", "against", shown=len(others) > 1, words=True, widest=40),
            TableColumn("users", "users", words=True),
            TableColumn("answer", "answer", words=True),
            TableColumn("mean", "mean"),
            TableColumn("over_seeds", "over seeds", left_out=3),
            TableColumn("over_both", "over both", left_out=2),
            TableColumn("p", "p, Holm", left_out=1),
        ]
        rows = [(one.label, _answer_cells(one)) for one in self.decisions]
        return ResultTable(f"{against}; 95 % intervals over seeds (t), over seeds and users (bootstrap)", columns, rows)


def _answer_cells(one: Decision) -> dict[str, Cell]:
    return {
        "against": one.other,
        "users": one.users,
        "answer": str(one.finding),
        "mean": Number(one.seeds.value, "signed"),
        "over_seeds": interval_of(one.seeds),
        "over_both": interval_of(one.both),
        "p": Number(one.corrected, "p"),
    }


def _ends(decision: Decision) -> tuple[str, str]:
    return interval_of(decision.seeds).text(), interval_of(decision.both).text()


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _text(values: Mapping[str, Any]) -> str:
    """Tuned values with four digits, for reading."""
    rounded = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in values.items()}
    return ", ".join(f"{name.removeprefix('algorithm.')} {value}" for name, value in rounded.items()) or "as given"


@shows(FairComparison)
def _html(found: FairComparison) -> str:
    return tables_html(found.tables(), found.notes)
