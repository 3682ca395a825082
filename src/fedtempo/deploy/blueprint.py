"""A blueprint: an experiment that every machine of a deployment builds for itself, around the data it has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.backends import serial
from fedtempo.config import ExperimentFile, fingerprint, parse, read_values, settings_of
from fedtempo.config.construct_data import make_data
from fedtempo.config.own_code import allow_named
from fedtempo.data.federated import FederatedData
from fedtempo.deploy.nodedata import NodeData, placed
from fedtempo.errors import ConfigError, require
from fedtempo.server.robust import plain_mean
from fedtempo.server.step import Server
from fedtempo.training.experiment import Experiment
from fedtempo.training.prepare import prepare
from fedtempo.training.private_runs import check_unmeasured

ALONE = {"cohort": 1.0, "quorum": 1, "over_selection": 0.0, "aggregator": plain_mean}
"""Settings about many clients, which a node that holds a few of them cannot check; adding up is the server's part."""
HERE = {"backend": "serial", "workers": 1, "ray_address": None, "ray_gpus": None}
"""Every client runs on its own, with the code that is the reference for all others."""


@dataclass(frozen=True)
class Blueprint:
    """How to build the experiment; `fingerprint` is the same on all machines that build the same one."""

    fingerprint: str
    data: Callable[[], FederatedData]
    """The experiment's own data set, for nodes that bring no data of their own."""
    server: Callable[[FederatedData], Experiment]
    node: Callable[[NodeData], Experiment]


def blueprint_of(experiment: Experiment | ExperimentFile | str | Path) -> Blueprint:
    """The blueprint of an experiment file, of its path, or of an experiment that is built already."""
    if isinstance(experiment, (str, Path)):
        values = read_values(Path(experiment))
        allow_named(values)  # an app is made with its experiment, by the command that checked it or by a script
        return of_file(parse(values))
    known = isinstance(experiment, (Experiment, ExperimentFile))
    require(known, "experiment", "an Experiment, or the path of an experiment file", experiment)
    return of_file(experiment) if isinstance(experiment, ExperimentFile) else _of_experiment(experiment)


def of_file(file: ExperimentFile) -> Blueprint:
    """Machines share the file; data are loaded only where they are needed."""

    def server(data: FederatedData) -> Experiment:
        return build(settings_of(file, data))

    def node(own: NodeData) -> Experiment:
        settings = settings_of(file, placed(own))
        if settings["aggregator"].private:
            check_unmeasured(settings["data"])
        return build({**settings, **ALONE, "algorithm": _of_whole_run(settings["algorithm"], own)})

    def build(settings: Mapping[str, Any]) -> Experiment:
        return prepare(**{**settings, **{name: HERE[name] for name in HERE if name in settings}})

    return Blueprint(fingerprint(file), lambda: make_data(file.data), server, node)


def _of_whole_run(algorithm: Algorithm, node: NodeData) -> Algorithm:
    """The algorithm whose server knows all training clients, on a node too, which by itself knows only its own.

    What server and nodes send each other has an entry for each of them (AFL), so all must count the same ones.
    """
    fit, trained = algorithm.server.fitted, node.trained
    if fit is None or not algorithm.memory.numbered:
        return algorithm
    if trained is None:
        raise ConfigError(
            f"data of a node must be a part of the experiment's own, or say who is trained on (NodeData.trained), "
            f"for {algorithm.name}. Got neither."
        )
    everybody = tuple(trained.tolist())

    def fitted(model: nn.Module, own: tuple[int, ...]) -> Server:
        return fit(model, everybody)

    return replace(algorithm, server=algorithm.server._replace(fitted=fitted))


def _of_experiment(experiment: Experiment) -> Blueprint:
    """Machines share the experiment itself, with its data, as Flower's simulation engine can."""

    def build(data: FederatedData) -> Experiment:
        problem = replace(experiment.federation.problem, data=data)
        federation = replace(experiment.federation, problem=problem)
        return replace(experiment, federation=federation, backend=serial, workers=1, cluster=None, operations=None)

    identity = repr(sorted(experiment.identity(strict=False).items())).encode()
    data = experiment.federation.problem.data
    return Blueprint(hashlib.sha256(identity).hexdigest(), lambda: data, build, lambda node: build(placed(node)))
