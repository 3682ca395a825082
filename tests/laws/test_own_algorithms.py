"""Algorithms written as a user would: short, within the contracts, composed with FedNAR, and right."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client.optimizers import adamw
from fedtempo.contracts import distance, small_data
from fedtempo.params import zeros_like
from tests.own_algorithms import feddyn, fednova, halved, moon

OWN: dict[str, ft.Algorithm] = {
    "fednova": fednova(lr=0.1, epochs=2),
    "feddyn": feddyn(lr=0.1, steps=3),
    "moon": moon(lr=0.1, steps=3),
}


@pytest.mark.parametrize("name", OWN)
def test_they_keep_the_contract_alone_and_under_fednar(name: str) -> None:
    ft.check_algorithm(OWN[name])
    ft.check_algorithm(ft.algorithms.fednar(OWN[name], weight_decay=0.05, max_norm=0.5))


def test_a_hook_that_reads_the_direction_has_to_say_so() -> None:
    """Where nobody reads the direction, a pull is subtracted from the weights and is no part of it."""

    def directed(reads_start: bool) -> ft.Algorithm:
        def note(carry, step, received, now):
            return carry._replace(scratch={name: carry.scratch[name] + step.direction[name] for name in carry.scratch})

        plain = ft.algorithms.fedprox(lr=0.1, steps=3, mu=0.5)
        start = ft.Memory(begin=lambda received, personal: (personal, zeros_like(received.shared)))
        phases = tuple(p.hooked(ft.Hook(after=note, reads_start=reads_start)) for p in plain.phases)
        return replace(
            plain, phases=phases, memory=start, uploads=ft.Uploads(lambda received, carry: {"delta": carry.scratch})
        )

    ft.check_algorithm(directed(True))
    with pytest.raises(AssertionError, match="has reads_start=True in each Hook whose `after` reads the start"):
        ft.check_algorithm(directed(False))


@pytest.mark.parametrize("name", ["after", "after_reads_start", "look", "stop_rule"])
def test_a_setting_that_is_a_part_of_a_hook_now_says_so(name: str) -> None:
    part = {"after_reads_start": "reads_start"}.get(name, name)
    with pytest.raises(ft.ConfigError, match=rf"^{name} must be given in a hook: Phase\(..., hooks=\(ft.Hook\({part}="):
        ft.algorithms.fedavg(lr=0.1, steps=1).with_phases(lambda phase: replace(phase, **{name: None}))


def test_two_methods_may_not_both_set_where_gradients_are_taken() -> None:
    look = ft.Hook(look=lambda gradient_at, view, now: gradient_at)
    with pytest.raises(ft.ConfigError, match=r"hooks \(look\) must be given by one method"):
        ft.algorithms.fedavg(lr=0.1, steps=1).with_phases(lambda phase: phase.hooked(look, look))


@pytest.mark.parametrize("build", [fednova, feddyn, moon])
def test_they_are_short(build: Callable[..., ft.Algorithm]) -> None:
    lines = inspect.getsource(inspect.unwrap(build)).splitlines()
    code = [line for line in lines if line.strip() and '"""' not in line and not line.startswith("@")]
    assert len(code) < 20


class Line(nn.Module):
    """y = w, so that f_i(w) = (w - c_i)^2 for rows c_i."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.expand(len(x), 1)


def points(*clients: list[float]) -> ft.data.FederatedData:
    columns = [{"x": np.zeros((len(rows), 1)), "y": np.array(rows)[:, None]} for rows in clients]
    return ft.data.FederatedData.from_clients(columns, validation=0, test=0)


def run(algorithm: ft.Algorithm, data: ft.data.FederatedData, **settings: object) -> float:
    defaults = {"model": Line(), "batch_size": 1, "rounds": 1, "dtype": torch.float64, "evaluation": None}
    result = ft.run(algorithm=algorithm, data=data, **{**defaults, **settings})  # type: ignore[arg-type]
    return float(result.params["w"])


def test_fednova_by_hand() -> None:
    """Rows 1 | 2, 2 and one epoch at rate 0.25: steps w <- w + 0.5 (c - w) lead to 0.5 in one and to 1.5 in two.

    Weights 1/3 and 2/3: tau_eff = 5/3, mean Delta_i / tau_i = 0.5 / 3 + 2/3 * 0.75 = 2/3, so x = 10/9.
    """
    assert run(fednova(lr=0.25), points([1.0], [2.0, 2.0])) == pytest.approx(10 / 9, abs=1e-12)


def test_fednova_with_equal_work_is_fedavg() -> None:
    data = small_data()
    settings = {
        "model": ft.models.mlp(6, [5], 4),
        "data": data,
        "rounds": 3,
        "batch_size": None,
        "dtype": torch.float64,
    }
    nova = ft.run(algorithm=fednova(lr=0.1), evaluation=None, **settings)
    average = ft.run(algorithm=ft.algorithms.fedavg(0.1, 1, weighting="samples"), evaluation=None, **settings)
    assert distance(nova, average) < 1e-12


def test_feddyn_finds_the_minimum_that_fedavg_misses() -> None:
    """Clients that solve their problem: FedDyn's fixed point is the minimum of the mean, whatever the clients' rows."""
    data = points([1.0], [2.0], [6.0])
    assert run(feddyn(lr=0.3, steps=40, alpha=1.0), data, rounds=30) == pytest.approx(3.0, abs=1e-6)


def test_moon_without_its_term_is_fedavg_and_with_it_stays_nearer() -> None:
    settings = {
        "model": ft.models.mlp(6, [5], 4),
        "data": small_data(),
        "rounds": 3,
        "dtype": torch.float64,
        "batch_size": 4,
    }
    plain = ft.run(algorithm=ft.algorithms.fedavg(0.1, 3), evaluation=None, **settings)
    without = ft.run(algorithm=moon(0.1, 3, mu=0.0), evaluation=None, **settings)
    assert all(torch.allclose(plain.params[n], t, rtol=1e-12, atol=1e-12) for n, t in without.params.items())
    with_it = ft.run(algorithm=moon(0.1, 3, mu=5.0), evaluation=None, **settings)
    assert distance(plain, with_it) > 1e-4


def test_an_own_algorithm_takes_the_clients_settings() -> None:
    """`**clients: Unpack[ft.ClientSettings]` gives it optimizer=, trains= and accumulate=, checked and printed."""
    algorithm = halved(0.1, 2, optimizer=adamw(), trains=ft.params.submodule("head"))
    assert repr(algorithm).startswith("halved(lr=0.1, steps=2, optimizer=adamw()")
    ft.check_algorithm(algorithm)
    with pytest.raises(ft.ConfigError, match="accumulate must be an int"):
        halved(0.1, 2, accumulate="two")
