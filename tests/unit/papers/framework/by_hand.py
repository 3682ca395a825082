"""Outcomes made by hand."""

from __future__ import annotations

from fedtempo.papers.framework.claims import (
    Answer,
)
from fedtempo.papers.framework.definitions import Column, Measured
from fedtempo.papers.framework.outcomes import Outcome

HOLDS, FAILS, UNCLEAR = Answer.HOLDS, Answer.FAILS, Answer.UNCLEAR


def outcome(scale: str = "small", **runs: list[float]) -> Outcome:
    columns = {"score": Column("score"), "steps": Column("steps", exact=True)}
    measured = {
        label: tuple(Measured({"score": v, "steps": 10.0 * v}) for v in values) for label, values in runs.items()
    }
    return Outcome(scale, columns, measured)


THREE = outcome(a=[0.8, 0.7, 0.6], b=[0.75, 0.65, 0.56], c=[0.9, 0.6, 0.7])
