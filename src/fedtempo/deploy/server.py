"""The server side: gather the clients, build the experiment around them, and run the simulator's own training loop."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from fedtempo.deploy.blueprint import Blueprint
from fedtempo.deploy.engine import RemoteEngine
from fedtempo.deploy.membership.declared import read_declared, write_declared
from fedtempo.deploy.membership.roster import Roster, Transport
from fedtempo.deploy.orders import TOKEN
from fedtempo.errors import OutputError
from fedtempo.support.files import read_inside, write_atomically
from fedtempo.training.log import LOGGER
from fedtempo.training.loop import drained, train_experiment
from fedtempo.training.result import Result
from fedtempo.training.storage.database import DATABASE

RUN = "run.token"
"""The file that holds a run's name on its nodes."""


@dataclass(frozen=True)
class Plan:
    """How a deployment is run, besides the experiment."""

    out: Path | None = None
    """The run folder. One that holds a run already is resumed."""
    clients: int | None = None
    """How many clients to wait for; None where nodes share a common data set and know."""
    patience: float = 300.0
    """Seconds to wait for clients at the start, and for anybody where all nodes are gone."""
    without: tuple[str, ...] = ()
    """Nodes that a run which is resumed goes on without."""


def serve_run(transport: Transport, blueprint: Blueprint, plan: Plan) -> Result:
    """Run an experiment on the nodes that a transport leads to."""
    resume = plan.out is not None and (plan.out / DATABASE).exists()
    run = _token(plan.out, resume)
    declared = read_declared(plan.out) if plan.out is not None and resume else {}
    roster = Roster(transport, blueprint.fingerprint, plan.patience, declared, plan.without)
    experiment = blueprint.server(roster.gather(plan.clients))
    if plan.out is not None and not declared:
        write_declared(plan.out, roster.declared())
    engine = RemoteEngine(experiment, roster, run)
    rounds = train_experiment(experiment, plan.out, resume, engine=engine)
    result = drained(rounds)
    if plan.out is not None:
        result.export(plan.out)
    for client, reason in engine.settle(result).items():
        LOGGER.warning("client %d: its node does not keep its model of this run: %s", client, reason)
    LOGGER.info("digest %s", result.digest())
    return result


def _token(out: Path | None, resume: bool) -> bytes:
    """The run's name on its nodes: drawn once, the same after a restart."""
    if out is None:
        return secrets.token_bytes(TOKEN)
    path = out / RUN
    if not resume:
        write_atomically(path, secrets.token_hex(TOKEN) + "\n", "out")
    try:
        token = bytes.fromhex(read_inside(out, RUN, 1000).decode().strip())
    except (OSError, ValueError):
        token = b""
    if len(token) != TOKEN:
        raise OutputError(f"a deployment to resume must hold its {RUN}. Got {out}, which does not.")
    return token
