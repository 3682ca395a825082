"""The examination of a machine: facts in words, one run on each backend, and what counts as unsound."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.backends.start import FORCED
from fedtempo.contracts import machine


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library that spawned workers need: they are tested elsewhere, and take seconds to start."""
    monkeypatch.setattr(machine, "find_spec", lambda name: None)


def test_every_backend_is_tried(quick: None) -> None:
    found = machine.examine(ray=False)
    by_name = {trial.name: trial for trial in found.trials}
    assert found.sound
    assert by_name["processes, fork"].digest == by_name["serial"].digest != ""
    assert by_name["vectorised"].verdict.startswith("within ")
    assert by_name["processes, spawn"].verdict == "not here: needs cloudpickle"
    assert by_name["ray"].verdict == "not here: it is not installed"
    assert found.facts["torch"] == importlib.metadata.version("torch") and found.facts["workers are"] == "fork"
    assert set(found.facts) >= {"system", "python", "processors", "threads", "linear algebra", "accelerators"}


def test_a_backend_that_fails_or_differs_is_unsound(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real, other = machine._short_run, machine.small_data(constant_client=1)

    def spoiled(*arguments: Any, **settings: Any) -> ft.Result:
        if settings["backend"] == "vectorised":
            raise RuntimeError("no such instruction")
        if settings["backend"] == "processes":
            monkeypatch.setattr(machine, "small_data", lambda: other)
        return real(*arguments, **settings)

    monkeypatch.setattr(machine, "_short_run", spoiled)
    found = machine.examine(ray=False)
    verdicts = {trial.name: (trial.verdict, trial.sound) for trial in found.trials}
    assert not found.sound and verdicts["serial"] == ("the reference", True)
    assert verdicts["vectorised"] == ("failed: RuntimeError: no such instruction", False)
    assert verdicts["processes, fork"] == ("differs from the reference", False)


def test_what_was_forced_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCED, "spawn")
    with machine._start_method("fork"):
        assert machine.start_method() == "fork"
    assert machine.start_method() == "spawn"


def test_an_accelerator_is_tried_last(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    """None of our machines has one: what is tried is which runs are asked for, and in which order."""
    asked = []

    def instead(dtype: torch.dtype = torch.float64, **settings: Any) -> ft.Result:
        asked.append((settings["backend"], settings.pop("device", "cpu"), dtype))
        return real(dtype, **{**settings, "backend": "serial", "workers": 1})

    real = machine._short_run
    monkeypatch.setattr(machine, "_accelerators", lambda: ["cuda (2)"])
    monkeypatch.setattr(machine, "_short_run", instead)
    found = machine.examine(ray=False)
    assert [trial.name for trial in found.trials][-2:] == ["serial on cuda", "vectorised on cuda"]
    assert asked[-2:] == [("serial", "cuda", torch.float32), ("vectorised", "cuda", torch.float32)]
    assert all(trial.verdict.endswith("in float32") for trial in found.trials[-2:])
