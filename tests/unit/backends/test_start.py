"""How workers are started: forked where that is safe; spawned workers compute the same bits."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import fedtempo as ft
from fedtempo.backends import start
from tests import zoo

PROGRAM = """
import fedtempo as ft
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from fedtempo.contracts.algorithms import small_data

class Mine(torch.nn.Module):  # of the program itself, and the program has no guard around what it runs
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)
    def forward(self, x):
        return self.layer(x).tanh() * 2

def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none") + 0.0

settings = dict(model=Mine, data=small_data(), rounds=2, cohort=4, batch_size=4, loss=loss, progress=False)
algorithm = ft.algorithms.scaffold(lr=lambda now: 0.1 / (1 + now.round), steps=2, compress=ft.compress.top_k(0.5))
settings |= {"algorithm": algorithm, "backend": "serial", "block": 1}
print(len({ft.run(workers=workers, **settings).digest() for workers in (1, 2)}), "digest")
"""


def test_spawned_workers_give_the_same_bits_and_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, scoring, what clients keep; a killed worker runs again."""
    settings = {"rounds": 3, "cohort": 5, "batch_size": 4, "seed": 3, "block": 1}
    settings |= {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["scaffold with signs"]}
    settings |= {"backend": "serial", "evaluation": ft.Evaluation(every=2)}
    alone = ft.run(**settings)
    monkeypatch.setenv(start.FORCED, "spawn")
    faults = ft.Faults(kill=1.0, until=1)
    shared = ft.run(**settings, workers=2, faults=faults)
    assert shared.history[0].measurements["workers_replaced"] >= 1
    assert shared.digest() == alone.digest()
    assert shared.scores is not None and alone.scores is not None
    assert shared.scores.summary() == alone.scores.summary()
    assert not multiprocessing.active_children()


@pytest.mark.slow("starts three new Pythons, each of which loads torch; the test above covers workers that are spawned")
def test_a_program_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    """Its own model, loss and schedule go to the workers as bytes."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path), start.FORCED: "spawn", "OMP_NUM_THREADS": "1"}
    settings = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "program.py"], check=False, **settings)
    assert (ran.stdout, ran.returncode) == ("1 digest\n", 0), ran.stderr


def test_nothing_forks_once_an_accelerator_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(start.FORCED, raising=False)
    if sys.platform == "linux":
        assert start.start_method() == "fork" and start.why_not_fork() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert start.accelerator_in_use() and start.start_method() == "spawn"
    assert "does not survive a fork" in str(start.why_not_fork())


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_spawn(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(start.FORCED, raising=False)
    monkeypatch.setattr(sys, "platform", system)
    if system == "win32":
        monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert start.start_method() == "spawn"


def test_without_the_library_that_sends_workers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(start.FORCED, raising=False)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    monkeypatch.setattr(start, "find_spec", lambda name: None)
    assert start.start_method() is None
    with pytest.raises(ft.ConfigError, match="workers must be 1: this system cannot fork, and spawned workers need"):
        start.required_start_method()


def test_a_wrong_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(start.FORCED, "thread")
    with pytest.raises(ft.ConfigError, match=r"FEDTEMPO_START_METHOD must be 'fork' or 'spawn'. Got 'thread'"):
        start.start_method()


def test_what_cannot_be_sent_to_spawned_workers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch does not let layers whose weights are computed become bytes."""
    monkeypatch.setenv(start.FORCED, "spawn")
    model = nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(6, 4)))
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=1)
    settings = {"model": model, "data": zoo.data("mlp"), "algorithm": algorithm, "rounds": 1, "evaluation": None}
    with pytest.raises(ft.ConfigError, match=r"a spawned worker must be able to send model.*parametrized modules"):
        ft.run(**settings, backend="serial", workers=2, block=1)
