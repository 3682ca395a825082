"""One run of one seed, and the file that its measurements are kept in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedtempo.papers.framework.definitions import Curve, Measured, PaperRun, key_of
from fedtempo.support.files import write_atomically

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


def seeded_run(name: str, run: PaperRun, seed: int, out: Path, tried: float | None = None) -> SeededRun:
    """The run of a reproduction of this name, with its file below `out`."""
    return SeededRun(run, seed, out / FOLDER / f"{key_of(name, run, seed)}.json", tried)


def keep(task: SeededRun, measured: Measured) -> None:
    """Write the measurements."""
    content = {
        "label": task.run.label,
        "seed": task.seed,
        "values": {name: float(value) for name, value in measured.values.items()},
        "curves": {name: _thinned(curve) for name, curve in measured.curves.items()},
    }
    write_atomically(task.path, json.dumps(content))


def kept(path: Path) -> Measured | None:
    """The measurements of a finished run; None where there are none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        curves = {name: Curve(tuple(x), tuple(y)) for name, (x, y) in content["curves"].items()}
        return Measured(dict(content["values"]), curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _thinned(curve: Curve) -> list[list[float]]:
    """Every so many points of the curve, and always the last."""
    places = range(len(curve.x))
    shown = sorted({*places[:: max(1, -((1 - len(places)) // (MOST_POINTS - 1)))], *places[-1:]})
    return [[float(f"{values[place]:.5g}") for place in shown] for values in (curve.x, curve.y)]
