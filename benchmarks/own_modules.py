"""The networks of W1 to W4 as somebody writes them: a class with a `forward` of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.workloads import Workload, convolutional, perceptron, softmax
from fedtempo.client import program


class Perceptron(nn.Module):
    """784-200-10."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(784, 200), nn.Linear(200, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.hidden(x.flatten(1))))


class Convolutional(nn.Module):
    """Two convolutions with pooling, a hidden layer, 62 outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.hidden, self.out = nn.Linear(1600, 512), nn.Linear(512, 62)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.first(x.unsqueeze(1))), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.out(F.relu(self.hidden(x.flatten(1))))


class Softmax(nn.Module):
    """Multinomial logistic regression, 60 to 10."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(60, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


OWN: dict[Any, type[nn.Module]] = {perceptron: Perceptron, convolutional: Convolutional, softmax: Softmax}


def pair(workload: Workload, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """The workload's network and the same as an own module, with the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        plain, own = workload.model(), OWN[workload.model]()
    own.load_state_dict(dict(zip(own.state_dict(), plain.state_dict().values(), strict=True)))
    return plain, own


@contextmanager
def without_recording() -> Iterator[list[Any]]:
    """Programs compiled in here compute every gradient anew. Yields the ways that would have been recorded."""
    recorded, ways = program.Replayed, []

    def never(way: Any, unchanged: Any = None) -> Any:
        ways.append(way)
        return way

    program.Replayed = never  # type: ignore[assignment,misc]
    try:
        yield ways
    finally:
        program.Replayed = recorded  # type: ignore[misc]
