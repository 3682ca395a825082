"""Any algorithm with a personal head. A plug-in."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.algorithms.parts.rate_rules import AVERAGED, CENTRE, moving
from fedtempo.errors import ConfigError
from fedtempo.params import Selector, nothing, submodule


@named
def with_head(
    algorithm: Algorithm, *, head: Selector = submodule("head"), **traffic: Unpack[TrafficSettings]
) -> Algorithm:
    """`algorithm` with a head W_i that stays with its client: FedPer's split (Arivazhagan et al., 2019) for others.

    Body and head take the same steps, with one norm over both where steps are clipped or rates follow gradients. The
    server sees the body alone: its means, FedExP's and FedNova's displacements, FedHyper's products. A proximal term
    pulls the body alone, and only the body is corrected: SCAFFOLD's variates, FedDyn's and FedSpeed's histories and
    FedCM's direction have no part for the head, whose gradient counts whole. A new client gets a fresh head and
    fine-tunes it with the body. `with_head(fedavg(...))` is FedPer with FedAvg's weights.

    >>> from fedtempo.algorithms import fedprox
    >>> with_head(fedprox(lr=0.1, steps=5, mu=0.1)).name
    'with_head'
    """
    if algorithm.personal is not nothing:
        raise ConfigError(f"with_head must be around an algorithm that shares its whole model. Got {algorithm.name}.")
    if algorithm.components is not None:
        raise ConfigError(f"with_head must be around an algorithm with one shared model. Got {algorithm.name}.")
    if not algorithm.memory.is_apart:
        rule = "must be around an algorithm whose clients keep no model or part of one"
        raise ConfigError(f"with_head {rule}. Got {algorithm.name}.")
    for owned in (AVERAGED, CENTRE):
        algorithm.leaving(owned, "with_head")
    return replace(moving(algorithm, "with_head"), personal=head)
