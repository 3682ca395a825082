"""FedMuon: orthogonalised momentum on matrices, shared between clients; AdamW on vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.fedadamw import refuse_optimizer
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.global_update import driven, driving
from fedtempo.algorithms.parts.polar_factor import orthogonalised, polar_factor
from fedtempo.client.clipping import clip_gradient
from fedtempo.client.optimizers import NORMALISED, Optimizer
from fedtempo.client.phase import Hook
from fedtempo.client.transforms import Transform, scale_by_adam
from fedtempo.errors import is_number, require
from fedtempo.params import Params, zeros_like
from fedtempo.schedules import Position, Rate, Schedule, checked_rate


@named
def fedmuon(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    gamma: float = 0.5,
    b: float = 0.98,
    factor: float = 1.0,
    nesterov: bool = True,
    exact: bool = False,
    weight_decay: Rate = 0.01,
    max_norm: Rate | None = None,
    server_lr: Rate = 1.0,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """Matrices: M <- b M + (1 - b) g, u = NS((1 - b) g + b M) sqrt(max(1, rows / columns)), y <- y (1 - r lam) - r u.

    Liu et al. (2025), as their code has it but for the precision: r = l factor (1 - gamma), lam = `weight_decay`, NS
    five Newton-Schulz iterations in the model's own type (the code's are in bfloat16). Kernels of convolutions are
    matrices of one row per output. Vectors take AdamW steps (.9, .95, 1e-10) of rate l (1 - gamma), anew in every
    round. Then every tensor takes y <- y + (gamma / K) D, with D the last round's mean displacement. M is averaged
    over the cohort and comes down with the model. The code has factor=10 for a transformer and 0.5 for a ResNet;
    gamma=0, b=0.95 is local Muon with a shared M. The paper takes the exact polar factor of M (`exact=True,
    nesterov=False`); directions in which M is zero but for rounding stay zero. The code clips gradients at
    `max_norm=10` first. Another method of the same name (arXiv 2509.26337) is not meant.
    """
    refuse_optimizer(clients, "fedmuon")
    for name, value in (("gamma", gamma), ("b", b)):
        require(is_number(value) and 0 <= value < 1, name, "a number in [0, 1)", value)
    require(factor > 0, "factor", "a number > 0", factor)
    rate, decay = checked_rate(lr, "lr"), checked_rate(weight_decay, "weight_decay")
    turn = polar_factor if exact else orthogonalised
    transform = _muon(b, turn, nesterov, factor * (1 - gamma), 1 - gamma, decay)
    optimizer = Optimizer(transform, "average", frozenset({"m", "v", "count"}), name="fedmuon")
    settings: ClientSettings = {**clients, "optimizer": optimizer}
    plain = fedavg(rate, steps, epochs=epochs, server_lr=server_lr, **settings)
    drive = driven(gamma, rate, rescaled=False)
    clip = clip_gradient(max_norm)
    phases = tuple(replace(p, direction=clip).hooked(Hook(after=drive, reads_start=False)) for p in plain.phases)
    return replace(plain, phases=phases, server=driving(plain.server), owns=frozenset({NORMALISED}))


def _muon(
    b: float,
    turn: Callable[[Tensor], Tensor],
    nesterov: bool,
    on_matrices: float,
    on_vectors: float,
    decay: Schedule,
) -> Transform:
    adam = scale_by_adam(0.9, 0.95, 1e-10, corrects="moments")

    def split(params: Params) -> tuple[Params, Params]:
        # A tensor without numbers has no directions to turn.
        matrices = {n: p for n, p in params.items() if p.dim() > 1 and p.numel()}
        return matrices, {n: p for n, p in params.items() if n not in matrices}

    def init(params: Params) -> Any:
        matrices, vectors = split(params)
        return {"M": zeros_like(matrices), "adam": adam.init(vectors)}

    def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
        matrices, vectors = split(gradient)
        momentum = {n: b * state["M"][n] + (1 - b) * g for n, g in matrices.items()}
        ahead = {n: (1 - b) * g + b * momentum[n] for n, g in matrices.items()} if nesterov else momentum
        turned = {n: turn(matrix) for n, matrix in ahead.items()}
        stepped, after = adam.update(vectors, state["adam"], params, now) if vectors else ({}, state["adam"])
        steps = {**{n: (on_matrices, u) for n, u in turned.items()}, **{n: (on_vectors, s) for n, s in stepped.items()}}
        shrink = decay(now)
        direction = {n: steps[n][0] * (steps[n][1] + shrink * params[n]) for n in gradient}
        return direction, {"M": momentum, "adam": after}

    return Transform(init, update, schedules=(("weight_decay", decay),))
