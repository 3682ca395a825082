"""APFL: every client mixes a model of its own with its copy of the shared one."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting
from fedtempo.algorithms.named import ClientSettings, PhaseSettings, gradient_only, named, phase_settings
from fedtempo.algorithms.parts.model_interpolation import ALPHA, Mix, mixture_of, predict_interpolated
from fedtempo.client.objectives import Loss, Objective, Received, Value, View
from fedtempo.client.phase import Beside, Carry, Hook, Length, Phase, StepInfo, length
from fedtempo.client.transforms import sgd
from fedtempo.errors import is_number, require
from fedtempo.params import Params, nothing
from fedtempo.schedules import Position, Rate, checked_rate, constant
from fedtempo.server.step import descend
from fedtempo.tasks import Batch


@named
def apfl(
    lr: Rate,
    steps: Rate | None = None,
    *,
    alpha: float = 0.5,
    adaptive: bool = False,
    alpha_lr: Rate | None = None,
    mix: Mix = "parameters",
    order: Literal["together", "shared_first"] = "together",
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """w <- w - l grad f_i(w), v <- v - l alpha grad f_i(m), m = alpha v + (1 - alpha) w (Deng et al., 2020).

    Both gradients are taken before either step; with `order="shared_first"` v's is taken at the new w. w is sent and
    averaged, so the shared model is FedAvg's. Adaptive: at the first step of a round, alpha <- clip_[0,1](alpha -
    l_a <v - w, grad f_i(m)>), used from the second step on; l_a is `alpha_lr`, or the step's rate. v_i and alpha_i
    are kept. A user is served m with w = x. A new client starts at v = x and takes a round's steps on v. The
    authors' code mixes outputs in place of parameters (`mix="outputs"`) and steps w first (`order="shared_first"`);
    its slope for alpha has the factors alpha and 1 - alpha twice and a term 0.02 alpha, of which nothing is
    reproduced.
    """
    require(is_number(alpha) and 0 <= alpha <= 1, "alpha", "a number in [0, 1]", alpha)
    rate, count = checked_rate(lr, "lr"), length(steps, epochs)
    own = Phase(count, rate, objective=_mixed_loss(mix, noted=True), on="personal", **phase_settings(clients))
    follows = order == "shared_first"
    both = Phase(count, rate, on="shared", beside=Beside(own, follows), **phase_settings(clients))
    slope = checked_rate(rate if alpha_lr is None else alpha_lr, "alpha_lr")
    exact: PhaseSettings = {**gradient_only(clients), "trains": nothing}
    # Its one step sees the first batch of the round, and w and v where they start.
    adapt = Phase(
        Length(constant(1)),
        slope,
        objective=_mixed_loss(mix, noted=False),
        on="personal",
        own=ALPHA,
        hooks=(Hook(after=_into_unit),),
        **exact,
    )
    return Algorithm(
        (adapt, both) if adaptive else (both,),
        server=descend(sgd(checked_rate(server_lr, "server_lr"))),
        weighting=weighting,
        memory=Memory(lambda shared, trained: {**shared, ALPHA: _number(shared, alpha)}, begin=_note_alpha),
        serving=Serving(predict_interpolated(mix), newcomer_phases=(own,), finetune_on="personal"),
    )


def _number(shared: Params, value: float) -> Tensor:
    first = next(p for p in shared.values() if p.is_floating_point())
    return torch.full((), value, dtype=first.dtype, device=first.device)


def _note_alpha(received: Received, personal: Params) -> tuple[Params, Params]:
    return personal, {ALPHA: personal[ALPHA]}


def _into_unit(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
    return carry._replace(personal={**carry.personal, ALPHA: step.after[ALPHA].clamp(0.0, 1.0)})


def _mixed_loss(mix: Mix, noted: bool) -> Objective:
    """The loss of the mixture. Its first step has the alpha that was `noted` when the round began."""

    def objective(loss: Loss, params: Params, batch: Batch, view: View, now: Position) -> Value:
        alpha = params[ALPHA]
        if noted and ALPHA in view.scratch:
            first = now.value(lambda here: float(here.step == 0))
            alpha = view.scratch[ALPHA] * first + alpha * (1 - first)
        if mix == "parameters":
            # Statistics are mixed too, but the loss does not depend on them.
            statistics = {n: mixture_of(alpha.detach(), params, {n: view.shared[n]})[n] for n in view.network.buffers}
            value, buffers = loss({**mixture_of(alpha, params, view.shared), **statistics}, batch)
            return Value(value, value, buffers)
        apart = view.network.forward(view.shared, batch, True) - view.network.forward(params, batch, True)
        value, buffers = loss(params, batch, shift=(1 - alpha) * apart)
        return Value(value, value, buffers)

    return objective
