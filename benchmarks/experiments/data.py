"""The experiments' rows as files that every contender maps: drawn from a fixed seed, or taken from a real data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.experiments.plan import Experiment
from benchmarks.workloads import FOLDER


def columns(experiment: Experiment, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels, client after client, mapped; written when first asked for."""
    folder = folder or FOLDER
    size = f"{experiment.clients}x{experiment.rows}"
    places = [folder / f"{experiment.name}-{size}-{column}.npy" for column in ("x", "y")]
    if not all(place.exists() for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        for place, values in zip(places, MAKERS[experiment.name[:2]](experiment), strict=True):
            unfinished = place.with_name(f"unfinished-{place.name}")
            np.save(unfinished, values)
            unfinished.rename(place)
    x, y = (np.load(place, mmap_mode="r") for place in places)
    return x, y


def _labels(experiment: Experiment, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Every client prefers some classes."""
    shares = rng.dirichlet(np.full(classes, 0.3), experiment.clients)
    return np.concatenate([rng.choice(classes, experiment.rows, p=share) for share in shares])


def _images(experiment: Experiment, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """A pattern per class, a shift per client, and noise."""
    rng = np.random.default_rng(0)
    y = _labels(experiment, classes, rng)
    patterns = rng.standard_normal((classes, 28, 28), dtype=np.float32)
    styles = rng.standard_normal((experiment.clients, 28, 28), dtype=np.float32)
    x = 0.6 * patterns[y] + 0.3 * np.repeat(styles, experiment.rows, axis=0)
    x += rng.standard_normal(x.shape, dtype=np.float32)
    return x, y


def _sentences(experiment: Experiment) -> tuple[np.ndarray, np.ndarray]:
    """32 of 128 tokens; every class has tokens that it likes."""
    rng = np.random.default_rng(0)
    y = _labels(experiment, 10, rng)
    shares = rng.dirichlet(np.full(128, 0.5), 10)
    x = np.stack([rng.choice(128, 32, p=shares[label]) for label in y])
    return x.astype(np.int64), y


def _real(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images as normalised float32 in a random order, and their labels."""
    import fedtempo as ft

    table = ft.data.load(name)
    mean, deviation = table.normalise["x"]
    order = np.random.default_rng(0).permutation(len(table.columns["y"]))
    x = (table.columns["x"][order].astype(np.float32) - mean) / deviation
    return x, np.asarray(table.columns["y"])[order]


def _cifar(experiment: Experiment) -> tuple[np.ndarray, np.ndarray]:
    x, y = _real("cifar10")
    rows = experiment.clients * experiment.rows
    return x[:rows], y[:rows]


def _mnist(experiment: Experiment) -> tuple[np.ndarray, np.ndarray]:
    """Two classes per client: half of its rows from each."""
    x, y = _real("mnist")
    rng = np.random.default_rng(1)
    left = {label: list(np.flatnonzero(y == label)) for label in range(10)}
    rows: list[int] = []
    for client in range(experiment.clients):
        first, second = client % 10, (client + 1 + client // 10 % 9) % 10
        mine = [left[label].pop() for label in (first, second) for _ in range(experiment.rows // 2)]
        rows += rng.permutation(mine).tolist()
    return x[rows], y[rows]


MAKERS = {
    "E1": lambda experiment: _images(experiment, 62),
    "E2": lambda experiment: _images(experiment, 10),
    "E3": _cifar,
    "E4": _mnist,
    "E5": _sentences,
}
