"""`fedtempo export`, `resume --rounds`, completion: commands on a stored run."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import fedtempo as ft
from fedtempo.cli.commands import COMMANDS, imported
from fedtempo.cli.export import export_model
from fedtempo.cli.main import app
from fedtempo.cli.runs import resume, run
from fedtempo.config import read
from fedtempo.report.folder import MODEL
from tests.unit.config.experiments import experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    file = place / "experiment.toml"
    values = experiment()
    values["data"]["validation"] = 0.2
    file.write_text(tomli_w.dumps(values))
    run(file, out=place / "shared", quiet=True)
    values["algorithm"] = {"name": "fedper", "lr": 0.1, "steps": 2}
    file.write_text(tomli_w.dumps(values))
    run(file, out=place / "personal", quiet=True)
    return place


def test_a_folder_holds_its_models_and_export_writes_the_same(folder: Path, tmp_path: Path) -> None:
    stored = folder / "shared"
    export_model(stored, tmp_path / "model")
    selected = load_file(tmp_path / "model.safetensors")
    beside = load_file(stored / MODEL.format(which="selected"))
    assert selected.keys() == beside.keys()
    assert all(torch.equal(selected[name], beside[name]) for name in selected)
    assert (stored / MODEL.format(which="last")).exists()
    export_model(stored, tmp_path / "model.pt2", format="torch", which="last")
    program = torch.export.load(tmp_path / "model.pt2").module()
    last = load_file(stored / MODEL.format(which="last"))
    network = ft.models.mlp(64, [4], 10)
    network.load_state_dict(last)
    x = torch.randn(3, 64)
    torch.testing.assert_close(program(x), network(x), rtol=0, atol=1e-6)


def test_a_personal_model_is_exported_by_client(folder: Path, tmp_path: Path) -> None:
    stored = folder / "personal"
    assert not list(stored.glob("model-*"))
    with pytest.raises(ft.ConfigError, match="is personal: say whose"):
        export_model(stored, tmp_path / "model")
    export_model(stored, tmp_path / "model", client=1)
    assert "head.weight" in load_file(tmp_path / "model.safetensors")
    with pytest.raises(ft.DataError, match="client must be an int in"):
        export_model(stored, tmp_path / "model", client=99)
    with pytest.raises(ft.ConfigError, match="format must be"):
        export_model(stored, tmp_path / "model", format="pickle")


def test_resume_with_more_rounds_says_so_in_the_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored = folder / "personal"
    with caplog.at_level(logging.INFO, "fedtempo"):
        resume(stored, rounds=4, quiet=True)
    assert read(stored / "experiment.toml").rounds == 4
    assert any(line.startswith("round 4/4: ") and ", loss " in line for line in caplog.messages)
    resume(stored, quiet=True)  # and the folder goes on by itself
    with pytest.raises(ft.OutputError, match="rounds must be that of the stored run, '4'"):
        resume(stored, rounds=3, quiet=True)


def test_shells_can_complete() -> None:
    asked = {"_FEDTEMPO_COMPLETE": "complete_bash", "COMP_WORDS": "fedtempo res", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['fedtempo']; from fedtempo.cli import main; main()"
    environment = {**os.environ, **asked}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["resume"]
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def test_one_flag_has_one_name() -> None:
    options = {option for name in COMMANDS for one in imported(name).params for option in one.opts}
    assert "--workers" in options
    assert not options & {"--processes", "--jobs", "--parallel"}


def test_progress_shows_a_line_in_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    data = ft.data.load("digits").split(ft.data.iid(4), test=0.2)
    settings = {"model": ft.models.mlp(64, [4], 10), "data": data, "algorithm": ft.algorithms.fedavg(0.1, 1)}
    ft.run(**settings, rounds=2, workers=1)
    assert "round 2/2" not in capsys.readouterr().err
    ft.run(**settings, rounds=2, workers=1, progress=True)
    assert "round 2/2" in capsys.readouterr().err
