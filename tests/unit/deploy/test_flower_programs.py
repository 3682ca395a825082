"""The programs of a deployment: what they leave on the server's disk."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.config import parse
from fedtempo.deploy.flower_programs import ServerLaunch, ServerPlan
from fedtempo.deploy.processes import ProcessGroup

FILE = {
    "rounds": 1,
    "data": {"name": "digits", "split": {"name": "iid", "clients": 2}},
    "model": {"name": "softmax_regression", "inputs": 64, "outputs": 10},
    "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 1},
}


def test_other_users_cannot_read_what_clients_sent(tmp_path: Path) -> None:
    """The SuperLink's database holds every upload; its folder is closed before the SuperLink starts, or resumes."""
    home = tmp_path / "run" / "flower"
    home.mkdir(parents=True, mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = ServerPlan(None, port=taken.getsockname()[1])
        with pytest.raises(ft.ConfigError, match="port"):
            ServerLaunch(tmp_path / "run", parse(FILE), plan, ProcessGroup()).start()
    assert home.stat().st_mode & 0o077 == 0
