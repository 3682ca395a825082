"""Scores by how often a user took part: what late, leaving and absent clients do to those who are served."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedtempo.evaluation.protocol import Scores, UserScores, decile_in_words
from fedtempo.support.display import shows
from fedtempo.support.table import Number, ResultTable, TableColumn
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.saved import SavedResult


def participation_table(history: Sequence[RoundReport], scores: Scores | None) -> ResultTable:
    """A row for existing users who never took part, for the rarer and the more frequent half, and for new users.

    It says how many users each has, the rounds that each user took part in on average, and their scores.
    """
    found = [] if scores is None else list(_rows(_times(history), scores))
    decile = decile_in_words(int(row["users"].value) for _, row in found)
    heads = {"users": "users", "rounds": "rounds", "before": "before", "after": "after", "bottom_decile": decile}
    metric = scores.metric if scores is not None else "loss"
    columns = [TableColumn(key, head) for key, head in heads.items()]
    return ResultTable(f"{metric} by how often users took part", columns, found, names="who", key="who")


def _times(history: Sequence[RoundReport]) -> dict[int, int]:
    """In how many rounds each client's upload counted."""
    times: dict[int, int] = {}
    for report in history:
        for client in () if report.abandoned else report.clients:
            times[client] = times.get(client, 0) + 1
    return times


def _rows(times: dict[int, int], scores: Scores) -> list[tuple[str, dict[str, Number]]]:
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
    return [row for row in rows if row[1]["users"].value]


def _row(
    who: str, mine: np.ndarray, seen: np.ndarray, before: UserScores, after: UserScores, metric: str
) -> tuple[str, dict[str, Number]]:
    first, last = (scores.among(after.clients[mine]).summary(metric) for scores in (before, after))
    return who, {
        "users": Number(int((mine & after.scored(metric)).sum()), "count"),
        "rounds": Number(float(seen[mine].mean()) if mine.any() else 0.0, "seconds"),
        "before": Number(first["mean"]),
        "after": Number(last["mean"]),
        "bottom_decile": Number(last["bottom_decile"]),
    }


@shows(SavedResult, "participation")
@shows(Result, "participation")
def _participation(result: Result | SavedResult) -> ResultTable:
    return participation_table(result.history, result.scores)
