"""A user's project for tests: a module with own code, a module that it imports, and an experiment that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from fedtempo.config import own_code

MODULE = """
import numpy as np
import torch
from torch import nn

import fedtempo as ft
from own_helper import halved


def clients(count: int = 5):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, 3)).astype(np.float32) for _ in range(count)]
    return ft.data.FederatedData.from_clients([(x, (x[:, 0] > 0).astype(np.int64)) for x in rows], test=0.2)


class Net(nn.Module):
    def __init__(self, width: int = 3):
        super().__init__()
        self.body, self.head = nn.Linear(3, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def loss(outputs, targets):
    return halved(nn.functional.cross_entropy(outputs, targets, reduction="none"))


def algorithm(lr: float, steps: int = 2):
    return ft.algorithms.fedper(lr=lr, steps=steps)
"""
HELPER = "HALF = 0.5\n\n\ndef halved(losses):\n    return HALF * losses\n"
EXPERIMENT = {
    "rounds": 2,
    "batch_size": 4,
    "data": {"name": "own_project:clients", "count": 4},
    "model": {"name": "own_project:Net", "width": 4},
    "algorithm": {"name": "own_project:algorithm", "lr": 0.1},
    "loss": "own_project:loss",
    "evaluation": {"every": 2},
}


@contextmanager
def own_project(folder: Path) -> Iterator[Path]:
    """The path of the experiment. Afterwards nothing of the project is importable or imported."""
    paths, folders = list(sys.path), list(own_code._folders)
    (folder / "own_project.py").write_text(MODULE)
    (folder / "own_helper.py").write_text(HELPER)
    (folder / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT))
    try:
        yield folder / "experiment.toml"
    finally:
        sys.path[:], own_code._folders[:] = paths, folders
        for name in ("own_project", "own_helper"):
            sys.modules.pop(name, None)
