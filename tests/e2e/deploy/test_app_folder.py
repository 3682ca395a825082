"""The example app folder: Flower takes it as it is, and its run has the digest of our own simulator."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.config import read, settings_of
from fedtempo.deploy import RUN_FOLDER
from tests import ROOT
from tests.e2e.deploy.flowers import free_port, listens, programs
from tests.waiting import until

pytest.importorskip("flwr")
APP = ROOT / "examples" / "flower_app"


def test_flower_can_load_the_folder() -> None:
    """By Flower's own checks of a folder, and by the names that its file gives."""
    from flwr.cli.config_utils import load_and_validate
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    described, warnings = load_and_validate(APP / "pyproject.toml", check_module=True)
    assert not warnings
    names = described["tool"]["flwr"]["app"]["components"]
    found = []
    for place in (names["serverapp"], names["clientapp"]):
        module, _, name = place.partition(":")
        spec = importlib.util.spec_from_file_location("the_example_app", APP / f"{module.replace('.', '/')}.py")
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        found.append(getattr(loaded, name))
    assert isinstance(found[0], ServerApp) and isinstance(found[1], ClientApp)
    assert APP.name in (ROOT / "docs" / "gallery.md").read_text()


@pytest.mark.slow("starts Flower's SuperLink and its Ray cluster; the same apps run every time in test_loopback")
def test_flwr_run_takes_the_folder_as_it_is(tmp_path: Path) -> None:
    app, port = tmp_path / "app", free_port()
    shutil.copytree(APP, app)
    # Ray puts its workers behind everything else that runs, which can take minutes on a busy machine.
    more = {RUN_FOLDER: str(tmp_path / "run"), "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    with programs(tmp_path / "home", FLWR_LOCAL_SUPERLINK_HTTP_API_PORT=str(port), **more) as flower:
        # `flwr run` starts a SuperLink by itself where none listens, waits 15 s for it, and leaves it running.
        link = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess", "--host", "127.0.0.1"]
        flower.start([*link, "--port", str(port)], tmp_path / "link.log")
        assert until(lambda: listens(port))
        flower.done(["flwr", "run", str(app), "--stream"], tmp_path / "run.log", 600.0)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    here = ft.run(**settings_of(read(APP / "digits_app" / "experiment.toml", ["backend=serial"])))
    assert summary["digest"] == here.digest()
