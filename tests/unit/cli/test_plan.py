"""`fedtempo advise` measures the experiment that the file describes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedtempo.cli import main
from fedtempo.config import parse, settings_of
from fedtempo.theory.measure import measure

FILE: dict[str, Any] = {
    "rounds": 4,
    "seed": 5,
    "data": {"name": "digits", "split": {"name": "iid", "clients": 2}},
    # It is not convex, so nobody looks for the minima that Gamma needs: `tests/unit/theory` does.
    "model": {"name": "mlp", "inputs": 64, "hidden": [4], "outputs": 10},
    "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 3},
    "loss": {"name": "classification", "class_weights": [1.0] + [0.01] * 9},
}


def advised(folder: Path, values: dict[str, Any], call: Any) -> dict[str, Any]:
    (folder / "run.toml").write_text(tomli_w.dumps(values))
    found: dict[str, Any] = json.loads(call("advise", str(folder / "run.toml"), "--json"))["measurements"]
    return found


@pytest.fixture
def fedtempo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert caught.value.code == 0, printed.err
        return printed.out

    return call


def test_advice_is_about_the_loss_and_the_seed_of_the_file(tmp_path: Path, fedtempo: Any) -> None:
    settings = settings_of(parse(FILE))
    place = (settings["model"], settings["data"])
    expected = measure(*place, lr=0.1, steps=3, rounds=4, loss=settings["loss"], seed=5)
    found = advised(tmp_path, FILE, fedtempo)
    assert found == pytest.approx(asdict(expected))
    plain = advised(tmp_path, {name: value for name, value in FILE.items() if name != "loss"}, fedtempo)
    assert plain["smoothness"] != pytest.approx(found["smoothness"], rel=0.01)
    assert advised(tmp_path, {**FILE, "seed": 6}, fedtempo)["gradient_diversity"] != found["gradient_diversity"]


def test_the_sample_may_be_smaller(tmp_path: Path, fedtempo: Any) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(FILE))
    told = json.loads(fedtempo("advise", str(tmp_path / "run.toml"), "--clients", "1", "--no-gamma", "--json"))
    assert told["measurements"]["clients"] == 1 and told["measurements"]["gamma"] is None
