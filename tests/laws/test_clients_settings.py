"""What every algorithm takes: `trains=`, `accumulate=`, `optimizer=`."""

from __future__ import annotations

import inspect

import pytest

import fedtempo as ft
from fedtempo.contracts import small_data
from fedtempo.params import matching
from tests import zoo

WITH_ARGUMENTS = {
    "fedsgd": {"lr": 0.1},
    "q_fedsgd": {"lr": 0.1},
    "afl": {"lr": 0.1, "weights_lr": 0.1},
    "feddecay": {"lr": 0.1, "beta": 0.5, "steps": 2},
    "pflego": {"head_lr": 0.1, "server_lr": 0.1, "steps": 2},
    "fedrep": {"lr": 0.1, "head_steps": 1, "body_steps": 1},
    "fedrecon": {"lr": 0.1, "head_lr": 0.1, "head_steps": 1},
    "fedrecon_stateful": {"head_lr": 0.1, "server_lr": 0.1, "head_steps": 1},
    "pfedme": {"local_rounds": 1},
}
WRAPPERS = {
    name for name, build in ft.algorithms.ALGORITHMS.items() if "algorithm" in inspect.signature(build).parameters
}


@pytest.mark.parametrize("name", sorted(set(ft.algorithms.ALGORITHMS) - WRAPPERS))
def test_every_algorithm_moves_only_what_it_is_told(name: str) -> None:
    algorithm = ft.algorithms.ALGORITHMS[name](
        **WITH_ARGUMENTS.get(name, {"lr": 0.1, "steps": 2}), trains=matching("*.weight"), accumulate=2
    )
    model = zoo.model("lora") if name in zoo.LORA else ft.models.mlp(6, [5], 4)
    result = ft.run(model=model, data=small_data(), algorithm=algorithm, rounds=1, backend="serial", evaluation=None)
    first = result.experiment.first_shared
    start = result.experiment.federation.first_personal(0, first)
    assert all(n.endswith(".weight") for n in result.experiment.federation.trained_names)
    assert all((t == first[n]).all() for n, t in result.params.items() if n.endswith(".bias"))
    kept = result.client_state(0)
    assert all((t == start[n]).all() for n, t in kept.items() if n.endswith(".bias") and name != "scaffold")
