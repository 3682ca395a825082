"""The five standard workloads: plain FedAvg on synthetic data of a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

FOLDER = Path(__file__).parent.parent / ".bench"
"""Where data that are mapped into memory are kept between benchmarks; git ignores it."""
CHUNK = 1 << 16
"""Rows drawn at once."""


def perceptron() -> nn.Module:
    """784-200-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def convolutional() -> nn.Module:
    """Two 3x3 convolutions without padding, 32 and 64 channels, pooled; 512 hidden units; 62 outputs."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 62)),
    )


def softmax() -> nn.Module:
    """Multinomial logistic regression, 60 to 10."""
    return nn.Linear(60, 10)


@dataclass(frozen=True)
class Workload:
    """A model, clients of equal size, and what happens in a round."""

    name: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    clients: int
    samples: int
    cohort: int
    batch: int
    steps: int
    lr: float = 0.05
    mapped: bool = False
    """Whether the data live in a file that is mapped into memory."""

    @property
    def title(self) -> str:
        """The workload in one line."""
        return (
            f"{self.name}: {self.clients:,} clients x {self.samples} samples, {self.cohort} per round, "
            f"batch {self.batch}, {self.steps} steps"
        )


WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        Workload("W1", perceptron, (784,), 10, 100, 600, 20, 50, 10),
        Workload("W2", convolutional, (28, 28), 62, 1_000, 100, 10, 32, 10),
        Workload("W3", softmax, (60,), 10, 10_000, 50, 1_000, 10, 5),
        Workload("W4", convolutional, (28, 28), 62, 3_550, 100, 100, 32, 3),
        Workload("W5", softmax, (60,), 10, 1_000_000, 20, 1_000, 10, 5, mapped=True),
    )
}


def few_clients(workload: Workload) -> Workload:
    """W5 with 10,000 clients in place of a million: the same cohort from a small federation."""
    return replace(workload, name=f"{workload.name}-few", clients=10_000)


def by_name(name: str) -> Workload:
    """A workload; `W5-few` is W5 with 10,000 clients."""
    return few_clients(WORKLOADS[name[:2]]) if name.endswith("-few") else WORKLOADS[name]


def arrays(workload: Workload, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of all clients, client after client. Mapped ones are written once and then only opened."""
    rows = workload.clients * workload.samples
    if not workload.mapped:
        return _draw(workload, np.empty((rows, *workload.shape), np.float32))
    path = folder / f"rows-{rows}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        inputs = np.lib.format.open_memmap(unfinished, "w+", np.float32, (rows, *workload.shape))
        _, labels = _draw(workload, inputs)
        inputs.flush()
        np.save(path.with_name(f"labels-{rows}.npy"), labels)
        unfinished.rename(path)
    return np.load(path, mmap_mode="r"), np.load(path.with_name(f"labels-{rows}.npy"), mmap_mode="r")


def _draw(workload: Workload, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal inputs, and labels that a linear model can partly learn."""
    rng = np.random.default_rng(0)
    rows, width = len(inputs), math.prod(workload.shape)
    teacher = rng.standard_normal((width, workload.classes), dtype=np.float32)
    labels = np.empty(rows, np.int64)
    for start in range(0, rows, CHUNK):
        stop = min(start + CHUNK, rows)
        drawn = rng.standard_normal((stop - start, width), dtype=np.float32)
        inputs[start:stop] = drawn.reshape(-1, *workload.shape)
        labels[start:stop] = (drawn @ teacher).argmax(1)
    return inputs, labels
