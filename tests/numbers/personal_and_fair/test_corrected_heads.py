"""SCAFFOLD, FedDyn, FedSpeed and FedCM with a personal head, against numpy: corrections are the body's alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.algorithms.parts.agnostic_server import on_simplex
from fedtempo.params import submodule
from tests import zoo
from tests.numbers.personal_and_fair.test_with_head import BACKENDS, COHORTS
from tests.numbers.personalised.reference import gradient, losses, only, plus, weighted
from tests.numbers.personalised.setting import BODY, CLIENTS, HEAD, START, Arrays, gap, run
from tests.slow import slow_but

L, K, N = 0.3, 3, 4
Bodies = dict[int, Arrays]
NOTHING = {name: np.zeros_like(START[name]) for name in BODY}


class Method:
    """A federation whose clients keep heads. Subclasses say how a body's gradient is corrected, and what follows."""

    def __init__(self) -> None:
        self.body, self.heads = only(START, BODY), {i: only(START, HEAD) for i in range(N)}
        self.kept = dict.fromkeys(range(N), NOTHING)

    def gradient(self, y: Arrays, client: int) -> Arrays:
        return gradient(y, CLIENTS[client])

    def corrected(self, g: Arrays, y: Arrays, client: int) -> Arrays:
        """What the body steps along; the head steps along its gradient."""
        raise NotImplementedError

    def serve(self, ends: Bodies, starts: Bodies) -> None:
        """The server's next body, and what clients and server keep."""
        raise NotImplementedError

    def train(self, cohorts: list[list[int]]) -> tuple[Arrays, Bodies]:
        for cohort in cohorts:
            ends, starts = {}, {}
            for i in cohort:
                y = starts[i] = {**self.body, **self.heads[i]}
                for _ in range(K):
                    g = self.gradient(y, i)
                    y = plus(y, {**g, **self.corrected(only(g, BODY), only(y, BODY), i)}, -L)
                ends[i] = only(y, BODY)
                self.heads[i] = only(y, HEAD)
            self.serve(ends, starts)
        return self.body, self.heads

    def mean(self, bodies: list[Arrays]) -> Arrays:
        return weighted(bodies, [1.0] * len(bodies))


class Scaffold(Method):
    """c_i <- c_i - c + (x - y_K) / (K l), or the gradient at the received body under the client's head."""

    option = "II"
    control = NOTHING

    def corrected(self, g: Arrays, y: Arrays, client: int) -> Arrays:
        return plus(plus(g, self.control), self.kept[client], -1.0)

    def serve(self, ends: Bodies, starts: Bodies) -> None:
        changes = []
        for i, y in ends.items():
            way = {n: (self.body[n] - y[n]) / (K * L) for n in BODY}
            new = plus(plus(self.kept[i], self.control, -1.0), way)
            if self.option == "I":
                new = only(gradient(starts[i], CLIENTS[i]), BODY)
            changes.append(plus(new, self.kept[i], -1.0))
            self.kept[i] = new
        self.body = self.mean(list(ends.values()))
        self.control = plus(self.control, self.mean(changes), len(ends) / N)


class ScaffoldI(Scaffold):
    option = "I"


class FedDyn(Method):
    """Pulled by alpha (s_i + y - x); x <- mean of the bodies + mean of all s_i."""

    strength = 0.4

    def corrected(self, g: Arrays, y: Arrays, client: int) -> Arrays:
        return plus(g, plus(plus(self.kept[client], y), self.body, -1.0), self.strength)

    def serve(self, ends: Bodies, starts: Bodies) -> None:
        for i, y in ends.items():
            self.kept[i] = plus(self.kept[i], plus(y, self.body, -1.0))
        self.body = plus(self.mean(list(ends.values())), self.mean(list(self.kept.values())))


class FedSpeed(FedDyn):
    """The gradient where the loss is higher, with one norm over body and head; x <- mean of y_i + h_i."""

    def gradient(self, y: Arrays, client: int) -> Arrays:
        g = gradient(y, CLIENTS[client])
        length = np.sqrt(sum(float((a**2).sum()) for a in g.values()))
        return gradient(plus(y, g, 0.2 / length), CLIENTS[client])

    def serve(self, ends: Bodies, starts: Bodies) -> None:
        super().serve(ends, starts)
        self.body = self.mean([plus(y, self.kept[i]) for i, y in ends.items()])


class FedCM(Method):
    """alpha g + (1 - alpha) M on the body; the head's gradient counts whole."""

    alpha = 0.3
    direction = NOTHING

    def corrected(self, g: Arrays, y: Arrays, client: int) -> Arrays:
        return {n: self.alpha * g[n] + (1 - self.alpha) * self.direction[n] for n in BODY}

    def serve(self, ends: Bodies, starts: Bodies) -> None:
        mean = self.mean(list(ends.values()))
        self.direction = {n: (self.body[n] - mean[n]) / (K * L) for n in BODY}
        self.body = mean


class Afl(Method):
    """lambda_i scales the body's displacement, and rises with the loss of the received body under the client's head."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = np.full(N, 1 / N)

    def corrected(self, g: Arrays, y: Arrays, client: int) -> Arrays:
        return g

    def serve(self, ends: Bodies, starts: Bodies) -> None:
        moves = [{n: self.weights[i] * (y[n] - self.body[n]) for n in BODY} for i, y in ends.items()]
        worse = np.zeros(N)
        for i, y in starts.items():
            worse[i] = losses(y, CLIENTS[i]).mean() * N / len(starts)
        self.body = plus(self.body, self.mean(moves), N)
        self.weights = on_simplex(torch.from_numpy(self.weights + 0.2 * worse)).numpy()


CASES: dict[str, tuple[ft.Algorithm, Callable[[], Method]]] = {
    "scaffold": (fl.scaffold(lr=L, steps=K), Scaffold),
    "scaffold, option I": (fl.scaffold(lr=L, steps=K, option="I"), ScaffoldI),
    "feddyn": (fl.feddyn(lr=L, steps=K, alpha=0.4), FedDyn),
    "feddyn, served by clients": (fl.feddyn(lr=L, steps=K, alpha=0.4, serves="clients"), FedDyn),
    "fedspeed": (fl.fedspeed(lr=L, steps=K, pull=0.4, rho=0.2), FedSpeed),
    "fedcm": (fl.fedcm(lr=L, steps=K, alpha=0.3), FedCM),
    "afl": (fl.afl(lr=L, steps=K, weights_lr=0.2, average_iterates=False), Afl),
    "fedcm, step by step": (fl.fednar(fl.fedcm(lr=L, steps=K, alpha=0.3), weight_decay=0.0, max_norm=1e9), FedCM),
}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("cohorts", COHORTS)
@pytest.mark.parametrize("name", CASES)
def test_the_body_is_corrected_and_every_head_takes_plain_steps(name: str, cohorts: str, backend: str) -> None:
    check(name, cohorts, backend)


@pytest.mark.parametrize("cohorts", slow_but(["some"], COHORTS, "some are everybody but for those that are absent"))
@pytest.mark.parametrize(
    "name", slow_but(["scaffold, option I", "afl"], CASES, "two processes do what one does, for any algorithm")
)
def test_so_it_is_in_processes(name: str, cohorts: str) -> None:
    check(name, cohorts, "processes")


def check(name: str, cohorts: str, backend: str) -> None:
    algorithm, method = CASES[name]
    body, heads = method().train(COHORTS[cohorts])
    result = run(fl.with_head(algorithm), COHORTS[cohorts], **BACKENDS[backend])
    assert gap(only(result.params, BODY), body) <= 1e-9
    for client, own in heads.items():
        assert gap(only(result.client_state(client), HEAD), own) <= 1e-9


@pytest.mark.parametrize("name", CASES)
def test_a_personal_selector_of_ones_own_is_the_same(name: str) -> None:
    algorithm, _ = CASES[name]
    own = replace(algorithm, personal=submodule("head"))
    assert run(own, COHORTS["some"]).digest() == run(fl.with_head(algorithm), COHORTS["some"]).digest()


@pytest.mark.parametrize("name", ["feddyn", "fedspeed"])
def test_where_a_clipped_pull_moves_all_tensors_a_head_is_refused(name: str) -> None:
    clipped = fl.ALGORITHMS[name](lr=L, steps=K, max_norm=1.0)
    with pytest.raises(ft.ConfigError, match="where all tensors of a step are pulled"):
        fl.with_head(clipped)
    with pytest.raises(ft.ConfigError, match=f"personal must be left out for {name}.*all tensors of a step are pulled"):
        run(replace(clipped, personal=submodule("head")), COHORTS["some"])


def test_feddecay_shortens_the_head_with_the_body() -> None:
    """An epoch of one step: to scale where it led is to scale its rate."""
    ways = [fl.feddecay(lr=L, epochs=3, beta=0.5, per=per) for per in ("epoch", "epoch_displacement")]
    one, other = (run(fl.with_head(each), COHORTS["some"]) for each in ways)
    assert gap(one.params, other.params) <= 1e-9
    assert all(gap(one.client_state(i), other.client_state(i)) <= 1e-9 for i in range(N))


ALONE = ("ditto", "pfedme", "local only", "fedem", "moon", "apfl", "fedala", "fedrod")


@pytest.mark.parametrize("name", ALONE)
def test_a_head_is_refused_where_phases_have_a_model_of_their_own(name: str) -> None:
    """Torch filled the gap in the shared model with the module's own head, which nobody trained."""
    own = replace(zoo.ALGORITHMS[name], personal=submodule("head"))
    with pytest.raises(ft.ConfigError, match=r"personal must be left out for .* tensors alone\. Got submodule 'head'"):
        run(own, COHORTS["some"])


def test_a_memory_that_forgets_the_head_is_refused() -> None:
    memory = ft.Memory(final_state=lambda received, carry: {})
    own = replace(fl.fedavg(lr=L, steps=K), personal=submodule("head"), memory=memory)
    with pytest.raises(ft.ConfigError, match=r"memory\.final_state must return the personal tensors too. Got nothing"):
        run(own, COHORTS["some"])
