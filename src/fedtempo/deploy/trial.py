"""A whole deployment on this machine: keys, a SuperLink, SuperNodes, a run, and the simulator's digest beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedtempo.config import ExperimentFile, parse, settings_of
from fedtempo.deploy.flower_programs import NodePlan, ServerLaunch, ServerPlan, prepare_server, start_node
from fedtempo.deploy.keys import make_keys
from fedtempo.deploy.processes import ProcessGroup, free_port
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


def try_out(file: ExperimentFile, folder: Path, nodes: int, tell: Callable[[str], None]) -> Trial:
    """Deploy an experiment on loopback with TLS and node keys, simulate it too, and compare the digests."""
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(f"out must be a new folder. Got {folder}, which is not empty.")
    make_keys(folder / "keys", nodes)
    plan = ServerPlan(str(folder / "keys" / "server"), port=free_port())
    out = folder / "run"
    prepare_server(out, file, plan)
    with ProcessGroup() as processes:
        server = ServerLaunch(out, file, plan, processes)
        tell(f"starting a SuperLink on 127.0.0.1:{plan.port}, with TLS and {nodes} registered keys")
        server.start()
        for part in range(nodes):
            keys, state = folder / "keys" / f"node-{part + 1}", folder / f"node-{part + 1}"
            start_node(file, NodePlan(keys, f"127.0.0.1:{plan.port}", state, part=(part, nodes)), processes)
        tell(f"started {nodes} SuperNodes; they load their clients")
        server.run(tell)
    summary = json.loads((out / SUMMARY).read_text())
    settings = settings_of(file)
    if settings["aggregator"].private and settings["aggregator"].noise_seed is None:
        tell("stopped everything; a private run has noise of its own, so there is no digest to compare")
        return Trial(summary["digest"], None, summary["seconds"])
    tell("stopped everything; now the same in the simulator")
    simulated = run(**{**settings, **{name: SERIAL[name] for name in SERIAL if name in settings}}, progress=False)
    return Trial(summary["digest"], simulated.digest(), summary["seconds"])
