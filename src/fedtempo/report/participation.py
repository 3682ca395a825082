"""Scores by how often a user took part: what late, leaving and absent clients do to those who are served."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table as RichTable

from fedtempo.evaluation.protocol import Scores, UserScores, decile_in_words
from fedtempo.support.display import shows
from fedtempo.support.terminal import Terminal
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.saved import SavedResult

COLUMNS = ("users", "rounds", "before", "after", "bottom_decile")


class ParticipationTable:
    """A row for existing users who never took part, for the rarer and the more frequent half, and for new users."""

    def __init__(self, history: Sequence[RoundReport], scores: Scores | None) -> None:
        self.metric = scores.metric if scores is not None else "loss"
        self._rows = [] if scores is None else list(_rows(_times(history), scores))

    def records(self) -> list[dict[str, str | int | float]]:
        """One dict per group: who, how many users, the rounds each took part in on average, and their scores."""
        return [dict(row) for row in self._rows]

    def rich(self) -> RichTable:
        """For a terminal."""
        table = RichTable(title=f"{self.metric} by how often users took part", title_justify="left", box=None)
        for name in ("who", *COLUMNS):
            words = decile_in_words(row["users"] for row in self._rows) if name == "bottom_decile" else name
            table.add_column(words, justify="left" if name == "who" else "right")
        for row in self._rows:
            numbers = (f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in COLUMNS)
            table.add_row(row["who"], *numbers)
        return table

    def __str__(self) -> str:
        buffer = io.StringIO()
        Terminal(file=buffer, width=110, force_terminal=False).print(self.rich())
        return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _times(history: Sequence[RoundReport]) -> dict[int, int]:
    """In how many rounds each client's upload counted."""
    times: dict[int, int] = {}
    for report in history:
        for client in () if report.abandoned else report.clients:
            times[client] = times.get(client, 0) + 1
    return times


def _rows(times: dict[int, int], scores: Scores) -> list[dict[str, Any]]:
    seen = np.array([times.get(client, 0) for client in scores.existing_after.clients.tolist()], dtype=np.int64)
    heard = seen[seen > 0]
    middle = np.median(heard) if len(heard) else 0
    pair = scores.existing_before, scores.existing_after
    rows = [
        _row("never", seen == 0, seen, *pair, scores.metric),
        _row("rarely", (seen > 0) & (seen <= middle), seen, *pair, scores.metric),
        _row("often", seen > middle, seen, *pair, scores.metric),
    ]
    if scores.new_before is not None and scores.new_after is not None:
        new = np.zeros(len(scores.new_after.clients), dtype=np.int64)
        rows.append(_row("new users", new == 0, new, scores.new_before, scores.new_after, scores.metric))
    return [row for row in rows if row["users"]]


def _row(
    who: str, mine: np.ndarray, seen: np.ndarray, before: UserScores, after: UserScores, metric: str
) -> dict[str, Any]:
    first, last = (scores.among(after.clients[mine]).summary(metric) for scores in (before, after))
    return {
        "who": who,
        "users": int((mine & after.scored(metric)).sum()),
        "rounds": float(seen[mine].mean()) if mine.any() else 0.0,
        "before": first["mean"],
        "after": last["mean"],
        "bottom_decile": last["bottom_decile"],
    }


@shows(SavedResult, "participation")
@shows(Result, "participation")
def _participation(result: Result | SavedResult) -> ParticipationTable:
    return ParticipationTable(result.history, result.scores)
