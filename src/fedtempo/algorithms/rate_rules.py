"""What the wrappers share that let a client's rate follow its gradients."""

from __future__ import annotations

from dataclasses import replace

from fedtempo.algorithms.algorithm import NORMALISED, Algorithm
from fedtempo.client.phase import Phase
from fedtempo.client.rules import RateRule
from fedtempo.errors import ConfigError


def ruled(algorithm: Algorithm, rule: RateRule, who: str, counts_earlier: bool = False) -> Algorithm:
    """The algorithm with this rule in every phase whose rate is the client's own, those that serve users among them."""

    def change(phase: Phase) -> Phase:
        if phase.prescribed_rate:
            return phase
        return replace(phase, rate_rule=rule, counts_earlier=phase.counts_earlier or counts_earlier)

    free = algorithm.leaving(NORMALISED, who).claimed("the client's rate", who)
    return free.with_phases(change, serving=True)


def sharing(algorithm: Algorithm, who: str) -> Algorithm:
    """The algorithm itself; an error where nothing is shared."""
    if algorithm.uploads.nothing:
        raise ConfigError(f"{who} must be around an algorithm that shares something. Got {algorithm.name}.")
    return algorithm


def moving(algorithm: Algorithm, who: str) -> Algorithm:
    """The algorithm itself; an error where clients do not move the shared model by steps of their own."""
    own = all(not phase.prescribed_rate for phase in algorithm.phases)
    moves = any(phase.on != "personal" for phase in algorithm.phases)
    if not (own and moves) or algorithm.uploads.nothing:
        raise ConfigError(f"{who} must be around clients' own steps on the shared model. Got {algorithm.name}.")
    return algorithm
