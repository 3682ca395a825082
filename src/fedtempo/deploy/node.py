"""The client side: a node trains and scores its own clients, one after the other, with the code of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedtempo.backends import Block, compressed, end, read_together, serial
from fedtempo.data.federated import FederatedData
from fedtempo.deploy.blueprint import Blueprint
from fedtempo.deploy.membership.census import census_of
from fedtempo.deploy.nodedata import NodeConfig, NodeData, load_node_data
from fedtempo.deploy.orders import (
    NodeTask,
    RemoteOrder,
    failure_to_bytes,
    order_from_bytes,
    order_layout,
    reason_of,
    scores_to_bytes,
    settled_to_bytes,
    tasks_from_bytes,
)
from fedtempo.deploy.personal import PersonalStore
from fedtempo.deploy.wire import NOTHING_KEPT, Layout, Upload, upload_to_bytes
from fedtempo.errors import ConfigError, require, shown
from fedtempo.evaluation.scoring import EvaluationContext
from fedtempo.federation.traffic import unpack_download
from fedtempo.params import Params
from fedtempo.server.fault_injection import corrupted
from fedtempo.support.threads import one_thread
from fedtempo.training.delivery import plain_module
from fedtempo.training.experiment import Experiment
from fedtempo.training.saved import Which, require_which

MOST_NODES = 256
"""Nodes that a process keeps; one process of a simulation may be many nodes in turn."""


@dataclass(frozen=True)
class Node:
    """A node with its clients' data. It answers requests that are bytes with bytes."""

    experiment: Experiment
    data: NodeData
    fingerprint: str
    layout: Layout
    """What an order to score looks like."""
    training_layout: Layout
    store: PersonalStore | None

    def census(self) -> list[bytes]:
        """Whom it holds: numbers, counts and shapes."""
        return [census_of(self.data, self.fingerprint)]

    def train(self, order: bytes, tasks: bytes) -> list[bytes]:
        """Each client's upload, or why there is none."""
        received = order_from_bytes(order, self.training_layout)
        federation, first = self.experiment.federation, self.experiment.first_shared
        shared = unpack_download(federation, received.received.shared, first, received.now.round)
        return self._each(received._replace(received=received.received._replace(shared=shared)), tasks, self._upload)

    def score(self, order: bytes, tasks: bytes) -> list[bytes]:
        """Each user's scores, or why there are none."""
        return self._each(order_from_bytes(order, self.layout), tasks, self._scores)

    def settle(self, selected: bytes, last: bytes, tasks: bytes) -> list[bytes]:
        """The run is over: keep its selected and its last model, and of each client the states that belong to them."""
        models: dict[Which, RemoteOrder] = {
            "selected": order_from_bytes(selected, self.layout),
            "last": order_from_bytes(last, self.layout),
        }

        def keep(order: RemoteOrder, task: NodeTask) -> bytes:
            run = order.run.hex()
            while models:  # with the first client: a node that cannot keep anything says so for each of them
                which, model = next(iter(models.items()))
                self._store().finish(run, self.fingerprint, which, model.now.round, model.received.shared)
                del models[which]
            self._store().settle(run, task.client, task.selected, task.kept)
            return settled_to_bytes(task.client)

        return self._each(order_from_bytes(last, self.layout), tasks, keep)

    def model(self, client: int, which: Which = "selected") -> nn.Module:
        """A client's model as of the selected round of the latest finished run, or of its last: a plain module."""
        require_which(which)
        mine, federation = self.data.numbers.tolist(), self.experiment.federation
        require(client in mine, "client", f"one of this node's, {shown(mine)}", client)
        finished = self._store().finished(self.fingerprint, which)
        shared = {**self.experiment.first_shared, **finished.shared}
        kept = self._store().personal(finished.run, client, which)
        personal = federation.personal_state(client, self.experiment.first_shared, kept)
        return plain_module(federation, shared, personal)

    def _each(self, order: RemoteOrder, tasks: bytes, work: Callable[[RemoteOrder, NodeTask], bytes]) -> list[bytes]:
        complete, mine = self._completed(order), set(map(int, self.data.numbers))
        answers = []
        with one_thread():
            for task in tasks_from_bytes(tasks):
                try:
                    if task.client not in mine:
                        raise ConfigError("it is not on this node")
                    answers.append(work(complete, task))
                except Exception as error:  # one client's trouble is not the others'
                    answers.append(failure_to_bytes(reason_of(error)))
        return answers

    def _completed(self, order: RemoteOrder) -> RemoteOrder:
        """The order with the tensors that no round changes, which this node has from the start."""
        shared = {**self.experiment.first_shared, **order.received.shared}
        return order._replace(received=order.received._replace(shared=shared))

    def _upload(self, order: RemoteOrder, task: NodeTask) -> bytes:
        federation, received, now = self.experiment.federation, order.received, order.now
        client = np.array([task.client])
        personal = self._personal(order, task)
        (trained,) = serial.train(federation.problem, federation.program, received, now, client, [personal])
        (finished,) = read_together(federation, [end(federation, received, trained, {task.client: personal})])
        if federation.algorithm.uploads.compress is not None:
            finished = compressed(federation, finished, now)
        reason = finished.refusal(0) if federation.checks_uploads else None
        if reason is not None:
            return failure_to_bytes(reason)
        groups = finished.packed[0] if finished.packed else finished.upload(0)
        own = federation.kept_after(finished.kept(0))
        if federation.policy is not None and not now.absent:
            faults = federation.policy.faults
            (kind,) = faults.assigned(federation.problem.seed, now.round, client, now.again)
            groups = corrupted(groups, kind, faults.delay)
        kept = NOTHING_KEPT
        if own:
            kept = self._store().put(order.run.hex(), task.client, task.kept, own, task.selected)
        weight, loss = float(finished.weights[0]), float(finished.losses[0])
        numbers = {name: float(values[0]) for name, values in finished.measured.items()}
        return upload_to_bytes(Upload(task.client, now.draw, weight, loss, groups, numbers, kept))

    def _scores(self, order: RemoteOrder, task: NodeTask) -> bytes:
        protocol = self.experiment.evaluation
        if protocol is None:
            raise ConfigError("this experiment has no evaluation")
        context = EvaluationContext(order.received, order.now, order.parts, order.newcomers, protocol)
        block = Block(np.array([task.client]), [self._personal(order, task)])
        stages = context.score_block(self.experiment.federation, serial, block)
        scores = [[[values[0] for values in stage[part].values()] for part in order.parts] for stage in stages]
        return scores_to_bytes(task.client, order.now.round, torch.tensor(scores, dtype=torch.float64))

    def _personal(self, order: RemoteOrder, task: NodeTask) -> Params:
        federation = self.experiment.federation
        if order.newcomers:
            return federation.first_personal(task.client, order.received.shared)
        if task.kept == NOTHING_KEPT:
            return federation.first_personal(task.client, self.experiment.first_shared)
        kept = self._store().get(order.run.hex(), task.client, task.kept)
        return federation.personal_state(task.client, self.experiment.first_shared, kept)

    def _store(self) -> PersonalStore:
        if self.store is None:
            raise ConfigError("a node whose clients keep something needs a folder for it: state-dir in its node config")
        return self.store


def make_node(blueprint: Blueprint, config: NodeConfig, state: Path | None = None) -> Node:
    """A node as its configuration says; the experiment it was started for, if it names one, must be this one."""
    agreed = config.get("experiment", blueprint.fingerprint)
    if agreed != blueprint.fingerprint:
        raise ConfigError(f"the experiment must be the one this node was started for, {agreed}.")
    data = load_node_data(config, blueprint.data)
    experiment = blueprint.node(data)
    folder = Path(str(config["state-dir"])) if "state-dir" in config else state
    if folder is not None and "state-dir" not in config:
        folder = folder / f"node-{int(config.get('partition-id', 0))}"
    scores, trains = (order_layout(experiment.federation, experiment.first_shared, kind) for kind in (False, True))
    store = None if folder is None else PersonalStore(folder)
    return Node(experiment, data, blueprint.fingerprint, scores, trains, store)


class Nodes:
    """What this process has made already: models are built, and data loaded, once and not for every message."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._data: dict[str, FederatedData] = {}

    def get(self, blueprint: Blueprint, config: NodeConfig, state: Path | None) -> Node:
        """The node of this configuration."""
        key = (blueprint.fingerprint, tuple(sorted(config.items())), state)
        if key not in self._nodes:
            if len(self._nodes) >= MOST_NODES:
                self._nodes.clear()
            self._nodes[key] = make_node(replace(blueprint, data=lambda: self._common(blueprint)), config, state)
        return self._nodes[key]

    def _common(self, blueprint: Blueprint) -> FederatedData:
        if blueprint.fingerprint not in self._data:
            self._data[blueprint.fingerprint] = blueprint.data()
        return self._data[blueprint.fingerprint]


NODES = Nodes()
