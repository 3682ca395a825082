"""FedBuff and FedAsync against numpy written from the papers: the order of events is the input, in several orders."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.schedules import per_round
from tests.numbers.single_model.problem import PLANE, START, flat

Event = tuple[str, int]
RATE, DECAY, STEPS = 0.05, 0.7, 3


def local(client: int, model: np.ndarray, version: int, beta: float) -> np.ndarray:
    """The displacement after three steps, at the rate of the version that the client started from."""
    y = model.copy()
    for step in range(STEPS):
        y -= RATE * DECAY**version * beta**step * PLANE.gradient(client, y)
    return y - model


def fedbuff(events, size, a, divide, rate=1.0, bound=None, weights=lambda client: 1.0, beta=1.0) -> np.ndarray:
    versions, working, buffer = [START], {}, []
    for kind, client in events:
        if kind == "start":
            working[client] = len(versions) - 1
            continue
        began = working.pop(client)
        late = len(versions) - 1 - began
        if bound is not None and late > bound:
            continue
        factor = (1 + late) ** -a * weights(client)
        buffer.append((factor, weights(client), local(client, versions[began], began, beta)))
        if len(buffer) == size:
            total = sum(f * delta for f, _, delta in buffer)
            divisor = {"size": sum(w for _, w, _ in buffer), "weights": sum(f for f, _, _ in buffer), "nothing": 1.0}
            versions.append(versions[-1] + rate * total / divisor[divide])
            buffer = []
    return np.array(versions[1:])


def fedasync(events, mixing, a) -> np.ndarray:
    versions, working = [START], {}
    for kind, client in events:
        if kind == "start":
            working[client] = len(versions) - 1
            continue
        began = working.pop(client)
        share = mixing * (1 + len(versions) - 1 - began) ** -a
        reached = versions[began] + local(client, versions[began], began, 1.0)
        versions.append((1 - share) * versions[-1] + share * reached)
    return np.array(versions[1:])


def arrivals(order: tuple[int, ...]) -> list[Event]:
    """Three clients start; they arrive in this order, and each starts again at once. Then two more arrive."""
    events: list[Event] = [("start", client) for client in sorted(order)]
    for client in order:
        events += [("finish", client), ("start", client)]
    events += [("start", 3), ("finish", order[0]), ("finish", 3), ("finish", order[2])]
    return events


ORDERS = [arrivals(order) for order in itertools.permutations((0, 1, 2))]


def ran(rule: ft.asynchrony.Asynchrony, rounds: int, algorithm: ft.Algorithm | None = None, **settings) -> np.ndarray:
    chosen = algorithm or ft.algorithms.fedavg(lr=per_round(RATE, DECAY), steps=STEPS)
    usual = {"batch_size": None, "loss": "regression", "evaluation": None, "dtype": torch.float64, "backend": "serial"}
    result = ft.run(
        model=PLANE.model(),
        data=ft.data.FederatedData.from_clients(list(PLANE.clients)),
        algorithm=chosen,
        rounds=rounds,
        init=PLANE.tensors(START),
        asynchrony=rule,
        **{**usual, **settings},
    )
    return np.array([flat(report.params) for report in result.history])


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("events", ORDERS, ids=str)
def test_fedbuff(events: list[Event]) -> None:
    check(ran(ft.asynchrony.fedbuff(2, 0.5, events=events), 3), fedbuff(events, 2, 0.5, "size"))


@pytest.mark.parametrize("events", ORDERS[::2], ids=str)
def test_fedasync(events: list[Event]) -> None:
    check(ran(ft.asynchrony.fedasync(0.6, 0.7, events=events), 6), fedasync(events, 0.6, 0.7))


@pytest.mark.parametrize("divide", ["size", "weights", "nothing"])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_what_a_buffer_is_divided_by(divide: str, backend: str) -> None:
    rule = ft.asynchrony.fedbuff(2, 1.0, divide_by=divide, events=ORDERS[1])  # type: ignore[arg-type]
    algorithm = ft.algorithms.fedavg(lr=per_round(RATE, DECAY), steps=STEPS, weighting="samples", server_lr=0.3)
    sizes: Callable[[int], float] = lambda client: PLANE.sizes[client]  # noqa: E731
    expected = fedbuff(ORDERS[1], 2, 1.0, divide, 0.3, weights=sizes)
    check(ran(rule, 3, algorithm, backend=backend), expected)


def test_what_is_too_stale_is_refused() -> None:
    expected = fedbuff(ORDERS[4], 1, 0.5, "size", bound=1)
    assert len(expected) < 6  # some are refused
    check(ran(ft.asynchrony.fedbuff(1, 0.5, 1, events=ORDERS[4]), len(expected)), expected)


def test_feddecay_inside_fedbuff() -> None:
    algorithm = ft.algorithms.feddecay(lr=per_round(RATE, DECAY), beta=0.5, steps=STEPS)
    rule = ft.asynchrony.fedbuff(2, 0.5, events=ORDERS[3])
    check(ran(rule, 3, algorithm), fedbuff(ORDERS[3], 2, 0.5, "size", beta=0.5))
