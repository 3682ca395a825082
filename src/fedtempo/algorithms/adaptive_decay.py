"""Adaptive decay: any two functions of gradient and weights scale them. A plug-in for any algorithm."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.fednar import decayed_once
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.client.adaptive import StepFunction, scale_gradient_and_decay
from fedtempo.client.optimizers import NORMALISED
from fedtempo.client.transforms import chain
from fedtempo.errors import require


@named
def adaptive_decay(
    algorithm: Algorithm, *, rate: StepFunction, decay: StepFunction, **traffic: Unpack[TrafficSettings]
) -> Algorithm:
    """Every local step becomes x <- x - l_t (rate(g, x) g + decay(g, x) x): FedNAR's Algorithm 2 with any functions.

    `rate(gradient, params, now)` and `decay(gradient, params, now)` return one number, or one per tensor by name; a
    rate is not negative. They are relative to the learning rate: lambda_t(g, x) = l_t rate and mu_t(g, x) = l_t decay;
    with lr=1 they are the paper's functions. `fedtempo.client.adaptive` has those of equations 3 to 5. An optimizer
    that decays weights itself, such as AdamW, must have weight_decay=0.
    """
    for name, function in (("rate", rate), ("decay", decay)):
        require(callable(function), name, "a function of (gradient, weights, position)", function)
    # What a function returns cannot be known before a run, so the optimizer must leave the decay to it.
    free = decayed_once(algorithm.leaving(NORMALISED, "adaptive_decay"), None, "adaptive_decay")
    return free.with_direction(lambda direction: chain(scale_gradient_and_decay(rate, decay), direction))
