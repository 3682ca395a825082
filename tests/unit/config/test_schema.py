"""A file's fields have the rules of the calls that they are settings of."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.config import parse
from fedtempo.training.checks.settings import MOST_ROUNDS
from tests.one_weight import OneWeight, clients_of


@pytest.mark.parametrize("rounds", [0, MOST_ROUNDS + 1, True])
def test_a_file_and_a_call_say_the_same_of_the_rounds(rounds: int) -> None:
    tables = {"data": {"name": "digits"}, "model": {"name": "mlp"}, "algorithm": {"name": "fedsgd", "lr": 0.1}}
    algorithm = ft.algorithms.fedsgd(lr=0.1)
    with pytest.raises(ft.ConfigError) as of_file:
        parse({"rounds": rounds, **tables})
    with pytest.raises(ft.ConfigError) as of_call:
        ft.run(model=OneWeight(), data=clients_of([1.0]), algorithm=algorithm, rounds=rounds)
    assert str(of_file.value) == str(of_call.value) == f"rounds must be an int in [1, {MOST_ROUNDS}]. Got {rounds}."
