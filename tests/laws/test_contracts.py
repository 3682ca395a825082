"""Every algorithm and every backend keeps the public contracts."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.backends import BACKENDS
from tests import zoo
from tests.slow import slow_but


@pytest.mark.parametrize(
    "name", slow_but(zoo.MECHANISMS, zoo.ALGORITHMS, "one algorithm of every mechanism runs every time")
)
def test_every_algorithm_keeps_its_contract(name: str) -> None:
    ft.check_algorithm(zoo.ALGORITHMS[name])


@pytest.mark.parametrize("name", slow_but(["fedex_lora"], zoo.LORA, "the one that does most runs every time"))
def test_every_algorithm_for_adapters_keeps_its_contract(name: str) -> None:
    ft.check_algorithm(zoo.LORA[name], model=zoo.model("lora"))


def test_every_algorithm_of_the_library_is_in_the_zoo() -> None:
    assert {a.name for a in zoo.EVERYTHING.values()} == set(ft.algorithms.ALGORITHMS)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_keeps_its_contract(name: str) -> None:
    ft.check_backend(BACKENDS[name])
