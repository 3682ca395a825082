"""FedNova's mean for other algorithms: displacements over the work behind them. A plug-in."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.fednova import below_one
from fedtempo.algorithms.named import TrafficSettings, named
from fedtempo.algorithms.parts.client_loss import WEIGHTS
from fedtempo.algorithms.parts.local_work import note_way, over_work
from fedtempo.algorithms.parts.rate_rules import AVERAGED, BLOCKS, HISTORY, moving
from fedtempo.client.objectives import Pulled, Received
from fedtempo.client.phase import Carry, Hook, Phase, StepInfo
from fedtempo.client.transforms import Transform
from fedtempo.errors import ConfigError
from fedtempo.params import tensors_in
from fedtempo.schedules import Position


@named
def work_normalised(
    algorithm: Algorithm, *, tau: Literal["norm", "steps"] = "norm", **traffic: Unpack[TrafficSettings]
) -> Algorithm:
    """`algorithm` with x <- x + tau_eff sum_i p_i Delta_i / A_i in place of x <- x + sum_i p_i Delta_i.

    Wang et al. (2020), for any algorithm whose displacement is Delta_i = -l sum_j a_j d_j with known weights a_j of its
    directions d_j; A_i = sum_j a_j. p_i are the algorithm's weights over the cohort (FedNova's are by samples), and
    tau_eff is sum_i p_i A_i, or sum_i p_i K_i with `tau="steps"`. Around SCAFFOLD d_j = grad f_i - c_i + c, and c_i is
    found from the client's own displacement and rates. Around FedExP tau_eff Delta_i / A_i take the place of the
    clients' displacements in its rate. Momentum of `optimizers.sgd` and a proximal pull enter A_i as they enter the
    steps; lr * mu must be below 1. Clipping and weight decay belong to d_j. Server optimizers step on the new mean.

    >>> from fedtempo.algorithms import fedexp, scaffold
    >>> work_normalised(scaffold(lr=0.1, epochs=2, weighting="samples")).name
    'work_normalised'
    >>> work_normalised(fedexp(lr=0.1, epochs=2), tau="steps")
    work_normalised(algorithm=fedexp(lr=0.1, epochs=2), tau='steps')
    """
    who = "work_normalised"
    for owned in (HISTORY, BLOCKS, WEIGHTS, AVERAGED):
        algorithm.leaving(owned, who)
    return over_work(moving(algorithm, who).with_phases(_noting), tau, who)


def _noting(phase: Phase) -> Phase:
    """The phase with A_i and K_i noted after each of its steps on shared tensors."""
    if phase.on == "personal":
        return phase
    pull = phase.objective.pull.strength if isinstance(phase.objective, Pulled) else None
    strength = None if pull is None else below_one(pull, phase.lr)
    note = note_way(phase.lr, strength, *_momentum(phase))

    def after(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
        # Steps on a head that stays with the client are no work on the shared model.
        shared = phase.on == "shared" or any(name not in carry.personal for name in step.after)
        return note(carry, step, received, now) if shared else carry

    rates = tuple((name, strength if strength and name == "mu" else rate) for name, rate in phase.rates)
    return replace(phase, rates=rates).hooked(Hook(after=after, reads_start=False))


def _momentum(phase: Phase) -> tuple[float, bool]:
    """The momentum of the phase's optimizer, and whether it is Nesterov's; an error where gradients count otherwise."""
    optimizer, known = phase.optimizer, phase.optimizer.settings
    if not _remembers(phase.direction) and not _remembers(optimizer.transform):
        return 0.0, False
    own = _remembers(phase.direction)
    if own or optimizer.name != "sgd" or optimizer.state != "reset" or "momentum" not in known:
        rule = "must be around steps in which gradients count by known weights: plain ones, or those of"
        got = "a momentum of the algorithm's own" if own else repr(optimizer)
        raise ConfigError(f"work_normalised {rule} optimizers.sgd(momentum) with state='reset'. Got {got}.")
    return float(known["momentum"]), bool(known.get("nesterov", False))


def _remembers(transform: Transform) -> bool:
    """Whether a transform keeps tensors like the gradients, as momentum and Adam do; counts of steps are none."""
    probe = torch.zeros(2, 3)
    return any(kept.shape == probe.shape for kept in tensors_in(transform.init({"weight": probe})))
