"""Other algorithms with a personal head, against numpy: the server sees the body alone, a head takes the same steps."""

from collections.abc import Callable

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as fl
from tests.numbers.personalised.reference import gradient, losses, only, plus, weighted
from tests.numbers.personalised.setting import BODY, CLIENTS, HEAD, PARTIAL, SIZES, START, Arrays, gap, run
from tests.slow import slow_but

COHORTS = {"everybody": [[0, 1, 2, 3]] * 5, "some": PARTIAL}
BACKENDS = {"serial": {}, "vectorised": {"backend": "vectorised", "block": 3}, "processes": {"workers": 2, "block": 2}}
L, K = 0.3, 3
Server = Callable[[Arrays, list[Arrays], list[int]], Arrays]
"""(body, the cohort's displacements of it, the cohort) -> the next body."""


def own_rows(now: ft.Now) -> float:
    """Clients of two to five rows take two to five steps."""
    return now.samples


def squared(p: Arrays) -> float:
    return sum(float((a**2).sum()) for a in p.values())


def mean(body: Arrays, moves: list[Arrays], cohort: list[int]) -> Arrays:
    return plus(body, weighted(moves, [1.0] * len(cohort)))


def extrapolated(body: Arrays, moves: list[Arrays], cohort: list[int]) -> Arrays:
    middle = weighted(moves, [1.0] * len(cohort))
    return plus(body, middle, max(1.0, np.mean([squared(move) for move in moves]) / (2 * squared(middle))))


def over_work(body: Arrays, moves: list[Arrays], cohort: list[int]) -> Arrays:
    steps, rows = [SIZES[i] for i in cohort], [float(SIZES[i]) for i in cohort]
    each = [{n: d / k for n, d in move.items()} for move, k in zip(moves, steps, strict=True)]
    return plus(body, weighted(each, rows), float(np.dot(rows, steps)) / sum(rows))


def by_losses(body: Arrays, moves: list[Arrays], cohort: list[int], heads: dict[int, Arrays], q: float = 2.0) -> Arrays:
    """q-FedAvg: F_i is the loss of the received body under the client's own head."""
    F = [float(losses({**body, **heads[i]}, CLIENTS[i]).mean()) + 1e-10 for i in cohort]
    height = sum(q * f ** (q - 1) * squared(m) / L**2 + f**q / L for f, m in zip(F, moves, strict=True))
    return {n: x + sum(f**q * m[n] / L for f, m in zip(F, moves, strict=True)) / height for n, x in body.items()}


def federate(cohorts: list[list[int]], server: Server, mu: float = 0.0, steps: int | None = K, fair: bool = False):
    body, heads = only(START, BODY), {i: only(START, HEAD) for i in range(4)}
    for cohort in cohorts:
        moves, kept = [], {}
        for i in cohort:
            y = {**body, **heads[i]}
            for _ in range(steps or SIZES[i]):
                g = gradient(y, CLIENTS[i])
                pull = {n: mu * (y[n] - body[n]) if n in BODY else 0.0 for n in y}
                y = plus(y, plus(g, pull), -L)
            moves.append(plus(only(y, BODY), body, -1.0))
            kept[i] = only(y, HEAD)
        body = by_losses(body, moves, cohort, heads) if fair else server(body, moves, cohort)
        heads |= kept
    return body, heads


CASES = {
    "fedprox": (fl.fedprox(lr=L, steps=K, mu=0.7), lambda cohorts: federate(cohorts, mean, 0.7)),
    "fedexp": (fl.fedexp(lr=L, steps=K), lambda cohorts: federate(cohorts, extrapolated)),
    "fednova": (fl.fednova(lr=L, steps=own_rows), lambda cohorts: federate(cohorts, over_work, steps=None)),
    "fednova with a pull": (
        fl.fednova(lr=L, steps=K, mu=0.7, weighting="uniform"),
        lambda cohorts: federate(cohorts, mean, 0.7),
    ),
    "q_fedavg": (fl.q_fedavg(lr=L, steps=K, q=2.0), lambda cohorts: federate(cohorts, mean, fair=True)),
}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("cohorts", COHORTS)
@pytest.mark.parametrize("name", CASES)
def test_the_body_and_every_head(name: str, cohorts: str, backend: str) -> None:
    check(name, cohorts, backend)


@pytest.mark.parametrize("cohorts", slow_but(["some"], COHORTS, "some are everybody but for those that are absent"))
@pytest.mark.parametrize(
    "name", slow_but(["q_fedavg"], CASES, "two processes do what one does, and this one sends most")
)
def test_so_it_is_in_processes(name: str, cohorts: str) -> None:
    check(name, cohorts, "processes")


def check(name: str, cohorts: str, backend: str) -> None:
    algorithm, reference = CASES[name]
    body, heads = reference(COHORTS[cohorts])
    result = run(fl.with_head(algorithm), COHORTS[cohorts], **BACKENDS[backend])
    assert gap(only(result.params, BODY), body) <= 1e-9
    for client, own in heads.items():
        assert gap(result.client_state(client), own) <= 1e-9


def test_around_fedavg_it_is_fedper() -> None:
    one, other = (
        run(algorithm, PARTIAL)
        for algorithm in (fl.with_head(fl.fedavg(lr=L, steps=K, weighting="samples")), fl.fedper(lr=L, steps=K))
    )
    assert one.digest() == other.digest()


def test_wrappers_that_remember_go_around_it_and_inside() -> None:
    plain = fl.fedavg(lr=L, steps=K, weighting="samples")

    def relaxed(algorithm: ft.Algorithm) -> ft.Algorithm:
        return fl.fedinit(fl.feddecsps(algorithm), beta=0.3, sends="displacements")

    ways = (relaxed(fl.with_head(plain)), relaxed(fl.fedper(lr=L, steps=K)), fl.with_head(relaxed(plain)))
    assert len({run(each, PARTIAL).digest() for each in ways}) == 1


@pytest.mark.parametrize(
    ("algorithm", "rule"),
    [
        (fl.fedper(lr=L, steps=K), "that shares its whole model"),
        (fl.fedem(lr=L, steps=K, components=2), "with one shared model"),
        (fl.ditto(lr=L, steps=K), "whose clients keep no model"),
        (fl.moon(lr=L, steps=K), "whose clients keep no model"),
        (fl.fednova(lr=L, steps=K, momentum=0.5, mu=0.1), "where all tensors of a step are pulled"),
        (fl.fedex_lora(lr=L, steps=K), "what the server averages"),
        (fl.local_only(lr=L, steps=K), "whose clients keep no model"),
    ],
    ids=lambda value: value.name if isinstance(value, ft.Algorithm) else None,
)
def test_what_has_no_head_of_its_own_is_refused(algorithm: ft.Algorithm, rule: str) -> None:
    with pytest.raises(ft.ConfigError, match=rule):
        fl.with_head(algorithm)
