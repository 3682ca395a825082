"""A parameter that is a single number, such as a temperature, keeps its type where clients have rates of their own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.schedules import Now
from tests.zoo import data


class Scaled(nn.Module):
    """Has a temperature before the body and one after the head."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.tanh(self.body(x * self.before))) * self.after
        return output


def by_size(now: Now) -> float:
    return 0.3 / now.samples / (1 + 0.1 * now.step)


ALGORITHMS = {
    "fednova": a.fednova(lr=by_size, epochs=1, momentum=0.5, mu=by_size),
    "feddyn": a.feddyn(lr=by_size, epochs=1, max_norm=by_size),
    "fedspeed": a.fedspeed(lr=by_size, epochs=1, pull=by_size),
    "diloco": a.diloco(lr=by_size, epochs=1, weight_decay=by_size, max_norm=by_size),
    "fedadamw": a.fedadamw(lr=0.05, epochs=1),
    "fedmuon": a.fedmuon(lr=0.05, epochs=1),
    "pfedme": a.pfedme(lr=0.05, local_rounds=2, lam=lambda now: 5 + now.samples),
    "apfl": a.apfl(lr=by_size, epochs=1, adaptive=True, alpha_lr=by_size),
    "delta_sgd": a.delta_sgd(a.fedavg(lr=0.05, epochs=1)),
    "fedhyper_client": a.fedhyper_client(a.fedavg(lr=0.05, epochs=1)),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_temperature_keeps_its_type_side_by_side(name: str) -> None:
    """A lane's rate has 64 bits, and made such weights 64 bits too; then the step of a part of the lanes failed."""
    settings = {"model": Scaled, "data": data("mlp"), "rounds": 3, "cohort": 0.7, "batch_size": 4, "evaluation": None}
    alone, together = (ft.run(**settings, algorithm=ALGORITHMS[name], backend=b) for b in ("serial", "vectorised"))
    assert all(torch.allclose(tensor, together.params[n], rtol=0, atol=1e-5) for n, tensor in alone.params.items())
    for client in range(6):
        found, wanted = together.client_state(client), alone.client_state(client)
        assert {n: t.dtype for n, t in found.items()} == {n: t.dtype for n, t in wanted.items()}
