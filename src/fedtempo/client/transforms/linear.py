"""Transforms that are linear in the gradients: a factor, weight decay, momentum, and SGD made of them."""

from __future__ import annotations

from fedtempo.client.kernels import momentum_step
from fedtempo.client.transforms.transform import State, Transform, chain, identity, stateless
from fedtempo.errors import is_number, require, takes_numbers
from fedtempo.params import Params, add, scaled, zeros_like
from fedtempo.schedules import Position, Rate, as_schedule


def scale(factor: Rate) -> Transform:
    """`factor * gradient`."""
    rate = as_schedule(factor)
    return stateless(lambda g, p, now: scaled(g, rate(now)), scale=rate)


def add_weight_decay(rate: Rate) -> Transform:
    """`gradient + rate * params`: torch's `weight_decay`, FedNAR's u_t / l_t."""
    decay = as_schedule(rate)

    def alone(
        gradient: Params, before: float, state: State, params: Params, now: Position, rate: float
    ) -> tuple[float, State] | None:
        here = decay(now)
        # Two decays are two additions: their sum in one would round differently.
        return (here, state) if isinstance(here, float) and before == 0 else None

    added = stateless(lambda g, p, now: add(g, p, decay(now)), weight_decay=decay)
    return added._replace(decay_alone=alone)


@takes_numbers
def momentum(decay: float, nesterov: bool = False) -> Transform:
    """`u <- decay * u + gradient`, no dampening: FedAvgM's server and torch's SGD momentum."""
    require(is_number(decay) and 0 <= decay < 1, "momentum", "a number in [0, 1)", decay)
    if decay == 0:
        return identity

    def update(gradient: Params, velocity: State, params: Params, now: Position) -> tuple[Params, State]:
        velocity = add(gradient, velocity, decay)
        return (add(gradient, velocity, decay) if nesterov else velocity), velocity

    def one_pass(
        gradient: Params, weight_decay: float, velocity: State, params: Params, now: Position, rate: float
    ) -> State:
        return velocity if momentum_step(params, gradient, velocity, rate, weight_decay, decay, nesterov) else None

    return Transform(zeros_like, update, one_pass=one_pass)


@takes_numbers
def sgd(lr: Rate, momentum_decay: float = 0.0) -> Transform:
    """`lr * gradient`, with heavy-ball momentum if asked for."""
    rate = as_schedule(lr)
    descent = stateless(lambda g, p, now: scaled(g, rate(now)), lr=rate)
    return chain(momentum(momentum_decay), descent) if momentum_decay else descent
