"""Laws of the clock: it changes no model by itself, is the same everywhere, and asynchrony contains FedAvg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from tests import zoo
from tests.slow import slow_but

SLOW = ft.devices.log_normal(
    seconds_per_step=1.0, sigma=1.0, down=1e4, up=1e3, bandwidth_sigma=0.5, latency=0.1, joules_per_step=2.0
)
ALIKE = ft.devices.constant(seconds_per_step=1.0, up=1e3)
RULES = {
    "no rule": {},
    "a deadline": {"deadline": 5.0},
    "partial work": {"deadline": 5.0, "partial_work": True},
    "over-selection": {"over_selection": 0.5},
    "hours": {"devices": SLOW.available(hours=(8, 20), time_zones=(0, 8, 16), stays=20.0, joins=3e4)},
    "fedbuff": {"asynchrony": ft.asynchrony.fedbuff(3), "rounds": 5},
    "fedasync": {"asynchrony": ft.asynchrony.fedasync(0.5, max_staleness=4), "rounds": 8},
}


def run(**settings: Any) -> ft.Result:
    usual = {
        "model": zoo.model("mlp"),
        "data": zoo.data("mlp"),
        "algorithm": a.fedavg(lr=0.1, epochs=1),
        "rounds": 3,
        "cohort": 4,
        "batch_size": 4,
        "seed": 1,
        "backend": "serial",
        "evaluation": None,
        "dtype": torch.float64,
    }
    return ft.run(**{**usual, **settings})


def clock(result: ft.Result) -> list[tuple[Any, ...]]:
    return [(tuple(r.clients), r.failures, r.time, r.energy, r.costs) for r in result.history]


@pytest.fixture(scope="module")
def plain() -> ft.Result:
    return run()


@pytest.mark.parametrize(
    "devices", [ALIKE, SLOW, ft.devices.phones(), ft.devices.constant(flops_per_second=1e4)], ids=repr
)
def test_devices_alone_change_no_bit(devices: ft.devices.Devices, plain: ft.Result) -> None:
    timed = run(devices=devices)
    assert timed.digest() == plain.digest() and timed.costs == plain.costs
    assert timed.time > 0 and plain.time == plain.energy == 0


EVERY_TIME = ["partial work", "over-selection", "hours", "fedbuff"]


@pytest.mark.parametrize("rule", slow_but(EVERY_TIME, RULES, "its mechanism is part of another rule"))
def test_time_is_additive_and_the_same_on_every_backend(rule: str, tmp_path: Path) -> None:
    settings = {"devices": SLOW, **RULES[rule]}
    whole = run(**settings)
    assert whole.time == pytest.approx(sum(r.time for r in whole.history))
    assert whole.energy == pytest.approx(sum(r.energy for r in whole.history)) and whole.energy > 0
    workers = run(**settings, backend="processes", workers=2)
    assert workers.digest() == whole.digest() and clock(workers) == clock(whole)
    side_by_side = run(**settings, backend="vectorised")
    assert clock(side_by_side) == clock(whole)
    for name, tensor in whole.params.items():
        torch.testing.assert_close(side_by_side.params[name], tensor, rtol=1e-9, atol=1e-9)
    # Cut short after two rounds and continued, it is the same run.
    rounds = ft.train(**_train_settings(settings), out=tmp_path / "run")
    next(rounds), next(rounds)
    rounds.close()
    again = run(**settings, out=tmp_path / "run", resume=True)
    assert again.digest() == whole.digest() and clock(again) == clock(whole)


def _train_settings(settings: dict[str, Any]) -> dict[str, Any]:
    usual = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": a.fedavg(lr=0.1, epochs=1), "rounds": 3}
    others = {"cohort": 4, "batch_size": 4, "seed": 1, "backend": "serial", "evaluation": None, "dtype": torch.float64}
    return {**usual, **others, **settings}


@pytest.mark.parametrize("cohort", [4, 1.0])
@pytest.mark.parametrize(
    "algorithm",
    [a.fedavg(lr=0.1, steps=3), a.fednar(a.feddecay(lr=0.1, beta=0.6, steps=3), weight_decay=0.1, max_norm=0.5)],
    ids=["fedavg", "fednar around feddecay"],
)
def test_a_buffer_of_the_whole_cohort_is_fedavg(algorithm: ft.Algorithm, cohort: int | float) -> None:
    size = 4 if cohort == 4 else 6
    rule = ft.asynchrony.fedbuff(size)
    buffered = run(algorithm=algorithm, cohort=cohort, devices=ALIKE, asynchrony=rule)
    rounds = run(algorithm=algorithm, cohort=cohort, devices=ALIKE)
    assert buffered.digest() == rounds.digest()
    assert [r.time for r in buffered.history] == pytest.approx([r.time for r in rounds.history])


def test_a_buffer_of_one_without_overlap_is_fedavg_of_one_client_a_round() -> None:
    events = [(kind, client) for client in (3, 0, 5) for kind in ("start", "finish")]
    buffered = run(asynchrony=ft.asynchrony.fedbuff(1, events=events))
    assert buffered.digest() == run(cohorts=[[3], [0], [5]]).digest()


def test_no_exponent_ignores_staleness() -> None:
    events = [(kind, client) for kind in ("start", "finish") for client in (0, 3, 4, 5)]
    weighted, plain = (run(asynchrony=ft.asynchrony.fedbuff(1, e, events=events)) for e in (0.5, 0.0))
    assert weighted.digest() != plain.digest()
    first = [r.measurements["staleness"] for r in plain.history]
    assert first == [r.measurements["staleness"] for r in weighted.history] == [0.0, 1.0, 2.0]


def test_personal_heads_and_a_client_that_comes_twice(tmp_path: Path) -> None:
    """The second time a client goes on from the head that it kept the first time, and draws other batches."""
    events = [("start", 0), ("finish", 0), ("start", 0), ("finish", 0), ("start", 3), ("finish", 3)]
    settings = {"algorithm": a.fedper(lr=0.1, steps=2), "rounds": 1}
    both = run(**settings, asynchrony=ft.asynchrony.fedbuff(3, events=events))
    once = run(**settings, asynchrony=ft.asynchrony.fedbuff(2, events=[*events[:2], *events[4:]]))
    assert tuple(both.history[0].clients) == (0, 0, 3)
    assert not torch.equal(both.client_state(0)["head.weight"], once.client_state(0)["head.weight"])
    assert torch.equal(both.client_state(3)["head.weight"], once.client_state(3)["head.weight"])


def test_clients_that_know_their_device_finish_together() -> None:
    fleet = ft.devices.log_normal(seconds_per_step=1.0, sigma=0.7, up=1e4)
    result = run(algorithm=a.fedavg(lr=0.1, steps=ft.schedules.finish_by(12.0)), devices=fleet, cohort=1.0)
    assert all(11.0 < report.time <= 12.0 for report in result.history)
    slower = run(algorithm=a.fedavg(lr=0.1, steps=ft.schedules.over_time(8.0, 0.5, 10.0)), devices=ALIKE)
    steps = [report.costs.steps for report in slower.history]
    assert steps == sorted(steps, reverse=True) and steps[-1] < steps[0]


def test_a_rule_of_the_users_sees_the_client_on_every_backend() -> None:
    def steps(now: ft.Now) -> float:
        return 1 + now.client % 3 + (now.last_loss > 1.0) + np.ceil(now.seconds_per_step)

    settings = {"algorithm": a.fedavg(lr=lambda now: 0.1 / (1 + now.client), steps=steps), "devices": SLOW}
    serial, workers, together = (
        run(**settings, **how) for how in ({}, {"backend": "processes", "workers": 2}, {"backend": "vectorised"})
    )
    assert serial.digest() == workers.digest()
    assert clock(serial) == clock(workers) == clock(together)
    for name, tensor in serial.params.items():
        torch.testing.assert_close(together.params[name], tensor, rtol=1e-9, atol=1e-9)
    assert float(serial.client_state(serial.history[0].clients[0], "last")["_last_loss"]) > 0
