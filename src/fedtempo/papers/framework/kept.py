"""One run of one seed, and the file that its measurements are kept in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtempo.papers.framework.definitions import Curve, Measured, PaperRun
from fedtempo.papers.framework.keys import key_of
from fedtempo.support.files import write_atomically

Record = dict[str, Any]
FOLDER = "runs"
"""The folder of finished runs inside a reproduction's own."""
MOST_POINTS = 60
"""A kept curve has at most so many points, to five digits: runs are stored in the repository."""


@dataclass(frozen=True)
class SeededRun:
    """One run of one seed, and the file its measurements go to."""

    run: PaperRun
    seed: int
    path: Path
    tried: float | None = None
    """The candidate that is tried, None where the run is judged. One that diverges has no scores."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.run.label}, seed {self.seed}"

    @property
    def key(self) -> str:
        """The hash of everything that decides the numbers."""
        return self.path.stem


def seeded_run(study: str, measure: int, run: PaperRun, seed: int, out: Path, tried: float | None = None) -> SeededRun:
    """The run of a study of this name, with its file below `out`."""
    return SeededRun(run, seed, out / FOLDER / f"{key_of(study, run, seed, measure)}.json", tried)


def keep(task: SeededRun, measured: Measured) -> None:
    """Write the measurements."""
    write_atomically(task.path, json.dumps({"label": task.run.label, "seed": task.seed, **measured_record(measured)}))


def kept(path: Path) -> Measured | None:
    """The measurements of a finished run; None where there are none that can be read."""
    try:
        return measured_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def measured_record(measured: Measured) -> Record:
    """The measurements as plain data. Users' scores and the time stand in it only where they are known."""
    users = {
        name: [[who, rows, float(f"{score:.5g}")] for who, rows, score in scores]
        for name, scores in measured.users.items()
    }
    return {
        "values": {name: float(value) for name, value in measured.values.items()},
        "curves": {name: _thinned(curve) for name, curve in measured.curves.items()},
        **({"users": users} if users else {}),
        **({} if measured.seconds is None else {"seconds": round(measured.seconds, 1)}),
    }


def measured_of(record: Record) -> Measured:
    """The measurements of a record."""
    return Measured(
        dict(record["values"]),
        {name: Curve(tuple(x), tuple(y)) for name, (x, y) in record["curves"].items()},
        {
            name: tuple((who, rows, score) for who, rows, score in users)
            for name, users in record.get("users", {}).items()
        },
        record.get("seconds"),
    )


def _thinned(curve: Curve) -> list[list[float]]:
    """Every so many points of the curve, and always the last."""
    places = range(len(curve.x))
    shown = sorted({*places[:: max(1, -((1 - len(places)) // (MOST_POINTS - 1)))], *places[-1:]})
    return [[float(f"{values[place]:.5g}") for place in shown] for values in (curve.x, curve.y)]
