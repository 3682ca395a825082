"""What a notebook shows of a schedule, a division of data, a round, a result: small pieces of plain HTML.

They take the notebook's own colours, so they are readable on light and on dark, and they need no script.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import PARTS
from fedtempo.data.summary import merged_rows
from fedtempo.errors import FedTempoError
from fedtempo.evaluation.protocol import Scores, decile_in_words
from fedtempo.report.html import write_page
from fedtempo.report.tables import result_table
from fedtempo.schedules import Now, Schedule
from fedtempo.support.display import shows
from fedtempo.support.table import ResultTable, with_unit
from fedtempo.training.pictures import DataPicture, picture_of
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport

ROUNDS, STEPS = 100, 10
"""How far a schedule is drawn."""
CELL = 7
"""Pixels of one client and label in the picture of data."""
MOST_CLIENTS, MOST_LABELS = 60, 40
MOST_REFUSED = 10


@shows(Schedule)
def schedule_html(schedule: Schedule) -> str:
    """The schedule as it is written, drawn over rounds and over the steps of the first one."""
    code = f"<code>{escape(repr(schedule))}</code>"
    try:
        rounds = [schedule.at(Now(round=t, steps=STEPS)) for t in range(ROUNDS)]
        steps = [schedule.at(Now(step=j, steps=STEPS)) for j in range(STEPS)]
    except (FedTempoError, ArithmeticError) as error:
        return f"<div>{code}: {escape(str(error))}</div>"
    drawn = [
        (f"rounds 1 to {ROUNDS}, at step 1", f"{curve(rounds, 'value over rounds')} {_ends(rounds)}"),
        (f"steps 1 to {STEPS} of round 1", f"{curve(steps, 'value over steps')} {_ends(steps)}"),
    ]
    return f"<div>{code}{_facts(drawn)}</div>"


@shows(RoundReport)
def report_html(report: RoundReport) -> str:
    """A round: how it went, for whom, and what it cost."""
    costs = report.costs
    facts = [
        ("loss", f"{report.loss:.4f}"),
        ("clients", f"{len(report.clients)}{', abandoned: too few uploads' if report.abandoned else ''}"),
        ("cost", f"{with_unit(costs.bytes)} bytes, {with_unit(costs.steps)} steps, {with_unit(costs.flops)} FLOPs"),
        ("seconds", f"{report.seconds:.3f}"),
        *([("clock", f"{report.time:.3f} s, {report.energy:.3g} J")] if report.total_time else []),
        *((escape(name), f"{value:.6g}") for name, value in report.measurements.items()),
    ]
    facts += [fact for scores in (report.validation, report.test) if scores for fact in _score_facts(scores)]
    refused = [f"client {failure.client}: {escape(failure.reason)}" for failure in report.failures]
    if refused:
        more = [f"and {len(refused) - MOST_REFUSED} more"] if len(refused) > MOST_REFUSED else []
        facts.append(("refused", "<br>".join([*refused[:MOST_REFUSED], *more])))
    return f"<div><b>Round {report.number}</b>{_facts(facts)}</div>"


def _score_facts(scores: Scores) -> Iterator[tuple[str, str]]:
    for group, users in scores.groups().items():
        summary = users.summary(scores.metric)
        decile = decile_in_words([int(users.scored(scores.metric).sum())])
        text = f"{scores.metric} {summary['mean']:.3f}, {decile} {summary['bottom_decile']:.3f}"
        yield escape(f"{scores.part}, {group.replace('_', ' ')}"), escape(text)


@shows(FederatedData)
def data_html(data: FederatedData) -> str:
    """How many rows each client has, by label."""
    sizes = data.sizes("train")
    facts = [
        ("clients", f"{len(data.clients):,} that train, {len(data.held_out):,} new"),
        *((part, f"{int(data.sizes(part).sum()):,} rows") for part in PARTS),
        ("rows per client", f"{int(sizes.min()):,} to {int(sizes.max()):,}, median {np.median(sizes):,.0f} (training)"),
        ("digest", f"<code>{data.digest()[:16]}</code>"),
    ]
    return f"<div><b>{escape(data.description)}</b>{_facts(facts)}{_heat_map(picture_of(data))}</div>"


@shows(FederatedData, "page")
def data_page(data: FederatedData, path: Path) -> Path:
    """The same as a page of its own."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    style = "<style>:root { color-scheme: light dark; font-family: sans-serif } svg { margin-top: 1em }</style>"
    title = f"<title>{escape(data.description)}</title>"
    about = "<p>Clients run from left to right and labels from top to bottom; the more rows, the darker.</p>"
    start = f'<!doctype html><html lang="en"><head>{head}{title}{style}</head><body>'
    return write_page(path, f"{start}{data_html(data)}{about}</body></html>\n", "picture")


@shows(Result)
def result_html(result: Result) -> str:
    """The table of a run, its learning curve and its digest."""
    scored = [report.scores for report in result.history if report.scores]
    scores = [s.guiding.summary(s.metric)["mean"] for s in scored]
    losses = [report.loss for report in result.history if math.isfinite(report.loss)]
    facts = [
        ("training loss", f"{curve(losses, 'training loss over rounds')} {_ends(losses)}"),
        ("rounds", f"{len(result.history)} in {result.seconds:.1f} s"),
        ("digest", f"<code>{result.digest()[:16]}</code>"),
    ]
    if scores:
        drawn = f"{curve(scores, 'score over evaluations')} {_ends(scores)}"
        users = "existing" if len(scored[0].existing_after.clients) else "new"
        facts.insert(0, (f"{escape(scored[0].metric)}, {users} users after fine-tuning", drawn))
    if result.privacy is not None:
        facts.append(("privacy", escape(str(result.privacy))))
    return f"<div>{result_table([result]).html()}{_facts(facts)}</div>"


def tables_html(tables: Iterable[ResultTable], notes: Sequence[str] = ()) -> str:
    """Tables as HTML, with notes below."""
    lines = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<div>{''.join(table.html() for table in tables)}{f'<ul>{lines}</ul>' if lines else ''}</div>"


def curve(values: Sequence[float], title: str, width: int = 160, height: int = 28) -> str:
    """A line through the values, as large as a word."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    right = max(len(values) - 1, 1)
    points = " ".join(
        f"{2 + (width - 4) * i / right:.1f},{height - 2 - (height - 4) * (value - low) / span:.1f}"
        for i, value in enumerate(values)
    )
    line = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    label = escape(f"{title}: {values[0]:.4g} to {values[-1]:.4g}")
    return f'<svg role="img" aria-label="{label}" width="{width}" height="{height}"><title>{label}</title>{line}</svg>'


def _ends(values: Sequence[float]) -> str:
    return f"{values[0]:.4g} → {values[-1]:.4g}" if values else ""


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values in two columns; both are HTML already."""
    left = "style='text-align:left'"
    rows = "".join(f"<tr><th {left} scope=row>{name}</th><td {left}>{value}</td></tr>" for name, value in facts)
    return f"<table><tbody>{rows}</tbody></table>"


def _heat_map(picture: DataPicture) -> str:
    """Clients from left to right, labels from top to bottom; the more rows, the darker."""
    counts = merged_rows(merged_rows(picture.counts, MOST_CLIENTS).T, MOST_LABELS)
    if not counts.size:
        return ""
    shades = counts / max(1, int(counts.max()))
    cells = "".join(
        f'<rect x="{CELL * x}" y="{CELL * y}" width="{CELL}" height="{CELL}" fill-opacity="{shades[y, x]:.2f}"/>'
        for y, x in np.argwhere(shades > 0)
    )
    height, width = (CELL * side for side in counts.shape)
    label = f"rows by client (across, {picture.total}) and label (down, {picture.labels})"
    frame = f'<rect width="{width}" height="{height}" fill="none" stroke="currentColor" stroke-opacity="0.3"/>'
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" fill="currentColor">'
        f"<title>{label}</title>{cells}{frame}</svg>"
    )
