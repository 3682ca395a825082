"""FedNAR: gradient and weight decay are clipped together. Plug-ins for any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.algorithms.rate_rules import NORMALISED, sharing
from fedtempo.client.adaptive import StepFunction, scale_gradient_and_decay
from fedtempo.client.clipping import Order, Scope, clip_by_norm, decay_within
from fedtempo.client.transforms import Transform, add_weight_decay, chain
from fedtempo.errors import ConfigError, require
from fedtempo.params import Params, add
from fedtempo.schedules import Now, Rate, Schedule, checked_rate
from fedtempo.server.step import Server, core_of, fitting, inside
from fedtempo.server.sums import Aggregate


@named
def fednar(
    algorithm: Algorithm,
    *,
    weight_decay: Rate,
    max_norm: Rate,
    eps: float = 0.0,
    scope: Scope = "all",
    order: Order = 2,
    **traffic: Unpack[TrafficSettings],
) -> Algorithm:
    """Every local step of `algorithm` becomes x <- x - l_t s d, d = g + weight_decay x, s = min(1, max_norm / ||d||).

    FedNAR, eqs. 3 and 4. g is the backbone's gradient with its proximal and control terms, the norm is one norm over
    all parameters. `weight_decay` is torch's coefficient u_t / l_t: with l_t = l_0 gamma^t a constant weight_decay
    anneals u_t = u_0 gamma^t with u_0 = weight_decay l_0. The paper counts rounds from 1, we from 0: start at
    l_0 gamma to follow it. `eps=1e-6` follows the authors' `clip_grad_norm_`. `scope="layer"` or `"tensor"` clips every
    module's or tensor's part of d by a norm of its own; `order` is 1, 2 or "max". Rounds report how many steps were
    clipped and the mean norm of those (the paper's Figure 5); with several norms, how many were clipped. Around an
    optimizer that decays weights itself, such as AdamW, one of the two decays must be 0.

    >>> from fedtempo.algorithms import scaffold
    >>> fednar(scaffold(lr=0.01, steps=20), weight_decay=0.05, max_norm=10.0).name
    'fednar'
    """
    decay, clip = _pieces(weight_decay, max_norm, eps, scope, order)
    free = _decayed_once(algorithm.leaving(NORMALISED, "fednar"), weight_decay, "fednar")
    return free.with_direction(lambda direction: chain(decay, clip, direction))


@named
def clip_then_decay(
    algorithm: Algorithm,
    *,
    weight_decay: Rate,
    max_norm: Rate,
    weight_norm: Rate | None = None,
    eps: float = 0.0,
    scope: Scope = "all",
    order: Order = 2,
    **traffic: Unpack[TrafficSettings],
) -> Algorithm:
    """The baseline FedNAR is compared with: the same two pieces in the other order (eq. 5).

    x <- x - l_t (s g + weight_decay x) with s = min(1, max_norm / ||g||): the decay is not clipped. With `weight_norm`
    = c the decay is mu min(1, c / ||x||), the paper's other way to bound each step (section 4.2).
    """
    decay, clip = _pieces(weight_decay, max_norm, eps, scope, order)
    if weight_norm is not None:
        limit = checked_rate(weight_norm, "weight_norm", positive=True)
        decay = decay_within(checked_rate(weight_decay, "weight_decay"), limit)
    free = _decayed_once(algorithm.leaving(NORMALISED, "clip_then_decay"), weight_decay, "clip_then_decay")
    return free.with_direction(lambda direction: chain(clip, decay, direction))


@named
def adaptive_decay(
    algorithm: Algorithm, *, rate: StepFunction, decay: StepFunction, **traffic: Unpack[TrafficSettings]
) -> Algorithm:
    """Every local step becomes x <- x - l_t (rate(g, x) g + decay(g, x) x): FedNAR's Algorithm 2 with any functions.

    `rate(gradient, params, now)` and `decay(gradient, params, now)` return one number, or one per tensor by name. They
    are relative to the learning rate: lambda_t(g, x) = l_t rate and mu_t(g, x) = l_t decay; with lr=1 they are the
    paper's functions. `fedtempo.client.adaptive` has those of equations 3 to 5.
    """
    for name, function in (("rate", rate), ("decay", decay)):
        require(callable(function), name, "a function of (gradient, weights, position)", function)
    free = algorithm.leaving(NORMALISED, "adaptive_decay")
    return free.with_direction(lambda direction: chain(scale_gradient_and_decay(rate, decay), direction))


@named
def server_decay(algorithm: Algorithm, *, decay: Rate, **traffic: Unpack[TrafficSettings]) -> Algorithm:
    """The server's step and then x <- x - `decay` x_old: weight decay of the shared model, once a round.

    Li et al. (2023) tune it in place of the clients' weight decay; FedNAR, Lemma 1, has it as mu_g.
    """
    rate = checked_rate(decay, "decay")
    # Inside: what a server makes of its models, such as AFL's mean of them, is of the decayed ones.
    return replace(
        algorithm, server=inside(sharing(algorithm, "server_decay").server, lambda server: _decaying(server, rate))
    )


def _decaying(server: Server, rate: Schedule) -> Server:
    def step(shared: Params, state: object, aggregate: Aggregate, now: Now) -> tuple[Params, object]:
        moved, state = server.step(shared, state, aggregate, now)
        trained = {n: t for n, t in moved.items() if n in aggregate.means["delta"]}
        return {**moved, **add(trained, shared, -rate.at(now))}, state

    return server._replace(
        step=step,
        rewrap=lambda other: _decaying(server.rewrap(other), rate),
        schedules=(*server.schedules, ("server decay", rate)),
        fitted=fitting(server, lambda inner: _decaying(inner, rate)),
        core=core_of(server),
    )


def _decayed_once(algorithm: Algorithm, weight_decay: Rate, who: str) -> Algorithm:
    """The algorithm itself; an error where an optimizer would decay its weights a second time."""
    phases = [p for phase in algorithm.phases for p in (phase, phase.beside) if p is not None]
    own = {p.optimizer.name for p in phases if "weight_decay" in dict(p.optimizer.transform.schedules)}
    if own and weight_decay != 0:
        rule = "must be around an optimizer that does not decay weights itself, or they decay twice"
        raise ConfigError(f"{who} {rule}. Got {', '.join(sorted(own))}: give one of the two weight_decay=0.")
    return algorithm


def _pieces(weight_decay: Rate, max_norm: Rate, eps: float, scope: Scope, order: Order) -> tuple[Transform, Transform]:
    require(eps >= 0, "eps", "a number >= 0", eps)
    limit = checked_rate(max_norm, "max_norm", positive=True)
    return add_weight_decay(checked_rate(weight_decay, "weight_decay")), clip_by_norm(limit, eps, scope, order)
