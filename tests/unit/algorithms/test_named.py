"""What every algorithm takes besides its own settings reaches its phases, or is refused."""

from __future__ import annotations

from typing import Unpack

import pytest

import fedtempo as ft
from fedtempo.algorithms.named import phase_settings
from fedtempo.client.phase import Phase, length
from fedtempo.client.transforms import sgd
from fedtempo.schedules import as_schedule
from fedtempo.server.step import descend


@ft.named
def forgets(lr: float, steps: int, **clients: Unpack[ft.ClientSettings]) -> ft.Algorithm:
    """Takes the clients' settings, and does not pass them on."""
    return ft.Algorithm((Phase(length(steps), as_schedule(lr)),), server=descend(sgd(1.0)))


@ft.named
def passes(lr: float, steps: int, **clients: Unpack[ft.ClientSettings]) -> ft.Algorithm:
    """Takes the clients' settings, and passes them on."""
    return ft.Algorithm((Phase(length(steps), as_schedule(lr), **phase_settings(clients)),), server=descend(sgd(1.0)))


GIVEN: list[ft.ClientSettings] = [
    {"optimizer": ft.optimizers.adam()},
    {"trains": ft.params.submodule("head")},
    {"accumulate": 2},
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: next(iter(given)))
def test_a_setting_of_clients_that_no_phase_gets_is_refused(given: ft.ClientSettings) -> None:
    with pytest.raises(
        ft.ConfigError, match=rf"{next(iter(given))} of forgets must be such that it reaches a phase.*\*\*clients"
    ):
        forgets(lr=0.1, steps=2, **given)
    passes(lr=0.1, steps=2, **given)


def test_settings_that_are_those_of_a_plain_phase_need_not_be_passed_on() -> None:
    forgets(lr=0.1, steps=2, compress=ft.compress.top_k(0.5))
    forgets(lr=0.1, steps=2, accumulate=1)


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: next(iter(given)))
def test_our_algorithms_pass_them_on(given: ft.ClientSettings) -> None:
    for build in (ft.algorithms.fedavg, ft.algorithms.fedprox, ft.algorithms.scaffold):
        build(lr=0.1, steps=2, **given)
    ft.algorithms.feddecay(lr=0.1, beta=0.5, steps=2, **given)
    ft.algorithms.pflego(head_lr=0.1, server_lr=0.1, steps=2, **given)
