"""One self-contained HTML page about one or several runs: works offline, from a mail attachment."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.io import to_html

from fedtempo.errors import OutputError
from fedtempo.evaluation import UserScores
from fedtempo.reporting.tables import ResultTable
from fedtempo.result import Result

# Okabe and Ito's palette: told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; display: block; overflow-x: auto; }
td, th { padding: .3rem .6rem; border-bottom: 1px solid #ccc; text-align: right; } td:first-child { text-align: left; }
caption { text-align: left; font-weight: 600; } code { font-size: .85rem; }
"""


def write_report(
    results: Sequence[Result], path: Path, labels: Sequence[str] | None = None, title: str = "FedTempo"
) -> Path:
    """Write the page and return where it is."""
    names = list(labels) if labels is not None else [repr(r.experiment.federation.algorithm) for r in results]
    figures = [
        learning_curves(results, names),
        user_distribution(results, names),
        cost_against_score(results, names),
    ]
    parts = [to_html(f, full_html=False, include_plotlyjs=i == 0, div_id=f"figure-{i}") for i, f in enumerate(figures)]
    runs = "".join(
        f"<li><code>{escape(name)}</code>: {len(r.history)} rounds, {r.seconds:.1f} s, "
        f"digest <code>{r.digest()[:16]}</code></li>"
        for name, r in zip(names, results, strict=True)
    )
    page = (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"{ResultTable(results, names)._repr_html_()}{''.join(parts)}<h2>Runs</h2><ul>{runs}</ul></body></html>"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"report must be a path that can be written. Got {path}: {error.strerror}.") from None
    return path


def learning_curves(results: Sequence[Result], names: Sequence[str]) -> go.Figure:
    """Mean over existing users after fine-tuning against rounds; seeds of one algorithm are averaged."""
    figure = go.Figure()
    for index, name in enumerate(dict.fromkeys(names)):
        mine = [r for r, n in zip(results, names, strict=True) if n == name]
        curves = [_curve(r) for r in mine]
        rounds = [x for x, _ in curves[0]]
        values = np.array([[y for _, y in curve] for curve in curves])
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(x=rounds, y=values.mean(0), name=name, mode="lines+markers", line={"color": colour})
        if len(curves) > 1:
            upper, lower = values.max(0), values.min(0)
            figure.add_scatter(
                x=[*rounds, *rounds[::-1]],
                y=[*upper, *lower[::-1]],
                fill="toself",
                line={"width": 0},
                fillcolor=colour,
                opacity=0.15,
                hoverinfo="skip",
                showlegend=False,
            )
    return _titled(figure, "Existing users after fine-tuning", "round", _metric(results))


def user_distribution(results: Sequence[Result], names: Sequence[str]) -> go.Figure:
    """Sorted scores of all users of the selected round: the left end is the bottom decile."""
    figure = go.Figure()
    for index, name in enumerate(dict.fromkeys(names)):
        users = [s for r, n in zip(results, names, strict=True) if n == name for s in _users(r)]
        scores = [u.values[_metric(results)][u.samples > 0] for u in users]
        values = np.sort(np.concatenate(scores)) if scores else np.zeros(0)
        share = np.linspace(0, 1, len(values))
        figure.add_scatter(x=share, y=values, name=name, line={"color": COLOURS[index % len(COLOURS)]})
    figure.add_vline(x=0.1, line_dash="dot", annotation_text="bottom decile")
    return _titled(
        figure, "Users from worst to best, existing and new, after fine-tuning", "share of users", _metric(results)
    )


def cost_against_score(results: Sequence[Result], names: Sequence[str]) -> go.Figure:
    """Score against bytes sent, one point per evaluation."""
    figure = go.Figure()
    for index, name in enumerate(dict.fromkeys(names)):
        mine = next(r for r, n in zip(results, names, strict=True) if n == name)
        reports = [r for r in mine.history if r.scores]
        figure.add_scatter(
            x=[r.total_costs.flops for r in reports],
            y=[r.scores.existing_tuned.summary(r.scores.metric)["mean"] for r in reports if r.scores],
            name=name,
            mode="lines+markers",
            line={"color": COLOURS[index % len(COLOURS)]},
        )
    return _titled(figure, "Score against client computation (first seed)", "FLOPs", _metric(results))


def _titled(figure: go.Figure, title: str, x: str, y: str) -> go.Figure:
    return figure.update_layout(title=title, xaxis_title=x, yaxis_title=y, template="plotly_white", height=420)


def _metric(results: Sequence[Result]) -> str:
    scored = next((r.scores for r in results if r.scores), None)
    return scored.metric if scored else "loss"


def _curve(result: Result) -> list[tuple[int, float]]:
    return [
        (report.round + 1, report.scores.existing_tuned.summary(report.scores.metric)["mean"])
        for report in result.history
        if report.scores
    ]


def _users(result: Result) -> list[UserScores]:
    scores = result.scores
    return [u for u in (scores.existing_tuned, scores.new_tuned) if u is not None] if scores else []
