"""Rules that read gradients: the rate a step gets, the decay inside the round, stops that last."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.client.objectives import Received
from fedtempo.client.rules import Probe, RateRule, StopRule, base_rate, first_rate_state, ruled_rate, stopped
from fedtempo.params import Params, Scalar
from fedtempo.schedules import LanePosition, Now, Position, per_step, step_number
from tests import zoo

W: Params = {"w": torch.tensor([2.0])}


def probe(base: Scalar = 0.4) -> Probe:
    return Probe(W, torch.tensor(1.0), W, lambda p: p, Received(W, {}), base)


def doubling() -> RateRule:
    """base, 2 base, 4 base, ..."""

    def update(seen: Probe, state: Any, now: Position) -> tuple[Scalar, Any]:
        return seen.base * state["factor"], {"factor": 2 * state["factor"]}

    return RateRule(lambda params: {"factor": torch.ones((), dtype=torch.float64)}, update)


def test_a_decay_inside_the_round_multiplies_the_rate_and_not_the_recursion() -> None:
    lr, rule = per_step(0.4, 0.5), doubling()
    state, rates = first_rate_state(rule, W), []
    for step in range(3):
        now = Now(step=step, steps=3)
        rate, state = ruled_rate(rule, lr, probe(base_rate(lr, now)), state, now)
        rates.append(rate)
    assert rates == [0.4, 0.4, 0.4], "2^k times 0.5^k"
    assert state["rule"]["factor"] == 8
    assert float(state["rate"]) == pytest.approx(1.2) and float(state["rate_steps"]) == 3


def test_who_has_stopped_stays_stopped() -> None:
    rule = StopRule(lambda params: {}, lambda seen, state, now: (torch.tensor(step_number(now) == 1), state))
    state: Any = {"rule": {}, "stopped": torch.zeros((), dtype=torch.float64)}
    found = []
    for step in range(3):
        over, state = stopped(rule, probe(), state, Now(step=step))
        found.append(float(over))
    assert found == [0.0, 1.0, 1.0]


def test_clients_side_by_side_are_at_one_step() -> None:
    assert step_number(LanePosition((Now(step=1), Now(step=4)), torch.tensor(0))) == 4


def test_a_client_that_stops_takes_no_further_step_and_the_others_do() -> None:
    """Rows processed, weights and losses are those of the batches that were looked at, on both backends."""
    algorithm = ft.algorithms.stop_early(
        ft.algorithms.fedavg(lr=0.3, epochs=3, weighting="processed"), relative=0.7, minimum=2
    )
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": algorithm, "rounds": 2}
    settings |= {"batch_size": 4, "dtype": torch.float64, "evaluation": None}
    serial, lanes = (ft.run(**settings, backend=backend) for backend in ("serial", "vectorised"))
    for one, other in zip(serial.history, lanes.history, strict=True):
        assert 0 < one.measurements["stopped_early"] < 6
        assert one.measurements == other.measurements
        assert one.loss == pytest.approx(other.loss, rel=1e-12)
    assert all(torch.allclose(t, lanes.params[n], rtol=1e-12, atol=1e-12) for n, t in serial.params.items())
