"""Selectors: patterns, and how they compose."""

from __future__ import annotations

import pytest
from torch import nn

import fedtempo as ft
from fedtempo.params import everything, matching, nothing, of_type, submodule

MODEL = nn.ModuleDict(
    {
        "body": nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)),
        "head": nn.Linear(3, 1),
    }
)
ALL = everything.names(MODEL)


def names(selector: ft.params.Selector) -> frozenset[str]:
    return selector.names(MODEL)


PAIRS = [
    (submodule("head"), matching("*.bias")),
    (of_type(nn.BatchNorm1d), submodule("body.*")),
    (matching("body.0.*", "head.*"), nothing),
    (everything, submodule("body.1")),
]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_selectors_are_sets(a: ft.params.Selector, b: ft.params.Selector) -> None:
    assert names(a | b) == names(a) | names(b)
    assert names(a & b) == names(a) & names(b)
    assert names(~a) == ALL - names(a)
    assert names(~(a | b)) == names(~a & ~b)


def test_patterns() -> None:
    assert names(submodule("body.*")) == {n for n in ALL if n.startswith("body.")}
    assert names(matching("*.0.*", "head.bias")) == {"body.0.weight", "body.0.bias", "head.bias"}


def test_they_print_as_they_compose() -> None:
    assert repr(~submodule("head") & matching("*.bias")) == "(not (submodule 'head') and names like '*.bias')"


WITH_ARGUMENTS = {
    "fedsgd": {"lr": 0.1},
    "feddecay": {"lr": 0.1, "beta": 0.5, "steps": 2},
    "pflego": {"head_lr": 0.1, "server_lr": 0.1, "steps": 2},
    "fedrep": {"lr": 0.1, "head_steps": 1, "body_steps": 1},
    "fedrecon": {"lr": 0.1, "head_lr": 0.1, "head_steps": 1},
    "fedrecon_stateful": {"head_lr": 0.1, "server_lr": 0.1, "head_steps": 1},
    "pfedme": {"local_rounds": 1},
}
WRAPPERS = {"fednar", "clip_then_decay"}


@pytest.mark.parametrize("name", sorted(set(ft.algorithms.ALGORITHMS) - WRAPPERS))
def test_every_algorithm_moves_only_what_it_is_told(name: str) -> None:
    from fedtempo.contracts import small_data

    algorithm = ft.algorithms.ALGORITHMS[name](
        **WITH_ARGUMENTS.get(name, {"lr": 0.1, "steps": 2}), trains=matching("*.weight"), accumulate=2
    )
    model = ft.models.mlp(6, [5], 4)
    result = ft.run(model=model, data=small_data(), algorithm=algorithm, rounds=1, backend="serial", evaluation=None)
    first = result.experiment.first_shared
    start = result.experiment.federation.first_personal(0, first)
    assert all(n.endswith(".weight") for n in result.experiment.federation.trained_names)
    assert all((t == first[n]).all() for n, t in result.params.items() if n.endswith(".bias"))
    kept = result.client_state(0)
    assert all((t == start[n]).all() for n, t in kept.items() if n.endswith(".bias") and name != "scaffold")
