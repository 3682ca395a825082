"""Muon at the clients, against its formulas in numpy: MuLoCo's inner step on matrices, AdamW on everything else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.errors import ConfigError

TABLES = {
    "muloco": [
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ],
    "quintic": [(3.4445, -4.775, 2.0315)] * 5,
}
LR, MU, DECAY, B1, B2, EPS, STEPS, ROUNDS = 0.05, 0.9, 0.1, 0.9, 0.99, 1e-8, 3, 2


class Net(nn.Module):
    """A wide matrix, a tall one and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 5), nn.Tanh())
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.body(x))


def net() -> nn.Module:
    torch.manual_seed(3)
    return Net().double()


def rows() -> ft.data.FederatedData:
    rng = np.random.default_rng(1)
    return ft.data.FederatedData.from_clients([(rng.standard_normal((8, 6)), rng.integers(0, 2, 8))])


def turned(matrix: np.ndarray, table: str) -> np.ndarray:
    """NS(U), pass by pass, as the specification writes it."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / (np.linalg.norm(matrix) + 1e-7)
    for c1, c2, c3 in TABLES[table]:
        z = x @ x.T
        x = c1 * x + (c2 * z + c3 * z @ z) @ x
    return x.T if tall else x


def reference(matrices: set[str], table: str, scale: str, nesterov: bool) -> dict[str, np.ndarray]:
    model, batch = net(), rows().client(0, dtype=torch.float64)
    state = {name: [np.zeros(p.shape), np.zeros(p.shape), 0] for name, p in model.named_parameters()}
    for _ in range(STEPS * ROUNDS):
        model.zero_grad()
        nn.functional.cross_entropy(model(batch["x"]), batch["y"]).backward()
        for name, p in model.named_parameters():
            g, y, own = p.grad.numpy(), p.detach().numpy(), state[name]
            if name in matrices:
                own[0] = MU * own[0] + g
                n, m = y.shape
                factor = np.sqrt(n / m) if scale == "spectral" else 0.2 * np.sqrt(max(n, m))
                direction = factor * turned(g + MU * own[0] if nesterov else own[0], table)
            else:
                own[2] += 1
                own[0], own[1] = B1 * own[0] + (1 - B1) * g, B2 * own[1] + (1 - B2) * g**2
                direction = own[0] / (1 - B1 ** own[2]) / (np.sqrt(own[1] / (1 - B2 ** own[2])) + EPS)
            with torch.no_grad():
                p.copy_(torch.from_numpy((1 - LR * DECAY) * y - LR * direction))
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


HIDDEN = {"body.0.weight", "body.2.weight"}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize(
    ("settings", "matrices"),
    [
        ({}, HIDDEN),
        ({"newton_schulz": "quintic", "nesterov": True, "scale": "rms"}, HIDDEN),
        ({"matrices": "all"}, {*HIDDEN, "head.weight"}),
        ({"matrices": ft.params.matching("body.2.weight")}, {"body.2.weight"}),
    ],
)
def test_steps_are_those_of_the_formulas(backend, settings, matrices):
    """The state stays with the client: two rounds of three steps are six steps."""
    optimizer = ft.optimizers.muon(MU, b1=B1, b2=B2, eps=EPS, weight_decay=DECAY, **settings)
    result = ft.run(
        model=net(), init="model", data=rows(), algorithm=ft.algorithms.fedavg(LR, STEPS, optimizer=optimizer),
        rounds=ROUNDS, batch_size=None, dtype=torch.float64, evaluation=None, backend=backend,
    )  # fmt: skip
    named = {"newton_schulz": "muloco", "scale": "spectral", "nesterov": False, **settings}
    expected = reference(matrices, named["newton_schulz"], named["scale"], named["nesterov"])
    for name, value in expected.items():
        np.testing.assert_allclose(result.model().state_dict()[name].numpy(), value, rtol=1e-9, atol=1e-10)


def test_personal_heads_step_beside_matrices():
    algorithm = ft.algorithms.fedper(0.05, 2, optimizer=ft.optimizers.muon())
    settings = {"model": net(), "init": "model", "data": rows(), "rounds": 2, "dtype": torch.float64}
    settings |= {"batch_size": None, "evaluation": None}
    one, other = (ft.run(algorithm=algorithm, **settings, backend=backend) for backend in ("serial", "vectorised"))
    heads = [result.model(client=0).state_dict() for result in (one, other)]
    for name, value in heads[0].items():
        torch.testing.assert_close(value, heads[1][name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        (lambda: nn.Linear(6, 2), {}, "matrices must be said for a model without a submodule 'head'"),
        (net, {"matrices": ft.params.matching("*.bias")}, "matrices must be a selector of tensors of two or more"),
    ],
)
def test_models_whose_matrices_cannot_be_told_are_refused(model, settings, said):
    algorithm = ft.algorithms.fedavg(0.1, 1, optimizer=ft.optimizers.muon(**settings))
    with pytest.raises(ConfigError, match=said):
        ft.run(model=model(), data=rows(), algorithm=algorithm, rounds=1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mu": 1.0}, "mu must be a number in [0, 1). Got 1.0."),
        ({"newton_schulz": "cubic"}, "newton_schulz must be 'muloco' or 'quintic'. Got 'cubic'."),
        ({"scale": "none"}, "scale must be 'spectral' or 'rms'. Got 'none'."),
    ],
)
def test_wrong_settings(settings, said):
    with pytest.raises(ConfigError) as error:
        ft.optimizers.muon(**settings)
    assert str(error.value) == said


def test_wrappers_that_bound_a_direction_refuse_it():
    muon = ft.algorithms.fedavg(0.1, 1, optimizer=ft.optimizers.muon(weight_decay=0.0))
    with pytest.raises(ConfigError, match="muon"):
        ft.algorithms.fednar(muon, weight_decay=0.01, max_norm=1.0)
    with pytest.raises(ConfigError, match="muon"):
        ft.algorithms.with_server(ft.algorithms.fedavg(0.1, 1), ft.optimizers.muon())
