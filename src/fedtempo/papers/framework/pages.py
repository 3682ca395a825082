"""A reproduction's outcome for people and programs: a terminal's table, JSON, CSV, a Markdown section, figures."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from fedtempo.papers.framework.claims import Verdict
from fedtempo.papers.framework.figures import svg
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.support.files import write_atomically
from fedtempo.support.json_text import JsonTable

QUICK_LOOK = "A quick look: rates are not tuned and training is short, so nothing is judged here."
TABLE_JSON, TABLE_CSV, PAGE = "table.json", "table.csv", "page.md"


def verdicts(reproduction: Reproduction, outcome: Outcome) -> dict[str, Verdict]:
    """The verdict on each claim, by the claim's text."""
    return {claim.text: claim.judge(outcome) for claim in reproduction.claims}


def claims_and_verdicts(reproduction: Reproduction, outcome: Outcome) -> list[tuple[str, str, str]]:
    """Each claim with who says it, its verdict, and the numbers.

    A sentence of the paper's has numbers only: the ten claims of the first page are judged, each over all of its parts.
    A quick look judges nothing.
    """
    quick = is_quick_look(reproduction, outcome.scale)
    found = verdicts(reproduction, outcome)
    return [
        (claim.said, "" if quick or claim.section else str(found[claim.text].answer), found[claim.text].reason)
        for claim in reproduction.claims
    ]


def outcome_record(reproduction: Reproduction, outcome: Outcome) -> JsonTable:
    """The whole outcome as plain data, without anything that differs from run to run: no times, no dates."""
    return {
        "name": reproduction.name,
        "paper": reproduction.paper,
        "source": reproduction.source,
        "scale": outcome.scale,
        "settings": dict(reproduction.scales[outcome.scale].settings),
        "seeds": outcome.seeds,
        "tuned": {
            name: {"chosen": choice.value, "tried": [[trial.value, _finite(trial.score)] for trial in choice.trials]}
            for name, choice in outcome.choices.items()
        },
        "cells": list(_cells(reproduction, outcome)),
        "claims": [
            {"claim": claim.text, "section": claim.section, "verdict": answer, "reason": reason}
            for claim, (_, answer, reason) in zip(
                reproduction.claims, claims_and_verdicts(reproduction, outcome), strict=True
            )
        ],
    }


def _cells(reproduction: Reproduction, outcome: Outcome) -> list[dict[str, Any]]:
    cells = []
    for label in outcome.labels:
        for column in reproduction.columns:
            interval = outcome.interval(label, column)
            cells.append(
                {
                    "label": label,
                    "column": column,
                    "paper": reproduction.reported.get(label, {}).get(column),
                    "mean": _finite(interval.mean),
                    "low": _finite(interval.low),
                    "high": _finite(interval.high),
                    "values": [_finite(value) for value in outcome.values(label, column)],
                }
            )
    return cells


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _csv(reproduction: Reproduction, outcome: Outcome) -> str:
    buffer = io.StringIO()
    names = ("label", "column", "paper", "mean", "low", "high")
    writer = csv.DictWriter(buffer, (*names, "seeds"), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for cell in _cells(reproduction, outcome):
        writer.writerow({**cell, "seeds": len(cell["values"])})
    return buffer.getvalue()


def rich_table(reproduction: Reproduction, outcome: Outcome) -> RichTable:
    """The table for a terminal: ours, and below it the paper's value where there is one."""
    table = RichTable(title=f"{reproduction.title} ({outcome.scale}, seeds: {seeds_text(outcome)})", show_lines=True)
    table.add_column("run", overflow="fold")
    for column in reproduction.columns.values():
        table.add_column(column.heading, justify="right")
    for label in outcome.labels:
        table.add_row(label, *(cell(reproduction, outcome, label, column, "\n") for column in reproduction.columns))
    return table


def cell(reproduction: Reproduction, outcome: Outcome, label: str, column: str, separator: str) -> str:
    """Ours with its interval, and the paper's value where there is one."""
    form = reproduction.columns[column].format
    ours = outcome.interval(label, column).text(form)
    paper = reproduction.reported.get(label, {}).get(column)
    return ours if paper is None else f"{ours}{separator}paper {paper:{form}}"


def page(reproduction: Reproduction, outcome: Outcome, provenance: str, figures: Mapping[str, str]) -> str:
    """A Markdown section with everything: verdicts, figures, the table, the settings and how rates were tuned."""
    command = f"fedtempo reproduce {reproduction.name} --scale {outcome.scale}"
    lines = [f"## {reproduction.source}: {reproduction.title}", "", f"`{command}`. {provenance}", ""]
    if is_quick_look(reproduction, outcome.scale):
        lines.append(QUICK_LOOK)
    else:
        found = verdicts(reproduction, outcome)
        said = [claim for claim in reproduction.claims if claim.section]
        asked = [claim for claim in reproduction.claims if not claim.section]
        if said:
            lines += ["| the paper says | where | what came out |", "|---|---|---|"]
            lines += [f"| {one.text} | {one.section} | {found[one.text].numbers} |" for one in said]
            lines.append("")
        if asked:
            lines += ["| we ask | verdict | what decides |", "|---|---|---|"]
            lines += [f"| {one.text} | **{found[one.text].answer}** | {found[one.text].reason} |" for one in asked]
    lines += ["", *(f"![{name}]({path})" for name, path in figures.items()), ""]
    lines += [*_table_lines(reproduction, outcome), "", *_plan_lines(reproduction, outcome), ""]
    lines += [f"* {note}" for note in reproduction.notes]
    return tidy("\n".join(lines))


def seeds_text(outcome: Outcome) -> str:
    """How many seeds were judged: `5`, or `5 to 12` where some labels have more."""
    return str(outcome.seeds) if outcome.fewest_seeds == outcome.seeds else f"{outcome.fewest_seeds} to {outcome.seeds}"


def tidy(text: str) -> str:
    """The text with no two empty lines in a row, and one line's end."""
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def is_quick_look(reproduction: Reproduction, scale: str) -> bool:
    """Whether the scale judges nothing, because a larger one does."""
    return scale in ("smoke", "small") and "medium" in reproduction.scales


def _table_lines(reproduction: Reproduction, outcome: Outcome) -> list[str]:
    several = outcome.fewest_seeds < outcome.seeds
    head = ["run", *(["seeds"] if several else []), *(column.heading for column in reproduction.columns.values())]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for label in outcome.labels:
        seeds = [str(len(outcome.measured[label]))] if several else []
        cells = [cell(reproduction, outcome, label, column, ", ") for column in reproduction.columns]
        lines.append(f"| {' | '.join([label, *seeds, *cells])} |")
    over = "seeds" if outcome.units is None else f"{outcome.units.count} {outcome.units.name}"
    level = f"{100 * outcome.level:g} % confidence interval (Student's t) over {over}"
    looks = "" if outcome.looks == 1 else f", because the seeds were looked at {outcome.looks} times"
    return [*lines, "", f"Ours is the mean ± half the {level}{looks}."]


def _plan_lines(reproduction: Reproduction, outcome: Outcome) -> list[str]:
    """The settings, what tuning chose, and when a run counts as trained."""
    scale = reproduction.scales[outcome.scale]
    settings = ", ".join(f"{name} {value}" for name, value in scale.settings.items())
    first = len(reproduction.seen)
    lines = [f"Settings: {settings}; judged seeds {first} to {first + outcome.fewest_seeds - 1}."]
    if outcome.fewest_seeds < outcome.seeds:
        lines.append(
            "Some runs have more seeds, because claims about them need more. A claim is judged on the seeds that all"
            " of its runs have."
        )
    if scale.settling is not None:
        lines.append(f"A run counts as trained where its last quarter improves by less than {scale.settling.within:g}.")
    if scale.tuning is None:
        return lines
    seeds = ", ".join(map(str, scale.tuning.seeds))
    shorter = "".join(f", {name} {value}" for name, value in scale.tuning.settings.items())
    lines += ["", f"Tuned by `{scale.tuning.column}` on seeds {seeds}, which are not judged{shorter}:", ""]
    lines += ["| contestant | chosen | candidates and their scores |", "|---|---:|---|"]
    for name, choice in outcome.choices.items():
        tried = ", ".join(f"{trial.value:g}: {trial.score:.4g}" for trial in choice.trials)
        edge = "" if choice.bounded(scale.tuning.tie) else " (no bound)"
        lines.append(f"| {name} | {choice.value:g}{edge} | {tried} |")
    return lines


def save(reproduction: Reproduction, outcome: Outcome, folder: Path, provenance: str) -> list[Path]:
    """Write table.json, table.csv, page.md and the figures."""
    drawn = {figure.name: svg(figure, outcome, reproduction.reported) for figure in reproduction.figures}
    files = {
        TABLE_JSON: json.dumps(outcome_record(reproduction, outcome), indent=1) + "\n",
        TABLE_CSV: _csv(reproduction, outcome),
        **{f"{name}.svg": text for name, text in drawn.items()},
        PAGE: page(reproduction, outcome, provenance, {name: f"{name}.svg" for name in drawn}),
    }
    for name, text in files.items():
        write_atomically(folder / name, text)
    return [folder / name for name in files]
