"""Controls that a client sets from its own gradients, losses and weights. They are tried here, under the same protocol.

They are no part of the library's methods: a rule becomes one when it is ahead on more than one data set.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fedtempo.algorithms import Algorithm, adaptive_decay, fedavg
from fedtempo.algorithms.fedhyper_client import last_displacement, sending_last
from fedtempo.algorithms.parts.rate_rules import ruled
from fedtempo.client.rules import Probe, RateRule, State, zero_of
from fedtempo.params import Params, Scalar, inner, norm
from fedtempo.schedules import Now, Position, Schedule, by_own_loss, step_number

LEAST_BETA = 0.2
"""The smallest beta that the FedDecay papers found best."""
LOSS_POWER = 1 / 3
"""The decaying-K paper's Theorem 2: K follows the cube root of the loss."""


def beta_by_agreement(lr: float, steps: int) -> Algorithm:
    """FedDecay with a beta for each client and round: beta = 0.2 + 0.8 (1 - max(0, cos(g_0, -D))).

    g_0 is the client's first gradient of the round and D the last mean displacement. A client whose gradient agrees
    with the others decays fast; one that disagrees takes full steps. The FedDecay paper says so of a whole
    federation: similar clients want a small personalization ratio.
    """

    def update(probe: Probe, state: State, now: Position) -> tuple[Scalar, State]:
        beta = _beta(probe) if step_number(now) == 0 else state["beta"]
        return probe.base * beta ** step_number(now), {"beta": beta}

    plain = fedavg(lr, steps)
    rule = RateRule(lambda params: {"beta": zero_of(params)}, update)
    adapted = replace(ruled(plain, rule, "beta_by_agreement"), server=sending_last(plain.server))
    return replace(adapted, name="beta_by_agreement", settings={"lr": lr, "steps": steps})


def _beta(probe: Probe) -> Scalar:
    last = last_displacement(probe)
    product = -inner(last, probe.gradient).to(torch.float64)
    lengths = (norm(last) * norm(probe.gradient)).to(torch.float64) if last else torch.zeros_like(product)
    cosine = torch.where(lengths > 0, product / torch.where(lengths > 0, lengths, 1.0), 0.0)
    return LEAST_BETA + (1 - LEAST_BETA) * (1 - cosine.clamp(min=0.0))


def k_by_own_loss(steps: int) -> Schedule:
    """K_i = K (client's last loss)^(1/3), and never more than K: who has learnt its rows takes fewer steps."""
    own = by_own_loss(steps, LOSS_POWER)
    settings = {"k": steps, "power": LOSS_POWER}
    return Schedule("k_by_own_loss", settings, lambda now: max(1.0, min(own.at(now), float(steps))))


def decay_by_norms(lr: float, steps: int, share: float) -> Algorithm:
    """Weight decay u = share |g| / |x| in every step, so that decay is this share of the gradient's length."""

    def decay(gradient: Params, params: Params, now: Position) -> Scalar:
        length = norm({name: params[name] for name in gradient})
        return share * norm(gradient) / length.clamp(min=torch.finfo(length.dtype).tiny)

    adapted = adaptive_decay(fedavg(lr, steps), rate=lambda gradient, params, now: 1.0, decay=decay)
    return replace(adapted, name="decay_by_norms", settings={"lr": lr, "steps": steps, "share": share})


def uneven_steps(steps: int) -> Schedule:
    """Half of K, K or one and a half K steps, by the client's number: clients that do unequal work."""

    def rule(now: Now) -> float:
        return max(1.0, steps * (0.5 + 0.5 * (now.client % 3)))

    return Schedule("uneven_steps", {"k": steps}, rule)
