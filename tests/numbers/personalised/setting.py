"""The small federations the personalised algorithms are checked on, and how a run is compared with a reference."""

from collections.abc import Iterable, Mapping

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft

BODY = ("body.0.weight", "body.0.bias")
HEAD = ("head.weight", "head.bias")
SIZES = (2, 3, 5, 4)
FULL = [[0, 1, 2, 3]] * 5
PARTIAL = [[0, 2], [1, 3], [2, 3], [0, 1, 2], [3]]
NORM = ("body.1.weight", "body.1.bias", "body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked")
TOLERANCE = 1e-12

Arrays = dict[str, np.ndarray]
Rows = tuple[np.ndarray, np.ndarray]

both_backends = pytest.mark.parametrize("backend", ["serial", "vectorised"])
both_participations = pytest.mark.parametrize("cohorts", [FULL, PARTIAL], ids=["everybody", "some"])


class SplitNet(nn.Module):
    """Features tanh(A x + a) of two numbers, logits B h + b."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        self.head = nn.Linear(2, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class ScalarNet(nn.Module):
    """Output w theta x: one shared number theta, one personal number w."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(1, 1, bias=False)
        self.head = nn.Linear(1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class NormNet(nn.Module):
    """SplitNet with BatchNorm before the tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Tanh())
        self.head = nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def draw_rows(random: np.random.Generator, size: int, classes: int = 3) -> Rows:
    return random.normal(size=(size, 3)), random.integers(0, classes, size)


def draw_head(random: np.random.Generator, classes: int = 3) -> Arrays:
    return {"head.weight": random.normal(size=(classes, 2)), "head.bias": random.normal(size=classes)}


_random = np.random.default_rng(20240607)
CLIENTS: list[Rows] = [draw_rows(_random, n) for n in SIZES]
NEWCOMER: Rows = draw_rows(_random, 6)
THETA: Arrays = {"body.0.weight": _random.normal(size=(2, 3)), "body.0.bias": _random.normal(size=2)}
COMMON_HEAD: Arrays = draw_head(_random)
START: Arrays = {**THETA, **COMMON_HEAD}
GIVEN_HEADS: dict[int, Arrays] = {1: draw_head(_random), 3: draw_head(_random)}
HEADS: dict[int, Arrays] = {i: GIVEN_HEADS.get(i, COMMON_HEAD) for i in range(4)}


def _components(count: int) -> Arrays:
    """Stacked first components, all different."""
    return {n: np.stack([a + 0.5 * m * _random.normal(size=a.shape) for m in range(count)]) for n, a in START.items()}


COMPONENTS: dict[int, Arrays] = {count: _components(count) for count in (1, 2, 3)}


def first_norm_state() -> dict[str, torch.Tensor]:
    """A start with BatchNorm tensors that are not the usual ones and zeros."""
    random = np.random.default_rng(17)
    model = NormNet().double()
    state = {n: torch.from_numpy(random.normal(size=t.shape)) for n, t in model.state_dict().items() if t.dim()}
    state["body.1.running_var"] = torch.tensor([0.5, 2.0], dtype=torch.float64)
    return {**state, "body.1.num_batches_tracked": torch.tensor(0)}


def tensors(arrays: Mapping[str, np.ndarray | torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(a).clone() for name, a in arrays.items()}


def run(
    algorithm: ft.Algorithm,
    cohorts: list[list[int]] | None = None,
    *,
    backend: str = "serial",
    clients: list[Rows] = CLIENTS,
    outputs: list[int] | None = None,
    start: Mapping[str, np.ndarray] | None = START,
    starts: Mapping[int, Mapping[str, np.ndarray]] | None = None,
    **settings: object,
) -> ft.Result:
    """A float64 run on full batches, unless `settings` say otherwise."""
    chosen: dict[str, object] = {
        "model": SplitNet(),
        "data": ft.data.FederatedData.from_clients(clients, outputs=outputs),
        "algorithm": algorithm,
        "rounds": len(cohorts) if cohorts else 1,
        "cohorts": cohorts,
        "batch_size": None,
        "dtype": torch.float64,
        "init": None if start is None else tensors(start),
        "init_clients": {i: tensors(own) for i, own in (starts or {}).items()},
        "backend": backend,
        "evaluation": None,
    }
    return ft.run(**(chosen | settings))


def run_scalar(
    algorithm: ft.Algorithm,
    targets: list[list[float]],
    cohorts: list[list[int]],
    *,
    start: Mapping[str, float],
    model: nn.Module | None = None,
    **settings: object,
) -> ft.Result:
    """A hand-worked case: every x is 1, client i has these targets, the loss is the mean of (output - y)^2.

    `start` holds one number per tensor; a head among them is every client's first head.
    """
    clients = [(np.ones((len(y), 1)), np.array(y, dtype=np.float64)) for y in targets]
    first = {name: np.array([[value]]) for name, value in start.items()}
    heads = {n: v for n, v in first.items() if n.startswith("head.") and algorithm.personal.names(ScalarNet())}
    settings.setdefault("starts", dict.fromkeys(range(len(clients)), heads))
    return run(
        algorithm, cohorts, clients=clients, start=first, model=model or ScalarNet(), loss="regression", **settings
    )


def gap(actual: Mapping[str, torch.Tensor], expected: Mapping[str, object]) -> float:
    """The largest difference; names and shapes must be the same."""
    assert set(actual) == set(expected)
    worst = 0.0
    for name, value in expected.items():
        found = actual[name].detach().numpy()
        assert found.shape == np.shape(value), name
        worst = max(worst, float(np.abs(found - np.asarray(value)).max()))
    return worst


def assert_close(
    actual: Mapping[str, torch.Tensor], expected: Mapping[str, object], tolerance: float = TOLERANCE
) -> None:
    assert gap(actual, expected) <= tolerance


def assert_personal(
    result: ft.Result, expected: Mapping[int, Mapping[str, np.ndarray]], tolerance: float = TOLERANCE
) -> None:
    for client, own in expected.items():
        assert_close(result.client_state(client), own, tolerance)


def assert_same_bits(
    a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor], names: Iterable[str] | None = None
) -> None:
    for name in a if names is None else names:
        assert torch.equal(a[name], b[name]), name


def scalar(params: Mapping[str, torch.Tensor], name: str) -> float:
    return float(params[name].reshape(()))
