"""A model is tried before training: what it draws can be repeated, and it predicts the same for the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fedtempo as ft
from fedtempo.training.prepare import prepare
from tests.slow import slow_but


def clients(sizes: tuple[int, ...] = (5, 9, 13, 22)) -> ft.data.FederatedData:
    rng = np.random.default_rng(0)
    return ft.data.FederatedData.from_clients([(rng.standard_normal((n, 8)), rng.integers(0, 3, n)) for n in sizes])


def run(model: type[nn.Module], backend: str = "serial", **settings: object) -> ft.Result:
    defaults = {
        "data": clients(),
        "algorithm": ft.algorithms.fedavg(lr=0.1, epochs=2),
        "rounds": 2,
        "batch_size": 8,
        "dtype": torch.float64,
        "progress": False,
    }
    return ft.run(model=model, backend=backend, **{**defaults, **settings})


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def hidden(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x))


class Noise(Two):
    def hidden(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return h + 0.1 * torch.randn_like(h) if self.training else h


class DropPath(Two):
    """As in many vision models: whole rows are left out, by a mask of few numbers."""

    def hidden(self, x: Tensor) -> Tensor:
        h = torch.relu(self.body(x))
        return x + h * x.new_empty(len(x), 1).bernoulli_(0.8).div_(0.8) if self.training else x + h


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.view(-1, 2, 4)).flatten(1))


class RowsSecond(Encoder):
    """Masks are drawn with rows in the second place, so a padding row would change those of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.view(-1, 2, 4).transpose(0, 1)).transpose(0, 1).flatten(1))


@pytest.mark.parametrize(
    "model", slow_but([Noise, RowsSecond], [Noise, DropPath, Encoder, RowsSecond], "the rarer way to draw masks runs")
)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_random_numbers_of_a_model_are_the_same_on_every_backend(model: type[nn.Module]) -> None:
    short = {"rounds": 1, "algorithm": ft.algorithms.fedavg(lr=0.1, epochs=1)}
    serial = run(model, **short)
    assert serial.digest() == run(model, **short).digest() == run(model, "processes", workers=2, **short).digest()
    assert ft.contracts.distance(serial, run(model, "vectorised", **short)) < 1e-12


class Keeps(nn.Module):
    """Dropout without `training=self.training`: a common mistake, by which scores change from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(F.dropout(x, 0.01))


class Permutes(Two):
    def hidden(self, x: Tensor) -> Tensor:
        return self.body(x)[:, torch.randperm(8)] if self.training else self.body(x)


class Numpys(Two):
    def hidden(self, x: Tensor) -> Tensor:
        return self.body(x) * (1 + np.random.random() if self.training else 1)


class Checkpointed(Two):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.hidden, x, use_reentrant=False))


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (Keeps, r"predict without random numbers: .*training=self\.training"),
        (Permutes, r"draw random numbers by dropout, torch\.rand, .* Got others"),
        (Numpys, r"draw random numbers by dropout, torch\.rand, .* Got others"),
        (Checkpointed, "trainable with weights that come from outside,.*no gradient checkpointing"),
    ],
)
def test_what_would_not_repeat_is_refused(model: type[nn.Module], rule: str) -> None:
    with pytest.raises(ft.ModelError, match=rule):
        run(model)


def test_features_of_a_body_that_draws_are_not_reused() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = Noise(), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x))

    algorithm = ft.algorithms.fedrep(lr=0.1, head_steps=3, body_steps=1)
    serial, together = (run(Split, backend, algorithm=algorithm) for backend in ("serial", "vectorised"))
    assert not serial.experiment.federation.problem.network.body_is_pure()
    assert ft.contracts.distance(serial, together) < 1e-12


class Normed(Two):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def hidden(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.body(x)))


def test_a_new_client_of_one_row_is_refused_before_training_where_it_would_be_fine_tuned() -> None:
    rows = [(np.zeros((n, 8)), np.zeros(n, dtype=np.int64)) for n in (1, 8, 16)]
    scored = replace(ft.data.FederatedData.from_clients(rows, test=rows), held_out=np.array([0]))
    settings = {"model": Normed, "algorithm": ft.algorithms.fedavg(lr=0.1, steps=1), "rounds": 1, "batch_size": 8}
    with pytest.raises(ft.ModelError, match="cannot train on a batch of one row, and client 0 would have one"):
        prepare(data=scored, **settings)  # type: ignore[arg-type]
    run(Normed, data=scored, evaluation=ft.Evaluation(steps=0))
    run(Normed, data=scored, evaluation=None)


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        ([[0], [1], [1], [0]], r"without their second axis: y\[:, 0\]"),
        ([1, 2, 2, 1], "Number the classes from 0"),
        ([-1, 1, 1, -1], "Number the classes from 0"),
    ],
)
def test_labels_of_another_form_are_refused_with_what_to_do(labels: list[object], hint: str) -> None:
    data = ft.data.FederatedData.from_clients([(np.eye(4, dtype=np.float32), np.array(labels))])
    with pytest.raises(ft.ModelError, match=hint):
        ft.run(model=nn.Linear(4, 2), data=data, algorithm=ft.algorithms.fedsgd(lr=0.1), rounds=1)


def test_whole_numbers_as_inputs_of_a_layer_that_multiplies_are_named() -> None:
    clients = [(np.zeros((4, 3), np.uint8), np.array([0, 1, 0, 1])) for _ in range(2)]
    data = ft.data.FederatedData.from_clients(clients)
    with pytest.raises(ft.ModelError, match=r"'x' has torch.int64; layers that multiply need floats in the data"):
        ft.train(model=nn.Linear(3, 2), data=data, algorithm=ft.algorithms.fedavg(0.1, 1), rounds=1)


class WithProperties(Two):
    """Reading one may warn, cost time or fail."""

    @property
    def derived(self) -> int:
        raise AssertionError("this was read while the model was looked at")


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_looking_at_a_model_reads_none_of_its_properties(backend: str, tmp_path: Path) -> None:
    result = run(WithProperties, backend, out=tmp_path / "run", algorithm=ft.algorithms.fedper(lr=0.1, steps=1))
    assert result.client_state(0) and result.model(client=0)
    ft.check_model(WithProperties, data=clients())
