"""bfloat16 and autocast: what is stored, what is computed, and that both resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client.optimizers import adamw
from fedtempo.config import parse, settings_of
from fedtempo.contracts import distance, small_data

SETTINGS = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 3, "cohort": 4, "batch_size": 4}


@pytest.mark.parametrize("backend", ["serial", "vectorised", "processes"])
def test_a_model_of_bfloat16_trains_is_stored_and_resumes(tmp_path: Path, backend: str) -> None:
    algorithm = ft.algorithms.fedper(0.1, 2, optimizer=adamw(state="keep"))
    settings = {**SETTINGS, "algorithm": algorithm, "dtype": torch.bfloat16, "backend": backend}
    whole = ft.run(**settings)
    assert {t.dtype for t in whole.params.values()} == {torch.bfloat16}
    reports = ft.train(**settings, out=tmp_path / "run")
    next(reports)
    reports.close()
    assert ft.run(**settings, out=tmp_path / "run", resume=True).digest() == whole.digest()


def test_autocast_computes_in_bfloat16_and_keeps_the_weights() -> None:
    seen = set()

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output = self.layer(x)
            seen.add(output.dtype)
            return output

    algorithm = ft.algorithms.fedavg(0.1, 2)
    cast = ft.run(**{**SETTINGS, "model": Watched()}, algorithm=algorithm, autocast=True, backend="serial")
    assert seen == {torch.bfloat16}
    assert {t.dtype for t in cast.params.values()} == {torch.float32}


def test_autocast_is_near_float32_on_every_backend() -> None:
    algorithm = ft.algorithms.fedavg(0.1, 2)
    exact = ft.run(**SETTINGS, algorithm=algorithm)
    for backend in ("serial", "vectorised", "processes"):
        cast = ft.run(**SETTINGS, algorithm=algorithm, autocast=True, backend=backend)
        assert 0 < distance(exact, cast) < 0.02


def test_files_say_it_too() -> None:
    values = {
        "rounds": 1,
        "data": {"name": "digits"},
        "model": {"name": "mlp", "inputs": 64, "hidden": [4], "outputs": 10},
        "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 1},
        "dtype": "bfloat16",
        "autocast": True,
    }
    settings = settings_of(parse(values), data=small_data())
    assert settings["dtype"] is torch.bfloat16
    assert settings["autocast"] is True
