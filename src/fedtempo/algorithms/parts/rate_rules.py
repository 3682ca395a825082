"""What wrappers share: rules for a client's rate, and what an algorithm may own that a wrapper must leave alone."""

from __future__ import annotations

from dataclasses import replace

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.client.objectives import Pulled, supervised
from fedtempo.client.optimizers import NORMALISED
from fedtempo.client.phase import Hook, Phase
from fedtempo.client.rules import RateRule
from fedtempo.errors import ConfigError, require

HISTORY = "the mean of all clients' memories"
"""What algorithms own whose server counts what clients remember; an upload that comes late would be counted wrongly."""
BLOCKS = "which steps belong together"
"""What algorithms own that do something after an epoch or so many steps; a client that stops before would leave it out.
"""
AVERAGED = "what the server averages"
"""What algorithms own whose displacements are not the sum of a round's steps, or that average something else as well.
"""
CENTRE = "where all tensors of a step are pulled"
"""What algorithms own whose pull is part of the direction: it does not tell a personal head from the shared body."""


def ruled(algorithm: Algorithm, rule: RateRule, who: str, counts_earlier: bool = False) -> Algorithm:
    """The algorithm with this rule in every phase whose rate is the client's own, those that serve users among them."""

    def change(phase: Phase) -> Phase:
        if phase.prescribed_rate:
            return phase
        if rule.needs_data and not (phase.objective is supervised or isinstance(phase.objective, Pulled)):
            raise ConfigError(
                f"{who} with with_proximal=False must be around an objective that is the loss, alone or with a "
                f"proximal term. Got {algorithm.name}, whose objective does not tell its terms apart."
            )
        return replace(phase, counts_earlier=phase.counts_earlier or counts_earlier).hooked(Hook(rate_rule=rule))

    free = algorithm.leaving(NORMALISED, who).claimed("the client's rate", who)
    return free.with_phases(change, serving=True)


def check_bounds(smallest: float, largest: float) -> None:
    """The least and the most that a rate may become, as factors of its first value."""
    require(0 < smallest <= 1, "smallest", "a number in (0, 1]", smallest)
    require(largest >= 1, "largest", "a number >= 1", largest)


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
