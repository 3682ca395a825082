"""FedNova: displacements are normalised by the work behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.fedprox import fedprox
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.local_work import note_work, over_work
from fedtempo.algorithms.parts.rate_rules import CENTRE
from fedtempo.client.phase import Hook
from fedtempo.client.transforms import Transform, chain, scale, sgd
from fedtempo.client.transforms import momentum as heavy_ball
from fedtempo.errors import ConfigError, require
from fedtempo.params import Params, add, subtract, zeros_like
from fedtempo.schedules import Now, Position, Rate, Schedule, checked_rate
from fedtempo.server.step import descend


@named
def fednova(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    momentum: float = 0.0,
    mu: Rate = 0.0,
    tau: Literal["norm", "steps"] = "norm",
    server_lr: Rate = 1.0,
    server_momentum: float = 0.0,
    compat: bool = False,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """x <- x + tau_eff sum_i p_i Delta_i / A_i, where Delta_i = -l sum_j a_j g_j and A_i = sum_j a_j.

    Wang et al. (2020). A_i is K_i for plain steps; with client momentum and a proximal term A <- (1 - l mu) A + c, c <-
    momentum c + 1. A rate that decays inside the round by b_k gives A <- (1 - l b_k mu) A + b_k c. tau_eff is sum_i p_i
    A_i, or sum_i p_i K_i with `tau="steps"`, as the authors' code has it for mu > 0. With momentum the proximal pull is
    added after it, and after FedNAR's clipping; `compat=True` adds the pull to the momentum itself and takes A <- (A +
    c)(1 - l mu) + 1, as that code does. `server_momentum` is the code's u <- m u + D / l_t, x <- x + eta_g l_t u. A
    client without steps counts nothing. `work_normalised` does the same to other algorithms, such as SCAFFOLD and
    FedExP.
    """
    if "optimizer" in clients:
        raise ConfigError("fednova must know the weight of every gradient: use momentum=. Got an optimizer.")
    rate, strength = checked_rate(lr, "lr"), checked_rate(mu, "mu")
    strength = below_one(strength, rate)
    pulls, inside = mu != 0, mu != 0 and momentum == 0
    plain = (
        fedprox(rate, steps, mu=strength, epochs=epochs, weighting=weighting, **clients)
        if inside
        else fedavg(rate, steps, epochs=epochs, weighting=weighting, **clients)
    )
    beside = pulls and not inside
    direction = _pulled(momentum, strength, compat) if beside else heavy_ball(momentum)
    note = note_work(rate, strength if pulls else None, momentum, compat and pulls and momentum > 0)
    phases = tuple(replace(p, direction=direction).hooked(Hook(after=note, reads_start=False)) for p in plain.phases)
    outer = [scale(_inverse(rate)), heavy_ball(server_momentum), scale(rate)] if server_momentum else []
    server = descend(chain(*outer, sgd(checked_rate(server_lr, "server_lr"))))
    owns = plain.owns | ({CENTRE} if beside else set())
    return over_work(replace(plain, phases=phases, server=server, owns=owns), tau, "fednova")


def below_one(strength: Schedule, rate: Schedule) -> Schedule:
    """mu, which is refused in any round in which l mu is not below 1. Runs check their schedules before they start."""

    def rule(now: Now) -> float:
        product = rate.at(now) * strength.at(now)
        require(product < 1, "lr * mu", "below 1, or gradients count with alternating signs", product)
        return strength.at(now)

    rule(Now())
    # Two constants have one product, which is checked now and at no step.
    return strength if strength.is_constant and rate.is_constant else replace(strength, rule=rule)


def _inverse(rate: Schedule) -> Schedule:
    return Schedule("inverse", {"of": rate}, lambda now: 1 / rate.at(now) if rate.at(now) else 0.0)


def _pulled(momentum: float, strength: Schedule, compat: bool) -> Transform:
    """Momentum and the pull mu (y - x): beside each other, or with the pull inside the momentum."""

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        velocity = add(gradient, state["velocity"], momentum)
        pulled = add(velocity, subtract(params, state["centre"]), strength(now))
        return pulled, {"velocity": pulled if compat else velocity, "centre": state["centre"]}

    return Transform(
        lambda params: {"velocity": zeros_like(params), "centre": dict(params)}, update, schedules=(("mu", strength),)
    )
