"""FedAdamW: local AdamW that goes on with the federation's second moments and its last displacement."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.global_update import driven, driving
from fedtempo.algorithms.parts.shared_moments import adamw_with_shared_moments, with_block_means
from fedtempo.client.clipping import clip_gradient
from fedtempo.client.optimizers import NORMALISED, Optimizer
from fedtempo.client.phase import Hook
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.schedules import Rate, checked_rate


@named
def fedadamw(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    alpha: float = 0.5,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: Rate = 0.01,
    max_norm: Rate | None = None,
    second_moment: Literal["block_mean", "whole", "reset"] = "block_mean",
    one_count: bool = False,
    server_lr: Rate = 1.0,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """y <- y - l (mhat / (sqrt(vhat) + eps) + weight_decay y) + (alpha / K) D, D = the last round's mean displacement.

    Liu et al. (2025). m starts afresh in every round, mhat = m / (1 - b1^k) with the round's own count k; v goes on
    from the federation's, vhat = v / (1 - b2^t) with t the steps of the whole run. Clients send the mean of v of
    every tensor (`"block_mean"`) or all of v (`"whole"`, as in the authors' code); `"reset"` starts v afresh, and
    then t is k. D is multiplied by l_t / l_{t-1} where the rate changed. A decay inside the round multiplies both
    terms. K is this round's. The code clips gradients at `max_norm=10` before the moments see them. It divides m by
    1 - b1^t as well (`one_count=True`), so that after the first round steps start small.
    """
    refuse_optimizer(clients, "fedadamw")
    require(is_number(alpha) and alpha >= 0, "alpha", "a number >= 0", alpha)
    rate, decay = checked_rate(lr, "lr"), checked_rate(weight_decay, "weight_decay")
    kept = {"block_mean": {"mean"}, "whole": {"v"}, "reset": set[str]()}[second_moment]
    optimizer = Optimizer(
        adamw_with_shared_moments(b1, b2, eps, decay, second_moment, one_count),
        "average" if kept else "reset",
        frozenset({"m", "v", "mean", "begun"}) - kept,
        with_block_means if second_moment == "block_mean" else None,
        name="fedadamw",
    )
    settings: ClientSettings = {**clients, "optimizer": optimizer}
    plain = fedavg(rate, steps, epochs=epochs, server_lr=server_lr, **settings)
    drive = driven(alpha, rate, rescaled=True)
    clip = clip_gradient(max_norm)
    hook = Hook(after=drive, reads_start=False)
    phases = tuple(replace(p, direction=clip, counts_earlier=True).hooked(hook) for p in plain.phases)
    return replace(plain, phases=phases, server=driving(plain.server), owns=frozenset({NORMALISED}))


def refuse_optimizer(clients: ClientSettings, who: str) -> None:
    """An error where clients are given an optimizer."""
    if "optimizer" in clients:
        raise ConfigError(f"{who} must keep its own optimizer: it is the algorithm. Got another one.")
