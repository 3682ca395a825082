"""A server of a deployment: the fleet of nodes and the training loop, in one process that leaves nothing behind."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from fedtempo.config import ExperimentFile
from fedtempo.deploy.blueprint import of_file
from fedtempo.deploy.flower import GridTransport
from fedtempo.deploy.launch.fleet import Fleet
from fedtempo.deploy.launch.link import Link
from fedtempo.deploy.launch.plans import ServerPlan, prepare_server
from fedtempo.deploy.launch.process import only_server, quiet_flower
from fedtempo.deploy.launch.status import Seen, write_present
from fedtempo.deploy.membership.admitted import Attendance
from fedtempo.deploy.membership.keys import server_keys
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.training.log import LOGGER, lines_to
from fedtempo.training.storage.folders import require_contained


def be_server(
    out: Path,
    file: ExperimentFile,
    plan: ServerPlan,
    bound: socket.socket,
    tell: Callable[[str], None] | None,
    new: bool = False,
) -> None:
    """Serve a new run, or one from its last committed round on, on a socket; `tell` gets a line per event."""
    keys = None if plan.keys is None else server_keys(plan.keys)
    if new:
        prepare_server(out, file, plan)
    require_contained(out)
    with only_server(out):
        fleet = Fleet(keys is not None)

        def note(nodes: Mapping[str, bytes]) -> None:
            here = set(fleet.present().values())
            seen = {name: (key in here, *fleet.door.received.get(key, (0.0, 0))) for name, key in nodes.items()}
            write_present(out, {name: Seen(*each) for name, each in seen.items()})

        attending = Attendance(fleet, plan.keys, note)
        with lines_to(tell), quiet_flower(), attending as attendance, Link(fleet, bound, keys):
            where, number = bound.getsockname()[:2]
            where = f"[{where}]" if ":" in where else where
            how = "TLS and node keys" if keys else "INSECURE"
            LOGGER.info("listening on %s:%d, %s; waiting for clients", where, number, how)
            transport = GridTransport(fleet, attendance.name, fleet.expect, fleet.forget)
            serve_run(transport, of_file(file), Plan(out, plan.clients, float(plan.patience), plan.without))
