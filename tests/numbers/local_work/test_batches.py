"""With minibatches a step that needs two gradients takes both on one batch, and every step has its own batch."""

import numpy as np
import pytest

from fedtempo import algorithms as fl
from fedtempo.data.batches import Batching, BatchRows
from fedtempo.randomness import client_keys
from tests.numbers.local_work import clients as c
from tests.numbers.single_model.problem import PLANE, START, Regression, assert_same, run, trace
from tests.numbers.single_model.reference import federate

SEED, ROUNDS, STEPS = 3, 5, 4
COHORTS = [[0, 1, 2, 3], [1, 3], [0, 2], [1, 2, 3], [3]]


class Batches:
    """PLANE with one row in a batch: what the library draws for a step, from seed, client and round."""

    def __init__(self, gradients_per_step: list[int]):
        self.sizes, self.per_step = PLANE.sizes, gradients_per_step
        self.round, self.calls = -1, {}

    def starts(self, t: int, i: int) -> None:
        self.round, self.calls[i] = t, 0

    def gradient(self, i: int, y: np.ndarray) -> np.ndarray:
        step = int(np.searchsorted(np.cumsum(self.per_step), self.calls[i], side="right"))
        self.calls[i] += 1
        keys = client_keys(SEED, np.array([i]), "batches", self.round)
        row = BatchRows(Batching(1), keys, np.array([self.sizes[i]])).of_first(step)
        x, target = PLANE.clients[i]
        return Regression(((x[row], target[row]),)).gradient(0, y)


def started(batches: Batches, client):
    def begin(t, i, x):
        batches.starts(t, i)
        return client(t, i, x)

    return begin


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_delta_sgd_and_fedsam_look_twice_at_one_batch(backend):
    # The reference of Delta-SGD asks for g(y), g(old), g(y) in all steps but the first, that of FedSAM for two.
    one, two = Batches([1, 3, 3, 3]), Batches([2, 2, 2, 2])
    delta = federate(PLANE, START, COHORTS, started(one, c.delta_sgd(one, 0.1, STEPS, delta=1.0)))
    sam = federate(PLANE, START, COHORTS, started(two, c.sam(two, 0.05, STEPS, 0.2)))
    base = fl.fedavg(lr=0.1, steps=STEPS)
    settings = {"backend": backend, "batch_size": 1, "seed": SEED}
    assert_same(run(PLANE, fl.delta_sgd(base, delta=1.0), START, COHORTS, **settings), delta, 1e-9)
    half = fl.fedavg(lr=0.05, steps=STEPS)
    assert_same(run(PLANE, fl.fedsam(half, rho=0.2), START, COHORTS, **settings), sam, 1e-9)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_fedhyper_as_released_follows_displacements_inside_an_epoch(backend):
    """Clients of 2 to 5 batches an epoch take 7 steps, so each has several first batches, which do not count."""
    rate, steps, memory = 0.1, 7, {}
    batches = Batches([1] * steps)

    def server(t, x, deltas, weights):
        memory["last"] = np.mean(deltas, axis=0)
        return x + memory["last"]

    client = started(batches, c.hyper_client_product(batches, rate, steps, memory, COHORTS, s=3.0))
    expected = federate(PLANE, START, COHORTS, client, server)
    algorithm = fl.fedhyper_client(fl.fedavg(lr=rate, steps=steps), step=3.0, eps=0.1, form="product")
    settings = {"backend": backend, "batch_size": 1, "seed": SEED}
    result = run(PLANE, algorithm, START, COHORTS, **settings)
    assert_same(result, expected, 1e-9)
    rates = [report.measurements["rate"] for report in result.history]
    assert max(rates) > rate * 1.02 and min(rates) < rate, "both growth and decline are reached"
    plain = fl.fedhyper_client(fl.fedavg(lr=rate, steps=steps), step=0.0, form="product")
    assert_same(
        run(PLANE, plain, START, COHORTS, **settings),
        trace(run(PLANE, fl.fedavg(lr=rate, steps=steps), START, COHORTS, **settings)),
    )
