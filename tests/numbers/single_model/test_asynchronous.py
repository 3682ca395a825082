"""FedBuff and FedAsync against numpy written from the papers: the order of events is the input, in several orders."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.schedules import per_round
from tests.numbers.single_model import compression as by_hand
from tests.numbers.single_model.problem import PLANE, SOFTMAX, START, flat
from tests.slow import slow_but

Event = tuple[str, int]
RATE, DECAY, STEPS = 0.05, 0.7, 3


def local(client: int, model: np.ndarray, version: int, again: int = 0, beta: float = 1.0, problem=PLANE) -> np.ndarray:
    """The displacement after three steps, at the rate of the version that the client started from."""
    y = model.copy()
    for step in range(STEPS):
        y -= RATE * DECAY**version * beta**step * problem.gradient(client, y)
    return y - model


class Working:
    """Who is at work: the version that each client started from, and how often it had started from it before."""

    def __init__(self) -> None:
        self.began: dict[int, tuple[int, int]] = {}
        self.starts: dict[tuple[int, int], int] = {}

    def start(self, client: int, version: int) -> None:
        again = self.starts.get((client, version), 0)
        self.starts[client, version] = again + 1
        self.began[client] = version, again


def fedbuff(
    events, size, a, divide="size", rate=1.0, bound=None, weights=lambda client: 1.0, client_of=local, start=START
) -> np.ndarray:
    versions, working, buffer = [start], Working(), []
    for kind, client in events:
        if kind == "start":
            working.start(client, len(versions) - 1)
            continue
        began, again = working.began.pop(client)
        late = len(versions) - 1 - began
        if bound is not None and late > bound:
            continue
        factor = (1 + late) ** -a * weights(client)
        buffer.append((factor, weights(client), client_of(client, versions[began], began, again)))
        if len(buffer) == size:
            total = sum(f * delta for f, _, delta in buffer)
            divisor = {"size": sum(w for _, w, _ in buffer), "weights": sum(f for f, _, _ in buffer), "nothing": 1.0}
            versions.append(versions[-1] + rate * total / divisor[divide])
            buffer = []
    return np.array(versions[1:])


def fedasync(events, mixing, a, client_of=local, start=START) -> np.ndarray:
    versions, working = [start], Working()
    for kind, client in events:
        if kind == "start":
            working.start(client, len(versions) - 1)
            continue
        began, again = working.began.pop(client)
        share = mixing * (1 + len(versions) - 1 - began) ** -a
        reached = versions[began] + client_of(client, versions[began], began, again)
        versions.append((1 - share) * versions[-1] + share * reached)
    return np.array(versions[1:])


def arrivals(order: tuple[int, ...]) -> list[Event]:
    """Three clients start, arrive in this order and then in the other, and start again at once; then four more arrive.

    The last of the order arrives twice in a row, and starts twice from one version where a buffer holds two.
    """
    events: list[Event] = [("start", client) for client in sorted(order)]
    for client in (*order, *order[::-1]):
        events += [("finish", client), ("start", client)]
    first, second, third = order
    return [*events, ("start", 3), ("finish", first), ("finish", 3), ("finish", third), ("finish", second)]


ORDERS = [arrivals(order) for order in itertools.permutations((0, 1, 2))]
NAMES = ["".join(map(str, order)) for order in itertools.permutations((0, 1, 2))]


def ran(
    rule: ft.asynchrony.Asynchrony,
    rounds: int,
    algorithm: ft.Algorithm | None = None,
    problem=PLANE,
    start: np.ndarray = START,
    **settings,
) -> np.ndarray:
    chosen = algorithm or ft.algorithms.fedavg(lr=per_round(RATE, DECAY), steps=STEPS)
    usual = {"batch_size": None, "loss": problem.task, "evaluation": None, "dtype": torch.float64, "backend": "serial"}
    result = ft.run(
        model=problem.model(),
        data=ft.data.FederatedData.from_clients(list(problem.clients)),
        algorithm=chosen,
        rounds=rounds,
        init=problem.tensors(start),
        asynchrony=rule,
        **{**usual, **settings},
    )
    return np.array([flat(report.params) for report in result.history])


def check(found: np.ndarray, expected: np.ndarray) -> None:
    assert len(found) <= len(expected)
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("events", ORDERS, ids=NAMES)
def test_fedbuff(events: list[Event], backend: str) -> None:
    check(ran(ft.asynchrony.fedbuff(2, 0.5, events=events), 5, backend=backend), fedbuff(events, 2, 0.5))


@pytest.mark.parametrize("events", ORDERS, ids=NAMES)
def test_plain_asynchronous_fedavg(events: list[Event], backend: str) -> None:
    """Every upload is added as it comes, however stale."""
    check(ran(ft.asynchrony.fedbuff(1, 0, events=events), 10, backend=backend), fedbuff(events, 1, 0.0))


@pytest.mark.parametrize("events", ORDERS, ids=NAMES)
def test_fedasync(events: list[Event], backend: str) -> None:
    check(ran(ft.asynchrony.fedasync(0.6, 0.7, events=events), 10, backend=backend), fedasync(events, 0.6, 0.7))


COMPRESSED = {
    "top_k": (ft.compress.top_k(0.3), by_hand.top_k(0.3)),
    "random_k": (ft.compress.random_k(0.5), by_hand.random_k(0.5, scaled=True)),
    "qsgd": (ft.compress.qsgd(4), by_hand.qsgd(4)),
    "rounding": (ft.compress.rounding(3), by_hand.rounding(3)),
    "sign": (ft.compress.sign(), by_hand.sign),
    "chain": (
        ft.compress.chain([ft.compress.top_k(0.5), ft.compress.sign()]),
        by_hand.largest_then_signs(0.5),
    ),
}


LATE = [(name, order, backend) for name in COMPRESSED for order in NAMES[1::4] for backend in ("serial", "vectorised")]
LATE_OFTEN = [case for number, case in enumerate(LATE) if number % 4 in (0, 3)]


@pytest.mark.parametrize("case", slow_but(LATE_OFTEN, LATE, "every method runs every time in both orders, on both"))
def test_compressed_uploads_that_come_late(case: tuple[str, str, str]) -> None:
    """The memory is the client's and goes on with each of its uploads; staleness weighs what was decoded."""
    name, order, backend = case
    events = ORDERS[NAMES.index(order)]
    ours, theirs = COMPRESSED[name]
    start = np.linspace(-0.5, 0.7, 9)
    for mixing in (None, 0.6):
        sent = by_hand.Compression(theirs, ours.feedback, seed=5)

        def client(i: int, model: np.ndarray, version: int, again: int, sent=sent) -> np.ndarray:
            # A client that starts from one version again draws anew.
            return sent(version + (again << 32), i, local(i, model, version, problem=SOFTMAX))

        algorithm = ft.algorithms.fedavg(lr=per_round(RATE, DECAY), steps=STEPS, compress=ours)
        settings = {"problem": SOFTMAX, "start": start, "backend": backend, "seed": 5}
        if mixing is None:
            expected = fedbuff(events, 2, 0.5, client_of=client, start=start)
            found = ran(ft.asynchrony.fedbuff(2, 0.5, events=events), 5, algorithm, **settings)
        else:
            expected = fedasync(events, mixing, 0.5, client, start)
            found = ran(ft.asynchrony.fedasync(mixing, 0.5, events=events), 10, algorithm, **settings)
        check(found, expected)


@pytest.mark.parametrize("divide", ["size", "weights", "nothing"])
def test_what_a_buffer_is_divided_by(divide: str, backend: str) -> None:
    rule = ft.asynchrony.fedbuff(2, 1.0, divide_by=divide, events=ORDERS[1])  # type: ignore[arg-type]
    algorithm = ft.algorithms.fedavg(lr=per_round(RATE, DECAY), steps=STEPS, weighting="samples", server_lr=0.3)
    sizes: Callable[[int], float] = lambda client: PLANE.sizes[client]  # noqa: E731
    expected = fedbuff(ORDERS[1], 2, 1.0, divide, 0.3, weights=sizes)
    check(ran(rule, 5, algorithm, backend=backend), expected)


def test_what_is_too_stale_is_refused() -> None:
    expected = fedbuff(ORDERS[4], 1, 0.5, "size", bound=1)
    assert len(expected) < 10  # some are refused
    check(ran(ft.asynchrony.fedbuff(1, 0.5, 1, events=ORDERS[4]), len(expected)), expected)


def test_feddecay_inside_fedbuff(backend: str) -> None:
    algorithm = ft.algorithms.feddecay(lr=per_round(RATE, DECAY), beta=0.5, steps=STEPS)
    rule = ft.asynchrony.fedbuff(2, 0.5, events=ORDERS[3])
    expected = fedbuff(ORDERS[3], 2, 0.5, client_of=partial(local, beta=0.5))
    check(ran(rule, 5, algorithm, backend=backend), expected)


def test_fednar_around_feddecay_inside_fedasync(backend: str) -> None:
    """y <- y - l beta^k clipped(grad f + u y), the norm over all parameters."""
    decay, most = 0.1, 0.4

    def client(i: int, model: np.ndarray, version: int, again: int) -> np.ndarray:
        y = model.copy()
        for step in range(STEPS):
            direction = PLANE.gradient(i, y) + decay * y
            direction *= min(1.0, most / np.linalg.norm(direction))
            y -= RATE * 0.5**step * direction
        return y - model

    inner = ft.algorithms.feddecay(lr=RATE, beta=0.5, steps=STEPS)
    algorithm = ft.algorithms.fednar(inner, weight_decay=decay, max_norm=most)
    rule = ft.asynchrony.fedasync(0.6, 0.7, events=ORDERS[2])
    check(ran(rule, 10, algorithm, backend=backend), fedasync(ORDERS[2], 0.6, 0.7, client))


@pytest.mark.parametrize("seed", range(3))
def test_devices_make_the_events(seed: int) -> None:
    """An independent walk through time: the client that is done first arrives, at equal times the lower number."""
    fleet = ft.devices.log_normal(seconds_per_step=1.0, sigma=0.8, up=100.0, down=1000.0, latency=0.5)
    traits = fleet.traits(seed, range(4))
    bytes_sent = 8 * len(START)
    lasts = STEPS * traits.seconds_per_step + 2 * traits.latency + bytes_sent / traits.down + bytes_sent / traits.up
    ends, events, times = dict(enumerate(lasts)), [("start", client) for client in range(4)], []
    for _ in range(10):
        client = min(ends, key=lambda c: (ends[c], c))
        times.append(ends[client])
        ends[client] += lasts[client]
        events += [("finish", client), ("start", client)]
    expected = fedbuff(events, 2, 0.5)
    algorithm = ft.algorithms.fedavg(lr=per_round(RATE, DECAY), steps=STEPS)
    rule = ft.asynchrony.fedbuff(2, 0.5)
    settings = {"devices": fleet, "seed": seed, "cohort": 1.0}
    check(ran(rule, 5, algorithm, **settings), expected)
    result = ft.run(
        model=PLANE.model(),
        data=ft.data.FederatedData.from_clients(list(PLANE.clients)),
        algorithm=algorithm,
        rounds=5,
        batch_size=None,
        loss="regression",
        evaluation=None,
        dtype=torch.float64,
        asynchrony=rule,
        **settings,
    )
    np.testing.assert_allclose([report.total_time for report in result.history], times[1::2], rtol=1e-12)
