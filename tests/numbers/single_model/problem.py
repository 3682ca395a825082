"""The tiny problems: their data, loss and gradient in numpy, and the same problem handed to the library.

A parameter vector is the weights, then the bias: two tensors, so that norms over all parameters are tested as such.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

import fedtempo as ft
from fedtempo.params import without_prefix

Client = tuple[np.ndarray, np.ndarray]


class Line(nn.Module):
    """x . w + b."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


@dataclass(frozen=True)
class Regression:
    """f_i = mean_s r_s^2 with r_s = x_s . w + b - y_s, so grad f_i = 2 mean_s r_s (x_s, 1)."""

    clients: tuple[Client, ...]
    task: str = field(default="regression", init=False)

    @property
    def sizes(self) -> list[int]:
        return [len(y) for _, y in self.clients]

    def loss(self, i: int, theta: np.ndarray) -> float:
        x, y = self.clients[i]
        return float(np.mean((x @ theta[:-1] + theta[-1] - y) ** 2))

    def gradient(self, i: int, theta: np.ndarray) -> np.ndarray:
        x, y = self.clients[i]
        residual = x @ theta[:-1] + theta[-1] - y
        return 2 / len(y) * np.append(x.T @ residual, residual.sum())

    def model(self) -> nn.Module:
        return Line(self.clients[0][0].shape[1])

    def tensors(self, theta: np.ndarray) -> dict[str, torch.Tensor]:
        theta = torch.tensor(np.asarray(theta), dtype=torch.float64)
        return {"weight": theta[:-1], "bias": theta[-1:]}


@dataclass(frozen=True)
class Softmax:
    """f_i = mean_s -log p_s[y_s] with p = softmax(W x + b), so grad_W f_i = mean_s (p_s - e_{y_s}) x_s'."""

    clients: tuple[Client, ...]
    classes: int = 3
    task: str = field(default="classification", init=False)

    @property
    def sizes(self) -> list[int]:
        return [len(y) for _, y in self.clients]

    def gradient(self, i: int, theta: np.ndarray) -> np.ndarray:
        x, y = self.clients[i]
        weight, bias = theta[: -self.classes].reshape(self.classes, -1), theta[-self.classes :]
        scores = np.exp(x @ weight.T + bias)
        errors = scores / scores.sum(1, keepdims=True) - np.eye(self.classes)[y]
        return np.concatenate([(errors.T @ x / len(y)).ravel(), errors.mean(0)])

    def model(self) -> nn.Module:
        return nn.Linear(self.clients[0][0].shape[1], self.classes)

    def tensors(self, theta: np.ndarray) -> dict[str, torch.Tensor]:
        theta = torch.tensor(np.asarray(theta), dtype=torch.float64)
        return {"weight": theta[: -self.classes].reshape(self.classes, -1), "bias": theta[-self.classes :]}


Problem = Regression | Softmax

# Two clients for work by hand. A: one row, x = 1, y = 1. B: three equal rows, x = 0, y = -1/2. So
#   grad f_A = 2 (w + b - 1) (1, 1)   and   grad f_B = 2 (b + 1/2) (0, 1).
# With l = 1/8 a step multiplies A's residual by 1/2 and B's by 3/4. All rows of a client are equal, so a minibatch of
# any size has the full batch's gradient.
A, B = 0, 1
HAND = Regression(((np.ones((1, 1)), np.ones(1)), (np.zeros((3, 1)), np.full(3, -0.5))))
ZERO = np.zeros(2)
EIGHTH = 1 / 8


def _draw(rng: np.random.Generator, sizes: list[int], features: int) -> tuple[Client, ...]:
    """Clients that disagree: each has its own slope, offset and range of inputs."""
    rows = (
        (rng.normal(size=(n, features)) * rng.uniform(0.5, 1.5), rng.normal(size=features), rng.normal()) for n in sizes
    )
    return tuple((x, x @ slope + offset + 0.1 * rng.normal(size=len(x))) for x, slope, offset in rows)


PLANE = Regression(_draw(np.random.default_rng(1), [2, 5, 3, 4], features=2))
LINE = Regression(_draw(np.random.default_rng(2), [4, 1, 3], features=1))
SOFTMAX = Softmax(
    tuple(
        (np.random.default_rng(3 + n).normal(size=(n, 2)), np.random.default_rng(n).integers(0, 3, n))
        for n in (4, 2, 7, 3)
    )
)
START = np.array([0.5, -1.0, 0.25])
LINE_START = np.array([1.5, -0.75])
EVERYBODY = [[0, 1, 2, 3]] * 5
SOME = [[0, 2], [1, 3], [0, 1, 3], [2], [1, 2]]


def flat(tensors: dict[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensors[name].detach().numpy().ravel() for name in ("weight", "bias")])


def control_of(result: ft.Result, client: int) -> np.ndarray:
    """SCAFFOLD's c_i, which the client keeps besides its model."""
    return flat(without_prefix(result.client_state(client), "_control/"))


def run(problem: Problem, algorithm: ft.Algorithm, start, cohorts, backend="serial", **settings) -> ft.Result:
    """The library on this problem: full batch, float64, fixed start and cohorts, no evaluation."""
    settings = {"batch_size": None, "loss": problem.task, "evaluation": None, **settings}
    return ft.run(
        model=problem.model(),
        data=ft.data.FederatedData.from_clients(list(problem.clients)),
        algorithm=algorithm,
        rounds=len(cohorts),
        cohorts=cohorts,
        dtype=torch.float64,
        init=problem.tensors(start),
        backend=backend,
        **settings,
    )


def trace(result: ft.Result) -> np.ndarray:
    """The shared model after every round, one row each."""
    return np.array([flat(report.params) for report in result.history])


def assert_same(result: ft.Result, expected: np.ndarray, tolerance: float = 1e-12) -> None:
    """Every round's model is the reference's."""
    found = trace(result)
    assert found.shape == expected.shape
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
