"""Deployment on Flower: the same experiment on real clients, or on Flower's simulation engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.config import ExperimentFile
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.nodedata import NodeData
from fedtempo.deploy.server import Plan
from fedtempo.errors import is_count, is_number, require
from fedtempo.support.extras import library
from fedtempo.training.experiment import Experiment

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

__all__ = ["NodeData", "make_apps"]

RUN_FOLDER = "FEDTEMPO_RUN_FOLDER"
"""The environment variable that names the server's run folder where `make_apps` is not told one."""


def make_apps(
    experiment: Experiment | ExperimentFile | str | Path,
    *,
    out: str | Path | None = None,
    state: str | Path | None = None,
    clients: int | None = None,
    patience: float = 300.0,
) -> tuple[ServerApp, ClientApp]:
    """Flower apps that run an experiment: the path of a file, or an experiment that is built already.

    * `out`: the server's run folder; one that holds a run already is resumed. Else FEDTEMPO_RUN_FOLDER, else none.
    * `state`: where nodes keep their clients' personal state, for nodes whose configuration names no `state-dir`.
    * `clients`: how many clients to wait for, new ones too; nodes that share the experiment's own data set know it.
    * `patience`: seconds to wait for them.
    """
    require(clients is None or is_count(clients), "clients", "an int >= 1", clients)
    require(is_number(patience) and patience > 0, "patience", "a number > 0", patience)
    check_installed()
    from fedtempo.deploy.flower import apps

    folder = out if out is not None else os.environ.get(RUN_FOLDER)
    plan = Plan(None if folder is None else Path(folder), clients, float(patience))
    return apps(blueprint_of(experiment), plan, None if state is None else Path(state))


def check_installed() -> None:
    """Flower is here, and does not report home unless told to."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    library("flwr", "flower", "deployment")
