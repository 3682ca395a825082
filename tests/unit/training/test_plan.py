"""The plan of a run, by hand: rates, numbers of steps, and the personalization ratio."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now, decaying_k, per_round
from fedtempo.training.plan import FROM_HISTORY, GRADIENTS, planned_rounds, planned_steps, unplanned


def test_rounds_by_hand() -> None:
    """K = 4, 2, 1 steps of one rate: the ratio of AvgGradInner to AvgGrad is lr (K - 1) / 2."""
    algorithm = a.fedavg(lr=per_round(0.1, 0.5), steps=decaying_k(4, 0.5), server_lr=per_round(1.0, 0.9))
    rounds = list(planned_rounds(algorithm, range(3), 10, Batching(4), Now()))
    assert [plan.steps for plan in rounds] == [(4,), (2,), (1,)]
    assert [plan.server["server lr"] for plan in rounds] == pytest.approx([1.0, 0.9, 0.81])
    assert [plan.ratio for plan in rounds] == pytest.approx([0.1 * 3 / 2, 0.05 * 1 / 2, 0.0])


def test_an_epoch_that_is_shortened_at_its_end_counts_as_it_is_left() -> None:
    """Two epochs of two steps at 0.1, the second halved: 0.1, 0.1, 0.05, 0.05 are left, of the sum 0.3.

    The steps see 0, 0.1, 0.2 and 0.3 walked before them: the second epoch is walked at full rate.
    """
    algorithm = a.feddecay(lr=0.1, beta=0.5, epochs=2, per="epoch_displacement")
    (plan,) = planned_rounds(algorithm, [0], 8, Batching(4), Now())
    assert plan.travel == pytest.approx(0.3)
    assert plan.factors == pytest.approx(3.0)
    assert plan.ratio == pytest.approx((0.1 * 0.1 + 0.05 * 0.2 + 0.05 * 0.3) / 0.3)
    steps = planned_steps(algorithm, [0], 8, Batching(4), Now())
    assert [step.rates["epoch_factor"] for step in steps] == pytest.approx([1.0, 1.0, 0.5, 0.5])


@pytest.mark.parametrize("per", ["step", "epoch", "epoch_displacement"])
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_the_ratio_is_that_of_what_a_client_sends(per: str, beta: float) -> None:
    """On x^2 / 2 gradients differ by the way walked: x - y_K = (c1 - c2) x, but for higher powers of the rate."""
    lr = 1e-4
    algorithm = a.feddecay(lr=lr, beta=beta, epochs=3, per=per)  # type: ignore[arg-type]
    (plan,) = planned_rounds(algorithm, [0], 8, Batching(4), Now())
    data = ft.data.FederatedData.from_clients([{"x": torch.zeros(8, 1, dtype=torch.float64)}])
    settings = {"rounds": 1, "batch_size": 4, "evaluation": None, "dtype": torch.float64, "init": "model"}
    result = ft.run(model=Parabola(), data=data, algorithm=algorithm, loss="direct", **settings)  # type: ignore[arg-type]
    sent = 1.0 - float(result.params["w"])
    assert sent == pytest.approx(plan.travel * (1 - plan.ratio), rel=1e-6)


class Parabola(nn.Module):
    """w^2 / 2 for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w**2 / 2 + 0 * x[:, 0]


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


def own(now: Now) -> float:
    return 0.1 if now.time < 50 else 0.05


@pytest.mark.parametrize(
    ("algorithm", "found"),
    [
        (a.feddecay(lr=per_round(0.1, 0.9), beta=0.5, steps=decaying_k(8, 0.9)), {}),
        (a.fedavg(lr=ft.schedules.by_loss(0.1), steps=2), {(0, "lr"): ("the training loss",)}),
        (a.fedavg(lr=0.1, steps=ft.schedules.on_plateau(8, 0.5)), {(0, "K"): ("the training loss",)}),
        (
            a.fedavg(lr=own, steps=ft.schedules.over_time(8, 0.5, 60)),
            {(0, "lr"): ("the clock",), (0, "K"): ("the clock",)},
        ),
        (a.fedavg(lr=0.1, steps=ft.schedules.by_own_loss(8)), {(0, "K"): ("each client's own loss",)}),
        (a.fedavg(lr=0.1, steps=ft.schedules.finish_by(9.0, most=8)), {}),
        (a.fedavg(lr=0.1, steps=1, server_lr=ft.schedules.by_loss(1.0)), {(-1, "server lr"): ("the training loss",)}),
        (a.delta_sgd(a.fedavg(lr=0.1, steps=2)), {(0, "lr"): (GRADIENTS,)}),
    ],
)
def test_a_plan_knows_what_only_the_run_can_tell(algorithm: ft.Algorithm, found: dict) -> None:
    places = [Now(round=0), Now(round=5)]
    assert unplanned(algorithm, places, 10, Batching(5)) == found
    told = {place: words for place, words in found.items() if not set(words) <= FROM_HISTORY}
    assert unplanned(algorithm, places, 10, Batching(5), FROM_HISTORY) == told
