"""A whole deployment on this machine: keys, a server, nodes, a run, and the simulator's digest beside it."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedtempo.config import ExperimentFile, parse, settings_of
from fedtempo.config.own_code import granting
from fedtempo.deploy.launch.link import bind
from fedtempo.deploy.launch.plans import NodePlan, ServerPlan
from fedtempo.deploy.launch.process import private_process
from fedtempo.deploy.launch.serving import be_server
from fedtempo.deploy.membership.keys import make_keys
from fedtempo.errors import OutputError
from fedtempo.training.run import run
from fedtempo.training.storage.folders import SUMMARY

SERIAL = {"backend": "serial", "workers": None, "ray_address": None, "ray_gpus": None}


@dataclass(frozen=True)
class Trial:
    """What a trial has found."""

    deployed: str
    """The digest of the deployed run, and below that of the simulated one."""
    simulated: str | None
    """None for a private run: its noise is its own, so no other run has its bits."""
    seconds: float

    @property
    def equal(self) -> bool | None:
        """Whether both runs ended with the same bits; None where there is one run only."""
        return None if self.simulated is None else self.deployed == self.simulated


def demonstration(rounds: int) -> ExperimentFile:
    """The demo's digits and FedDecay, small enough for a trial."""
    return parse(
        {
            "rounds": rounds,
            "cohort": 0.25,
            "batch_size": 16,
            "data": {
                "name": "digits",
                "new_clients": 0.2,
                "min_samples": 5,
                "split": {"name": "dirichlet", "clients": 40, "alpha": 0.3},
            },
            "model": {"name": "mlp", "inputs": 64, "hidden": [64], "outputs": 10},
            "algorithm": {"name": "feddecay", "lr": 0.1, "beta": 0.8, "steps": 10},
            "evaluation": {"every": rounds},
        }
    )


def try_out(file: ExperimentFile, folder: Path, nodes: int, tell: Callable[[str], None] | None) -> Trial:
    """Deploy an experiment on loopback with TLS and node keys, simulate it too, and compare the digests."""
    say_so = tell or (lambda line: None)
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(f"out must be a new folder. Got {folder}, which is not empty.")
    make_keys(folder / "keys", nodes)
    plan = ServerPlan(folder / "keys" / "server", port=0)
    out = folder / "run"
    with bind(plan.host, plan.port) as bound, _nodes(file, folder, nodes, bound.getsockname()[1]):
        say_so(f"started {nodes} nodes, each with a key; they load their clients")
        be_server(out, file, plan, bound, tell, new=True)
    summary = json.loads((out / SUMMARY).read_text())
    settings = settings_of(file)
    if settings["aggregator"].private and settings["aggregator"].noise_seed is None:
        say_so("stopped everything; a private run has noise of its own, so there is no digest to compare")
        return Trial(summary["digest"], None, summary["seconds"])
    say_so("stopped everything; now the same in the simulator")
    simulated = run(**{**settings, **{name: SERIAL[name] for name in SERIAL if name in settings}}, progress=False)
    return Trial(summary["digest"], simulated.digest(), summary["seconds"])


@contextmanager
def _nodes(file: ExperimentFile, folder: Path, nodes: int, port: int) -> Iterator[None]:
    """Nodes in processes of their own, which end with this one however it ends."""
    fresh = multiprocessing.get_context("spawn")
    started = []
    try:
        for part in range(nodes):
            keys, state = folder / "keys" / f"node-{part + 1}", folder / f"node-{part + 1}"
            plan = NodePlan(keys, f"127.0.0.1:{port}", state, part=(part, nodes))
            started.append(fresh.Process(target=granting(_be_node), args=(file, plan), daemon=True))
            started[-1].start()
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def _be_node(file: ExperimentFile, plan: NodePlan) -> None:
    private_process()
    from fedtempo.deploy.launch.member import be_node

    be_node(file, plan)
