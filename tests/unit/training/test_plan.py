"""The plan of a run, by hand: rates, numbers of steps, and the personalization ratio."""

from __future__ import annotations

import pytest

from fedtempo import algorithms as a
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now, decaying_k, per_round
from fedtempo.training.plan import planned_rounds, planned_steps


def test_rounds_by_hand() -> None:
    """K = 4, 2, 1 steps of one rate: the ratio of AvgGradInner to AvgGrad is lr (K - 1) / 2."""
    algorithm = a.fedavg(lr=per_round(0.1, 0.5), steps=decaying_k(4, 0.5), server_lr=per_round(1.0, 0.9))
    rounds = list(planned_rounds(algorithm, range(3), 10, Batching(4), Now()))
    assert [plan.steps for plan in rounds] == [(4,), (2,), (1,)]
    assert [plan.server["server lr"] for plan in rounds] == pytest.approx([1.0, 0.9, 0.81])
    assert [plan.ratio for plan in rounds] == pytest.approx([0.1 * 3 / 2, 0.05 * 1 / 2, 0.0])


def test_steps_by_hand() -> None:
    """Ten rows in batches of four are three steps an epoch; FedDecay per epoch has one rate for each."""
    algorithm = a.feddecay(lr=0.1, beta=0.5, epochs=2, per="epoch")
    steps = list(planned_steps(algorithm, [3], 10, Batching(4), Now()))
    assert [(plan.round, plan.step, plan.steps) for plan in steps] == [(3, step, 6) for step in range(6)]
    assert [plan.rates["lr"] for plan in steps] == pytest.approx([0.1] * 3 + [0.05] * 3)


def test_every_phase_has_its_own_steps() -> None:
    algorithm = a.fedrep(lr=0.1, head_epochs=2, body_steps=1)
    steps = list(planned_steps(algorithm, [0], 10, Batching(5), Now()))
    assert [(plan.phase, plan.step) for plan in steps] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
