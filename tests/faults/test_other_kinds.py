"""A stored run on another kind of processor: it goes on and says so, unless it is private or told not to."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.contracts import small_data
from fedtempo.support.kind import kind_here
from fedtempo.training import loop, prepare
from fedtempo.training.first_state import first_model
from fedtempo.training.loop import drained
from fedtempo.training.storage.database import DATABASE
from tests.programs import fedtempo

NOTE = "processor: another kind since round 3, so the bits are not those of an uninterrupted run"


def settings(**more: Any) -> dict[str, Any]:
    defaults = {"rounds": 4, "cohort": 3, "batch_size": 4, "seed": 2, "evaluation": None, "backend": "serial"}
    algorithm = ft.algorithms.fedper(lr=0.1, steps=2)
    return {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "algorithm": algorithm, **defaults, **more}


def resumed(folder: Path, **more: Any) -> ft.Result:
    return drained(ft.train(**settings(**more), out=folder, resume=True))


@pytest.fixture
def begun(tmp_path: Path) -> Callable[..., Path]:
    def begin(**more: Any) -> Path:
        rounds = ft.train(**settings(**more), out=tmp_path)
        next(rounds), next(rounds)
        rounds.close()
        return tmp_path

    return begin


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on another kind, which rounds first weights otherwise."""

    def other(device: str = "cpu") -> dict[str, str]:
        return {**kind_here(), "torch": "9.9.9 AVX9"}

    def rounded(*given: Any) -> Any:
        model, origin = first_model(*given)
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(1 + 1e-7)
        return model, origin

    def move() -> None:
        monkeypatch.setattr(loop, "kind_here", other)
        monkeypatch.setattr(prepare, "first_model", rounded)

    return move


def test_a_run_goes_on_and_says_so_once_and_in_its_notes(
    begun: Callable[..., Path], elsewhere: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder = begun()
    elsewhere()
    with caplog.at_level(logging.WARNING, "fedtempo"):
        result = resumed(folder)
    said = [record.getMessage() for record in caplog.records if "processor" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith(NOTE) and "\n" not in said[0]
    assert f"torch {kind_here()['torch']} before, 9.9.9 AVX9 now" in said[0]
    assert said[0] in result.notes
    caplog.clear()
    assert said[0] in resumed(folder).notes  # a finished run that is opened again
    assert not any("processor" in record.getMessage() for record in caplog.records)
    result.export(folder)
    assert said[0] in json.loads((folder / "summary.json").read_text())["notes"]


def test_on_the_same_kind_nothing_is_said(begun: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    result = resumed(begun(), same_kind=True)
    assert not any(note.startswith("processor") for note in result.notes)
    assert result.digest() == ft.run(**settings()).digest()


def test_it_is_refused_where_the_user_wants_the_same_kind(
    begun: Callable[..., Path], elsewhere: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun()
    with monkeypatch.context() as there:
        there.setattr(loop, "kind_here", lambda device: {**kind_here(), "torch": "9.9.9 AVX9"})
        with pytest.raises(ft.OutputError, match=r"^the kind of processor must be that of the stored run\. Got"):
            resumed(folder, same_kind=True, rounds=6)
    assert resumed(folder).digest() == ft.run(**settings()).digest()  # the refusal has changed nothing
    with pytest.raises(ft.ConfigError, match="same_kind must be left out where no run is resumed"):
        ft.run(**settings(), same_kind=True)


def test_a_private_run_is_refused_and_a_finished_one_can_be_read(
    begun: Callable[..., Path], elsewhere: Callable[[], None]
) -> None:
    private = {"aggregator": ft.robust.private_mean(0.5, 1.0), "algorithm": ft.algorithms.fedavg(lr=0.1, steps=2)}
    folder = begun(**private)
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        (kinds,) = connection.execute("SELECT value FROM identity WHERE field = 'kinds'").fetchone()
    assert kind_here()["arithmetic"] in kinds
    finished = folder / "finished"
    digest = ft.run(**settings(**private), out=finished).digest()
    elsewhere()
    with pytest.raises(ft.OutputError, match="must be that of the stored run for a private run, whose noise is drawn"):
        resumed(folder, **private)
    assert resumed(finished, **private).digest() == digest


@pytest.mark.parametrize("change", [{"seed": 3}, {"model": ft.models.mlp(6, [4], 4)}, {"init": "model"}])
def test_another_run_is_refused_there_as_here(
    change: dict[str, Any], begun: Callable[..., Path], elsewhere: Callable[[], None]
) -> None:
    folder = begun()
    elsewhere()
    with pytest.raises(ft.OutputError, match="must be that of the stored run"):
        resumed(folder, **change)


def test_a_folder_without_a_record_is_of_an_unknown_kind(begun: Callable[..., Path]) -> None:
    folder = begun()
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM identity WHERE field = 'kinds'")
    assert f"{NOTE} (what it began on was not recorded)" in resumed(folder).notes


@pytest.mark.parametrize("value", ["x", "{}", '{"since": [[0, 1]], "rough": {}}'])
def test_a_record_of_another_form_is_damage(value: str, begun: Callable[..., Path]) -> None:
    folder = begun()
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        (stored,) = connection.execute("SELECT value FROM identity WHERE field = 'kinds'").fetchone()
        connection.execute("UPDATE identity SET value = ? WHERE field = 'kinds'", (f"{value} {stored[-64:]}",))
    with pytest.raises(ft.StoreError, match="the stored description of the run is damaged"):
        resumed(folder)


FILE = """
rounds = 2
cohort = 4
[data]
name = "digits"
split = { name = "dirichlet", clients = 8, alpha = 1.0 }
[model]
name = "mlp"
inputs = 64
hidden = [7]
outputs = 10
[algorithm]
name = "fedavg"
lr = 0.1
steps = 2
"""


@pytest.mark.slow("starts a new interpreter, for torch chooses its kernels when it is loaded")
def test_a_run_that_was_begun_with_other_kernels_is_resumed_and_exported(tmp_path: Path) -> None:
    """The last layer has seven inputs, so its first weights have other last bits with other kernels."""
    file, folder = tmp_path / "experiment.toml", tmp_path / "run"
    file.write_text(FILE)
    command = [sys.executable, "-m", "fedtempo", "run", str(file), "--out", str(folder), "--quiet"]
    subprocess.run(command, env={**os.environ, "ATEN_CPU_CAPABILITY": "default"}, check=True, capture_output=True)
    if kind_here()["torch"] in (folder / "summary.json").read_text():
        pytest.skip("torch has one set of kernels for this processor")
    out, said = fedtempo("export", str(folder), "--out", str(tmp_path / "model.safetensors")).communicate()
    assert (tmp_path / "model.safetensors").exists(), said
    refused = fedtempo("resume", str(folder), "--rounds", "4", "--same-kind")
    out, said = refused.communicate()
    assert refused.returncode == ft.OutputError.exit_code and len(said.splitlines()) == 1
    out, said = fedtempo("resume", str(folder), "--rounds", "4", "--quiet").communicate()
    assert NOTE in out, said
    assert "ATEN_CPU_CAPABILITY=default before" in out
