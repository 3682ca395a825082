"""A mean direction is a displacement over the sum of a client's rates, which a warm-up begins with 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedtempo as ft
from tests.plain_loop import federated, random_clients


def ends(algorithm: ft.Algorithm, rounds: int, **settings: Any) -> dict[str, torch.Tensor]:
    data, model = federated(random_clients()), ft.models.mlp(6, [4], 3)
    whole = {"batch_size": None, "evaluation": None, **settings}
    return ft.run(model=model, data=data, algorithm=algorithm, rounds=rounds, **whole).params


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("method", [ft.algorithms.fedcm, ft.algorithms.scaffold])
def test_a_first_round_at_rate_0_leaves_everything_as_it_was(method: Any, backend: str, dtype: torch.dtype) -> None:
    """In 32 bits FedCM's clients sent 0 / 0, and the run ended with the advice to lower the rate."""
    settings = {"backend": backend, "dtype": dtype}
    warm = ends(method(lr=lambda now: 0.1 if now.round else 0.0, steps=2), 3, **settings)
    plain = ends(method(lr=0.1, steps=2), 2, **settings)
    assert all(torch.equal(warm[name], tensor) for name, tensor in plain.items())
