"""Objectives by hand: what is differentiated, and the data loss that is reported beside it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedtempo.client.network import Network
from fedtempo.client.objectives import (
    DRIFT,
    Pulled,
    Received,
    View,
    component,
    control,
    mixture,
    moreau,
    proximal,
    supervised,
)
from fedtempo.params import Params
from fedtempo.schedules import Now, per_round
from fedtempo.tasks import Batch
from tests.one_weight import OneWeight

PARAMS = {"w": torch.tensor([3.0, 1.0]), "count": torch.tensor(5)}
NETWORK = Network(OneWeight())
"""None of these objectives looks at it."""
BATCH = {"x": torch.tensor([1.0, 2.0])}


def view(received: float, shared: float) -> View:
    """The model received has w = (received, received), the local one (shared, shared)."""
    return View(
        Received({"w": torch.full((2,), received), "count": torch.tensor(0)}, {}),
        {"w": torch.full((2,), shared)},
        {},
        {},
        NETWORK,
    )


def loss(params: Params, batch: Batch, weights: Tensor | None = None) -> tuple[Tensor, Params]:
    """sum(w) times the mean of x, and the buffer one up."""
    x = batch["x"] if weights is None else batch["x"] * weights
    return params["w"].sum() * x.mean(), {"seen": torch.tensor(1.0)}


def test_the_data_loss_alone() -> None:
    value = supervised(loss, PARAMS, BATCH, view(0.0, 0.0), Now())
    assert (float(value.total), float(value.loss), float(value.buffers["seen"])) == (6.0, 6.0, 1.0)


def test_the_proximal_term_pulls_to_what_was_received() -> None:
    """mu / 2 ((3 - 1)^2 + (1 - 1)^2) = 2 mu; whole numbers such as counters do not count."""
    value = proximal(0.5)(loss, PARAMS, BATCH, view(1.0, 99.0), Now())
    assert (float(value.total), float(value.loss)) == (7.0, 6.0)


def test_moreaus_envelope_pulls_to_the_local_model() -> None:
    value = moreau(0.5)(loss, PARAMS, BATCH, view(99.0, 1.0), Now())
    assert (float(value.total), float(value.loss)) == (7.0, 6.0)


def test_the_strength_may_be_a_schedule() -> None:
    for round_number, expected in ((0, 8.0), (1, 7.0)):
        value = proximal(per_round(1.0, 0.5))(loss, PARAMS, BATCH, view(1.0, 1.0), Now(round=round_number))
        assert float(value.total) == expected


def test_a_pulls_gradient_and_value_are_those_of_the_whole_objective() -> None:
    """grad sum(w) 1.5 + mu (w - 1) = (1.5 + 2 mu, 1.5); a tensor that was not received is not pulled."""
    pulled = proximal(0.25)
    assert isinstance(pulled, Pulled)
    of_loss = {"w": torch.full((2,), 1.5), "own": torch.ones(1)}
    found = pulled.pull.added(of_loss, {"w": PARAMS["w"], "own": torch.zeros(1)}, view(1.0, 99.0))
    assert {n: t.tolist() for n, t in found.items()} == {"w": [2.0, 1.5], "own": [1.0]}
    whole = pulled(loss, PARAMS, BATCH, view(1.0, 99.0), Now())
    parts = pulled.value(supervised(loss, PARAMS, BATCH, view(1.0, 99.0), Now()), PARAMS, view(1.0, 99.0), Now())
    assert float(whole.total) == float(parts.total) == 6.5


def test_control_variates_are_found_among_the_notes() -> None:
    notes = {DRIFT + "w": torch.tensor([0.5]), "other": torch.ones(1)}
    seen = View(Received({}, {"w": torch.zeros(1)}), {}, {}, notes, NETWORK)
    assert {n: t.tolist() for n, t in control(seen).items()} == {"w": [0.5]}


def test_a_mixture_weighs_samples_by_their_responsibilities() -> None:
    """Components w = (3, 1) and (1, 0), responsibilities (1, 1/2) and (0, 1/2): 4 * (1 + 1) / 2 + 1 * (0 + 1) / 2."""
    params = {"w": torch.tensor([[3.0, 1.0], [1.0, 0.0]])}
    batch = {**BATCH, "_responsibilities": torch.tensor([[1.0, 0.0], [0.5, 0.5]])}
    value = mixture(loss, params, batch, view(0.0, 0.0), Now())
    assert float(value.total) == pytest.approx(4.5)
    assert value.buffers["seen"].tolist() == [1.0, 1.0]
    assert component(params, 1)["w"].tolist() == [1.0, 0.0]
