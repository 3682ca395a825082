"""What a run folder says about its deployment: as little as possible, for the folder may be a stranger's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.config import read
from fedtempo.deploy.launch.plans import DEPLOYMENT, ServerPlan, prepare_server, stored_server
from fedtempo.deploy.membership.keys import make_keys
from tests import ROOT
from tests.programs import fedtempo_ended

EXAMPLE = ROOT / "examples" / "feddecay.toml"
HERE = (None, "127.0.0.1", 8001)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    prepare_server(folder, read(EXAMPLE), ServerPlan(tmp_path / "keys", "0.0.0.0", 9, 7, 60.0))
    return folder


def test_a_folder_keeps_whom_to_wait_for_and_not_where_to_listen(run: Path) -> None:
    assert stored_server(run, *HERE) == (read(EXAMPLE), ServerPlan(*HERE, clients=7, patience=60.0))
    assert (run / DEPLOYMENT).read_text() == "clients = 7\npatience = 60.0\n"


def test_a_senders_address_and_keys_are_not_obeyed(run: Path) -> None:
    (run / DEPLOYMENT).write_text('host = "0.0.0.0"\nport = 80\nkeys = "theirs"\nclients = 2\n')
    assert stored_server(run, *HERE)[1] == ServerPlan(*HERE, clients=2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense = [", "how the run was served"),
        ('clients = "import os"', "clients must be an int"),
        ("clients = 0", "clients must be an int"),
        ("patience = nan", "patience must be a number > 0"),
        ("patience = true", "patience must be a number > 0"),
        (".".join(["a"] * 500) + " = 1", "keys with at most 20 parts"),
        ("a = 1\n" * 20_000, "more than 65,536 bytes"),
    ],
)
def test_other_values_are_refused(text: str, reason: str, run: Path) -> None:
    (run / DEPLOYMENT).write_text(text)
    with pytest.raises(ft.OutputError, match=reason):
        stored_server(run, *HERE)


@pytest.mark.parametrize("name", [DEPLOYMENT, "experiment.toml"])
def test_a_pipe_or_a_link_holds_nobody_up_and_leads_nowhere(name: str, run: Path, tmp_path: Path) -> None:
    content = (run / name).read_bytes()
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(ft.FedTempoError, match="no plain file"):
        stored_server(run, *HERE)
    (run / name).unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    (run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ft.FedTempoError, match="link out of its folder"):
        stored_server(run, *HERE)


def test_resume_wants_to_be_told_about_keys(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    monkeypatch.setattr(sys, "argv", ["fedtempo", "resume", str(run)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 3
    assert "keys must be given" in capsys.readouterr().err


PLANTED = "open({ran!r}, 'w').close()\n"


def test_nothing_that_a_sender_planted_runs_or_is_written_to(run: Path, tmp_path: Path) -> None:
    """Flower's database and apps, links in their place, a token that leads out: all stay as they are."""
    pytest.importorskip("flwr")
    make_keys(tmp_path / "keys", 1)
    ran, home, victim = tmp_path / "ran", tmp_path / "home", tmp_path / "victim"
    (home / "apps" / "fedtempo.fedtempo-app.1.0.0.deadbeef" / "fedtempo_app").mkdir(parents=True)
    for path in (home / "app", victim):
        path.mkdir()
    (home / "apps/fedtempo.fedtempo-app.1.0.0.deadbeef/fedtempo_app/apps.py").write_text(PLANTED.format(ran=str(ran)))
    (home / "superlink.db").write_text("planted")
    (home / "app" / "precious").write_text("kept")
    os.mkfifo(home / "processes.json")
    (run / "flower").symlink_to(home)
    before = {path: path.lstat() for path in home.rglob("*")}
    options = ["--keys", str(tmp_path / "keys/server"), "--port", "0"]
    (run / DEPLOYMENT).write_text("patience = 1.0\nclients = 1\n")
    done = fedtempo_ended("resume", str(run), *options)
    assert done.returncode == 7 and "run not started" in done.stderr, done.stderr
    assert not ran.exists()
    assert {path: path.lstat() for path in home.rglob("*")} == before
    for name in ("run.token", "run.sqlite"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(victim / name)
        done = fedtempo_ended("resume", str(run), *options)
        assert done.returncode == 6 and "a link to" in done.stderr, done.stderr
        (run / name).unlink()
    assert not list(victim.iterdir())
