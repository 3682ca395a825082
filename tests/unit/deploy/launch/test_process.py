"""A deployment's process is private, and Flower gets nothing from the caller's environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.deploy.launch.process import only_server, own_folder, private_process
from tests.programs import Forked


def test_flowers_variables_have_no_effect(tmp_path: Path) -> None:
    """One of them opened a port for everybody; and what is written is for its owner only."""

    def work() -> None:
        private_process()
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        assert not [name for name in os.environ if name.startswith("FLWR_")]

    program = Forked(work, environment={**os.environ, "FLWR_INTERNAL_GRPC_CONTROL_API": "1"})
    _, error = program.communicate()
    assert program.wait() == 0, error
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in ("file", "folder"))


def test_a_state_folder_that_is_there_is_closed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    own_folder(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(ft.OutputError, match="state must be a folder of your own"):
        own_folder(tmp_path / "file")


def test_one_process_serves_a_run(tmp_path: Path) -> None:
    with only_server(tmp_path), pytest.raises(ft.OutputError, match="is served already"), only_server(tmp_path):
        pass
    with only_server(tmp_path):
        pass
