"""pFedMe: personal models as Moreau envelopes of the local one."""

from __future__ import annotations

from typing import Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Weighting, full_copy, predict_personal
from fedtempo.algorithms.named import ClientSettings, named, phase_settings
from fedtempo.algorithms.parts.rate_rules import BLOCKS
from fedtempo.client.objectives import Received, moreau
from fedtempo.client.phase import AfterStep, Carry, Hook, Phase, StepInfo, length
from fedtempo.client.transforms import add_weight_decay, identity, sgd
from fedtempo.errors import is_count, require
from fedtempo.params import Params
from fedtempo.schedules import Position, Rate, Schedule, checked_rate
from fedtempo.server.step import descend


@named
def pfedme(
    lr: Rate = 0.005,
    personal_lr: Rate = 0.09,
    *,
    lam: Rate = 15.0,
    inner_steps: int = 5,
    local_rounds: Rate = 20,
    beta: Rate = 1.0,
    warm_start: bool = True,
    l2: float = 0.0,
    train_absent: bool = False,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """R times: K steps theta <- theta - eta_p (grad f_i(theta) + lam (theta - w)), then w <- w - eta lam (w - theta).

    Dinh et al. (2020), with R = `local_rounds`, K = `inner_steps`, eta = `lr`. The K steps share one batch; the
    proximal centre is the current local w. Server: x <- (1 - beta) x + beta mean w_i. theta starts at the received x
    and is carried over the R rounds (`warm_start=False` starts it at w each time). The authors' code adds
    `l2=0.001`, trains absent clients too for their theta_i (`train_absent=True`) and, by a slip, evaluates w_i; we
    evaluate theta_i. A new client takes one round's steps from x.
    """
    require(is_count(inner_steps), "inner_steps", "an int >= 1", inner_steps)
    strength = checked_rate(lam, "lam", positive=True)
    phase = Phase(
        length(local_rounds, times=inner_steps),
        checked_rate(personal_lr, "personal_lr"),
        objective=moreau(strength),
        rates=(("lam", strength),),
        direction=add_weight_decay(l2) if l2 else identity,
        on="personal",
        **phase_settings(clients),
        repeat=inner_steps,
        hooks=(Hook(after=_move_local(checked_rate(lr, "lr") * strength, inner_steps, warm_start), reads_start=False),),
    )
    return Algorithm(
        (phase,),
        server=descend(sgd(checked_rate(beta, "beta"))),
        weighting=weighting,
        memory=Memory(initial_state=full_copy, begin=_start_at_received, absent_train=train_absent),
        serving=Serving(predict_personal, newcomer_phases=(phase,), finetune_on="personal"),
        owns=frozenset({BLOCKS}),
    )


def _start_at_received(received: Received, personal: Params) -> tuple[Params, Params]:
    return {n: received.shared[n] for n in personal}, {}


def _move_local(rate: Schedule, inner_steps: int, warm_start: bool) -> AfterStep:
    """After every K-th step: w <- w - eta lam (w - theta)."""

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        # Side by side, clients may stand at different steps: then `due` is a tensor of 0 and 1, and a factor instead of
        # a branch.
        due = now.value(lambda here: float((here.step + 1) % inner_steps == 0))
        if isinstance(due, float) and not due:
            return carry
        theta, pull = step.after, due * rate(now)
        shared = {n: carry.shared[n] - pull * (carry.shared[n] - theta[n]) for n in theta}
        carry = carry._replace(shared={**carry.shared, **shared})
        again = now.value(lambda here: float((here.step + 1) % inner_steps == 0 and here.step + 1 < here.steps))
        if warm_start or (isinstance(again, float) and not again):
            return carry
        # theta starts at w for the next local round; after the last one it stays: it is the personal model. A copy of
        # w, since steps write over theta.
        fresh = {
            n: w.clone() if isinstance(again, float) else torch.where(again > 0, w, theta[n]) for n, w in shared.items()
        }
        return carry._replace(personal={**carry.personal, **fresh})

    return after
