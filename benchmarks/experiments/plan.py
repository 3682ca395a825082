"""The five experiments: what is trained on what, for how long, and who is scored when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from benchmarks.experiments import networks

SMALL = "-small"
"""`E1-small` is E1 with few rounds and clients, to see that a contender works."""


@dataclass(frozen=True)
class Experiment:
    """Clients of equal size, one network, one or several methods, and a schedule of rounds and scores."""

    name: str
    what: str
    network: Callable[[], nn.Module]
    clients: int
    train: int
    test: int
    cohort: int
    batch: int
    steps: int
    rounds: int
    every: int
    """Rounds between two evaluations of all users."""
    lr: float
    methods: tuple[str, ...] = ("FedAvg",)
    tunes: bool = True
    """Whether users are also scored after one epoch of fine-tuning."""
    augments: bool = False

    @property
    def title(self) -> str:
        """The experiment in one line."""
        many = f"{len(self.methods)} x " if len(self.methods) > 1 else ""
        return (
            f"{self.name}: {self.what}; {self.clients} clients x {self.train} rows, {self.cohort} per round, "
            f"batch {self.batch}, {self.steps} steps, {many}{self.rounds} rounds"
        )

    @property
    def rows(self) -> int:
        """Rows of a client: training rows first, then test rows."""
        return self.train + self.test


EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "E1",
            "FedDecay's CNN with BatchNorm on 28x28, all users scored and tuned every 10 rounds",
            networks.feddecay_cnn,
            *(100, 20, 10, 10, 20, 4, 50, 10, 0.05),
        ),
        Experiment(
            "E2",
            "a CNN of 4 and 8 channels, everybody takes part",
            networks.small_cnn,
            *(200, 20, 10, 200, 4, 5, 100, 25, 0.05),
        ),
        Experiment(
            "E3",
            "ResNet with GroupNorm on CIFAR-10, FedNAR on SCAFFOLD, crops and flips",
            networks.resnet8,
            *(20, 480, 100, 5, 32, 15, 20, 10, 0.05),
            methods=("FedNAR on SCAFFOLD",),
            tunes=False,
            augments=True,
        ),
        Experiment(
            "E4",
            "MLP 784-200-10 on MNIST, two classes per client, tau 50",
            networks.perceptron,
            *(100, 120, 30, 20, 120, 50, 10, 5, 0.05),
            methods=("PFLEGO", "FedPer", "FedRep", "Ditto"),
            tunes=False,
        ),
        Experiment(
            "E5",
            "LoRA of rank 4 on a transformer of two blocks",
            networks.adapted_transformer,
            *(50, 64, 16, 10, 16, 8, 60, 20, 0.1),
        ),
    )
}
HEAD_STEPS = 40
"""Of FedRep's steps, those on the head."""
DITTO, DECAY, MOST = 1.0, 0.001, 10.0
"""Ditto's pull to the shared model; FedNAR's weight decay and largest norm."""
RHO = 0.05
"""PFLEGO's rate of the joint step; clients / cohort times this is what body and head move by."""


def by_name(name: str) -> Experiment:
    """An experiment; `E1-small` is a short E1."""
    known = EXPERIMENTS[name.removesuffix(SMALL)]
    if not name.endswith(SMALL):
        return known
    clients = max(4, known.clients // 10)
    few = {"clients": clients, "cohort": max(2, min(clients, known.cohort // 5)), "rounds": 4, "every": 2}
    return replace(known, name=name, **few)


def cohort(experiment: Experiment, number: int) -> list[int]:
    """Who takes part in a round, in ascending order."""
    rng = np.random.default_rng((11, number))
    chosen: list[int] = np.sort(rng.choice(experiment.clients, experiment.cohort, replace=False)).tolist()
    return chosen


def due(experiment: Experiment, number: int) -> bool:
    """Whether all users are scored after this round, counted from 0."""
    return (number + 1) % experiment.every == 0 or number + 1 == experiment.rounds


def first_network(experiment: Experiment) -> nn.Module:
    """The network with the weights everybody starts from."""
    torch.manual_seed(0)
    return experiment.network()
