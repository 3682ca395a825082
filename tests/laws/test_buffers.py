"""Models with masks and counters among their buffers train like others, and the buffers stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.contracts import small_data
from tests.own_algorithms import moon
from tests.slow import slow_but
from tests.zoo import ALGORITHMS

PLAIN = ("fedavg", "scaffold", "fednova", "ditto", "fednar", "fedexp", "q_fedavg")


class Masked(nn.Module):
    """Looks at four of six features, which a mask of truth values names; counts in whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 4)
        self.register_buffer("mask", torch.tensor([True, True, False, True, True, False]))
        self.register_buffer("scale", torch.tensor([1, 2, 3, 4, 5], dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.mask, torch.Tensor) and isinstance(self.scale, torch.Tensor)
        return self.head(torch.relu(self.body(x * self.mask)) * self.scale)  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("name", slow_but(PLAIN, ALGORITHMS, "uploads of the others are made in the same way"))
def test_masks_and_counters_stay_what_they_are(name: str, backend: str) -> None:
    if "lora" in name or "bn" in name:
        pytest.skip("needs another model")
    torch.manual_seed(0)
    model = Masked()
    settings = {"model": model, "data": small_data(), "algorithm": ALGORITHMS[name], "rounds": 2, "cohort": 4}
    result = ft.run(**settings, batch_size=4, backend=backend, evaluation=None, progress=False)
    for buffer, first in model.named_buffers():
        if buffer in result.params:  # FedEM has one for each of its components
            assert bool((result.params[buffer] == first).all()) and result.params[buffer].dtype == first.dtype
    if name != "local only":
        assert any(not torch.equal(result.params[n], p) for n, p in model.named_parameters() if n in result.params)


class Tracks(nn.Module):
    """Keeps a mean and the last rows, which no output of the same batch depends on."""

    def __init__(self, assigns: bool) -> None:
        super().__init__()
        self.layer, self.assigns = nn.Linear(6, 4), assigns
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("rows", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(x - self.mean)
        if self.training and self.assigns:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.rows = self.rows + len(x)
        elif self.training:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.rows.add_(len(x))
        return outputs  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_buffer_may_be_assigned_or_written(backend: str) -> None:
    data = small_data()
    settings = {"data": data, "algorithm": ft.algorithms.fedavg(lr=0.1, epochs=1), "rounds": 2}
    torch.manual_seed(0)
    model = Tracks(True)
    results = []
    for assigns in (True, False):
        model.assigns = assigns
        result = ft.run(**settings, model=model, batch_size=4, backend=backend, dtype=torch.float64, progress=False)
        results.append(result.at("last").shared)
    # Every client sees each of its rows once a round; padding rows of a batch are not counted.
    assert float(results[0]["rows"]) == pytest.approx(2 * data.sizes()[data.clients].mean(), abs=1e-12)
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=0, atol=1e-12)
    assert bool(results[0]["mean"].any())


class Follows(nn.Module):
    """Batch normalisation, and a mean that it writes in place, also while it predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)), nn.Linear(5, 4)
        self.register_buffer("centre", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.centre, torch.Tensor)
        features = self.body(x)
        outputs = self.head(features - self.centre)
        self.centre.mul_(0.9).add_(0.1 * features.detach().mean(0))
        return outputs  # type: ignore[no-any-return]


def followed(algorithm: ft.Algorithm, **settings: Any) -> ft.Result:
    torch.manual_seed(0)
    usual: dict[str, Any] = {"rounds": 2, "batch_size": None, "dtype": torch.float64, "progress": False}
    return ft.run(model=Follows().double(), data=small_data(), algorithm=algorithm, **{**usual, **settings})


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_looking_at_another_models_features_writes_nothing(backend: str) -> None:
    """An algorithm of one's own may look in training mode: without weight, that changes no statistic either."""
    looking = followed(moon(lr=0.1, steps=2, mu=0.0), backend=backend, evaluation=None)
    plain = followed(ft.algorithms.fedavg(lr=0.1, steps=2), backend=backend, evaluation=None)
    for name, tensor in plain.params.items():
        torch.testing.assert_close(looking.params[name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "fedbn averaged"])
def test_a_model_may_write_while_it_predicts(name: str) -> None:
    serial, together = (followed(ALGORITHMS[name], backend=backend) for backend in ("serial", "vectorised"))
    for group, scores in serial.scores.groups().items():
        assert together.scores.groups()[group].values["loss"] == pytest.approx(scores.values["loss"], abs=1e-10)


def normalised() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)).double()


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_statistics_that_are_not_averaged_stay_with_their_clients(backend: str) -> None:
    """Users were served means of 0 and variances of 1 for ever: nobody kept what clients had measured."""
    data, rate, rounds = small_data(), 0.1, 3
    result = ft.run(
        model=normalised(), init="model", data=data, rounds=rounds, batch_size=None, dtype=torch.float64,
        algorithm=ft.algorithms.fedavg(rate, steps=2, average_buffers=False), evaluation=None, backend=backend,
    )  # fmt: skip
    clients = data.clients.tolist()
    models = {client: normalised() for client in clients}
    for _ in range(rounds):
        for client, model in models.items():
            rows = data.client(client, dtype=torch.float64)
            for _ in range(2):
                model.zero_grad()
                nn.functional.cross_entropy(model(rows["x"]), rows["y"]).backward()
                torch.optim.SGD(model.parameters(), rate).step()
        for name, _ in normalised().named_parameters():
            mean = torch.stack([model.get_parameter(name).detach() for model in models.values()]).mean(0)
            for model in models.values():
                model.get_parameter(name).data.copy_(mean)
    for client, model in models.items():
        served = result.model(client=client).state_dict()
        for name in ("1.running_mean", "1.running_var", "0.weight", "3.bias"):
            torch.testing.assert_close(served[name], model.state_dict()[name], rtol=1e-9, atol=1e-12)
    assert not set(result.experiment.federation.moving_names) & {"1.running_mean", "1.running_var"}
