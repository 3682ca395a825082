"""Several features in one client's step, with steps that differ between clients and weights by rows, against one loop.

g has the proximal term; the rate rule reads g; corrections follow, then FedNAR, then momentum; b_k multiplies the step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.schedules import constant, data_share, decaying_k, per_step, qsr
from tests.numbers.local_work.federations import shares
from tests.numbers.single_model.problem import EVERYBODY, PLANE, SOME, START, assert_same, run

P, N, L = PLANE, len(PLANE.sizes), 0.1
Rule = Callable[["Step"], float]


@dataclass
class Step:
    """What a rate rule sees of client i's step k in round t."""

    t: int
    i: int
    k: int
    base: float
    y: np.ndarray
    gradient: Callable[[np.ndarray], np.ndarray]
    loss: float


class DeltaSGD:
    """eta_k = min(|dy| / |dg|, sqrt(1 + theta) eta), anew in every round."""

    def __call__(self, s: Step) -> float:
        if s.k == 0:
            eta, theta = s.base, 1.0
        else:
            turned = np.linalg.norm(s.gradient(s.y) - s.gradient(self.y))
            eta = min(np.linalg.norm(s.y - self.y) / turned, np.sqrt(1 + self.theta) * self.eta)
            theta = eta / self.eta
        self.y, self.eta, self.theta = s.y, eta, theta
        return eta


class DecSPS:
    """r_n / (c sqrt(n + 1)) with c = 1 and n the steps of all rounds so far, by this client's length of a round."""

    def __init__(self, length: Callable[[int, int], int]) -> None:
        self.length, self.smallest = length, dict[int, float]()

    def __call__(self, s: Step) -> float:
        g = s.gradient(s.y)
        self.smallest[s.i] = min(self.smallest.get(s.i, s.base), s.loss / (g @ g))
        taken = sum(self.length(t, s.i) for t in range(s.t)) + s.k
        return self.smallest[s.i] / np.sqrt(taken + 1)


def sps(s: Step) -> float:
    g = s.gradient(s.y)
    return min(s.loss / (0.5 * g @ g), s.base)


def by_rows(t: int, i: int) -> int:
    return P.sizes[i]


def three(t: int, i: int) -> int:
    return 3


def falling(t: int, i: int) -> int:
    return (5, 3, 2, 2, 1)[t]


def budgeted(t: int, i: int) -> int:
    """QSR: 3 steps while fewer than 4 were taken, then floor((0.3 / 0.1)^2) = 9, and 14 in all; 1 from there on."""
    return (3, 3, 8, 1, 1)[t]


@dataclass
class Way:
    """The features of a run, in the order in which a step has them."""

    length: Callable[[int, int], int] = three
    rate: Callable[[int], float] = lambda i: L
    inside: float = 1.0
    mu: float = 0.0
    rule: Callable[[], Rule] | None = None
    control: bool = False
    alpha: float | None = None
    pull: float | None = None
    nar: bool = False
    momentum: float = 0.0
    normalised: bool = False
    phi: Callable[[float], float] = lambda loss: 1.0
    weighting: str = "uniform"
    outer: float = 0.0

    def models(self, cohorts: list[list[int]]) -> np.ndarray:
        x, u, found, rule = START, 0.0, [], self.rule() if self.rule else None
        self.c, self.M = np.zeros_like(x), np.zeros_like(x)
        self.own, self.history = np.zeros((N, len(x))), np.zeros((N, len(x)))
        for t, cohort in enumerate(cohorts):
            ends = [self.client(t, i, x, rule) for i in cohort]
            weights = shares(P, cohort, self.weighting) * [self.phi(P.loss(i, x)) for i in cohort]
            weights = weights / weights.sum()
            moves, works = np.array([y - x for y, _, _ in ends]), np.array([work for _, work, _ in ends])
            self.M = weights @ (-moves / np.array([[way] for _, _, way in ends]))
            mean = weights @ (moves / works[:, None]) * (weights @ works) if self.normalised else weights @ moves
            before = self.c
            for i, (y, _, way) in zip(cohort, ends, strict=True):
                self.history[i] += y - x
                new = self.own[i] - before + (x - y) / way
                self.c, self.own[i] = self.c + (new - self.own[i]) / N, new
            u = self.outer * u + mean + (self.history.sum(0) / N if self.pull else 0.0)
            x = x + u
            found.append(x)
        return np.array(found)

    def client(self, t: int, i: int, x: np.ndarray, rule: Rule | None) -> tuple[np.ndarray, float, float]:
        """y_K, the weights of its gradients in it, and the sum of its rates."""
        y, buffer, pulse, work, way, base = x, 0.0, 0.0, 0.0, 0.0, self.rate(i)

        def gradient(z: np.ndarray) -> np.ndarray:
            return P.gradient(i, z) + self.mu * (z - x)

        for k in range(self.length(t, i)):
            objective = P.loss(i, y) + self.mu / 2 * (y - x) @ (y - x)
            rate = base if rule is None else rule(Step(t, i, k, base, y, gradient, objective))
            rate, d = rate * self.inside**k, gradient(y)
            d = d - self.own[i] + self.c if self.control else d
            d = d if self.alpha is None else self.alpha * d + (1 - self.alpha) * self.M
            d = d if self.pull is None else d + self.pull * (y - x + self.history[i])
            if self.nar:
                d = d + 0.2 * y
                d = d * min(1.0, 1.0 / np.linalg.norm(d))
            buffer, pulse = self.momentum * buffer + d, self.momentum * pulse + 1
            y, work, way = y - rate * buffer, work + rate / base * pulse, way + rate
        return y, work, way


def rows(now: ft.Now) -> float:
    return now.samples


def nar(algorithm: ft.Algorithm) -> ft.Algorithm:
    return fl.fednar(algorithm, weight_decay=0.2, max_norm=1.0)


SHARE = constant(0.4) * data_share()
BY_SHARE = {"rate": lambda i: 0.4 * P.sizes[i] / sum(P.sizes), "length": by_rows}
QSR = qsr(L, alpha=0.3, k_base=2, budget=14, warmup_steps=4, warmup_k=3)
CASES: dict[str, tuple[ft.Algorithm, Way]] = {
    "fedsps, prox, fednar, decay in round": (
        nar(fl.fedsps(fl.fedprox(lr=per_step(0.6, 0.5), steps=3, mu=0.7, weighting="samples"))),
        Way(rate=lambda i: 0.6, inside=0.5, mu=0.7, rule=lambda: sps, nar=True, weighting="samples"),
    ),
    "feddecsps, prox, fednar, decaying k": (
        nar(fl.feddecsps(fl.fedprox(lr=0.5, steps=decaying_k(5, 0.6), mu=0.7), c=1.0)),
        Way(length=falling, rate=lambda i: 0.5, mu=0.7, rule=lambda: DecSPS(falling), nar=True),
    ),
    "feddecsps, steps by rows": (
        fl.feddecsps(fl.fedavg(lr=0.5, steps=rows), c=1.0),
        Way(length=by_rows, rate=lambda i: 0.5, rule=lambda: DecSPS(by_rows)),
    ),
    "delta_sgd, scaffold, fednar": (
        nar(fl.delta_sgd(fl.scaffold(lr=L, steps=rows, weighting="samples"), delta=1.0)),
        Way(length=by_rows, rule=DeltaSGD, control=True, nar=True, weighting="samples"),
    ),
    "delta_sgd, fedcm": (
        fl.delta_sgd(fl.fedcm(lr=L, steps=rows, alpha=0.3), delta=1.0),
        Way(length=by_rows, rule=DeltaSGD, alpha=0.3),
    ),
    "scaffold, momentum, fednar, decaying k": (
        nar(fl.scaffold(lr=L, steps=decaying_k(5, 0.6), optimizer=ft.optimizers.sgd(0.5))),
        Way(length=falling, control=True, nar=True, momentum=0.5),
    ),
    "fedcm, fednar, decaying k, decay in round": (
        nar(fl.fedcm(lr=per_step(L, 0.5), steps=decaying_k(5, 0.6), alpha=0.3, weighting="samples")),
        Way(length=falling, inside=0.5, alpha=0.3, nar=True, weighting="samples"),
    ),
    "fedcm, qsr with budget and warm-up": (fl.fedcm(lr=L, steps=QSR, alpha=0.3), Way(length=budgeted, alpha=0.3)),
    "feddyn, fednar, decay in round": (
        nar(fl.feddyn(lr=per_step(L, 0.5), steps=rows, alpha=0.5)),
        Way(length=by_rows, inside=0.5, pull=0.5, nar=True),
    ),
    "fednova, momentum, fednar, server momentum": (
        fl.with_server(
            nar(fl.fednova(lr=per_step(L, 0.5), steps=rows, momentum=0.6)),
            ft.transforms.momentum(0.5),
        ),
        Way(length=by_rows, inside=0.5, nar=True, momentum=0.6, normalised=True, weighting="samples", outer=0.5),
    ),
    "fednova, delta_sgd": (
        fl.delta_sgd(fl.fednova(lr=L, steps=rows), delta=1.0),
        Way(length=by_rows, rule=DeltaSGD, normalised=True, weighting="samples"),
    ),
    "fednova, weights by loss": (
        fl.loss_weighted(fl.fednova(lr=L, steps=rows), power=1.5),
        Way(length=by_rows, normalised=True, weighting="samples", phi=lambda loss: loss**1.5),
    ),
    "fedcm, weights by loss": (
        fl.loss_weighted(fl.fedcm(lr=L, steps=rows, alpha=0.3, weighting="samples"), tilt=0.3),
        Way(length=by_rows, alpha=0.3, weighting="samples", phi=lambda loss: np.exp(0.3 * loss)),
    ),
    "fednova, a rate for each client": (
        fl.fednova(lr=SHARE, steps=rows, momentum=0.3),
        Way(**BY_SHARE, momentum=0.3, normalised=True, weighting="samples"),
    ),
    "scaffold, a rate for each client": (fl.scaffold(lr=SHARE, steps=rows), Way(**BY_SHARE, control=True)),
    "fedcm, a rate for each client": (fl.fedcm(lr=SHARE, steps=rows, alpha=0.3), Way(**BY_SHARE, alpha=0.3)),
}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("cohorts", [EVERYBODY, SOME], ids=["everybody", "some"])
@pytest.mark.parametrize("name", CASES)
def test_features_compose(name: str, cohorts: list[list[int]], backend: str) -> None:
    algorithm, way = CASES[name]
    assert_same(run(P, algorithm, START, cohorts, backend=backend), way.models(cohorts), 1e-9)
