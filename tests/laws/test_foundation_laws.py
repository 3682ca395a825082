"""Equalities that need no magic number: between algorithms, against centralised descent, under reordering."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.data.batches import Batching
from fedtempo.federation.federation import Federation
from fedtempo.training.plan import planned_steps
from tests import zoo
from tests.slow import slow_but

Clients = list[tuple[np.ndarray, np.ndarray]]


def run(clients: Clients, algorithm: ft.Algorithm, **settings: object) -> ft.Result:
    defaults = {"rounds": 4, "cohort": 3, "batch_size": 4, "seed": 5, "evaluation": None, "backend": "serial"}
    data = ft.data.FederatedData.from_clients(clients)
    return ft.run(model=ft.models.mlp(6, [5], 4), data=data, algorithm=algorithm, **{**defaults, **settings})


def same_bits(x: ft.Result, y: ft.Result) -> bool:
    return all(torch.equal(x.params[n], y.params[n]) for n in x.params)


@pytest.mark.parametrize("decay", ["exponential", "linear"])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_feddecay_at_its_ends_is_fedavg_and_fedsgd(clients: Clients, decay: str, backend: str) -> None:
    settings = {"backend": backend}
    full = run(clients, a.feddecay(lr=0.1, beta=1.0, steps=5, decay=decay), **settings)
    assert same_bits(full, run(clients, a.fedavg(lr=0.1, steps=5), **settings))
    none = run(clients, a.feddecay(lr=0.1, beta=0.0, steps=5, decay=decay), **settings)
    assert same_bits(none, run(clients, a.fedsgd(lr=0.1), **settings))


@pytest.mark.parametrize("per", ["epoch", "epoch_displacement"])
def test_feddecay_per_epoch_without_decay_is_fedavg(clients: Clients, per: str) -> None:
    decayed = run(clients, a.feddecay(lr=0.1, beta=1.0, epochs=2, per=per))
    assert same_bits(decayed, run(clients, a.fedavg(lr=0.1, epochs=2)))


def test_the_three_granularities_coincide_on_the_full_batch(clients: Clients) -> None:
    """One step is one epoch then: ALGORITHMS 1.5 b."""
    settings = {"batch_size": None, "dtype": torch.float64}
    step, epoch, displacement = (
        run(clients, a.feddecay(lr=0.1, beta=0.6, epochs=3, per=per), **settings)
        for per in ("step", "epoch", "epoch_displacement")
    )
    assert same_bits(step, epoch)
    for name, value in step.params.items():
        torch.testing.assert_close(displacement.params[name], value, rtol=0, atol=1e-12)


def test_one_full_batch_step_with_everybody_is_centralised_descent(clients: Clients) -> None:
    result = run(
        clients,
        a.fedavg(lr=0.5, steps=1, weighting="samples"),
        cohort=6,
        batch_size=None,
        rounds=10,
        dtype=torch.float64,
    )
    model = result.experiment.federation.problem.model
    params = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    x = torch.from_numpy(np.concatenate([c[0] for c in clients]))
    y = torch.from_numpy(np.concatenate([c[1] for c in clients]))
    for _ in range(10):
        loss = F.cross_entropy(functional_call(model, params, (x,)), y)
        gradients = torch.autograd.grad(loss, list(params.values()))
        params = {
            n: (p - 0.5 * g).detach().requires_grad_() for (n, p), g in zip(params.items(), gradients, strict=True)
        }
    for name, value in params.items():
        torch.testing.assert_close(result.params[name], value.detach(), rtol=1e-12, atol=1e-12)


def test_same_seed_same_bits_other_seed_other_bits(clients: Clients) -> None:
    algorithm = a.feddecay(lr=0.1, beta=0.6, steps=3)
    assert run(clients, algorithm).digest() == run(clients, algorithm).digest()
    assert run(clients, algorithm).digest() != run(clients, algorithm, seed=6).digest()


def test_the_order_of_the_cohort_and_of_columns_does_not_matter(clients: Clients) -> None:
    algorithm = a.scaffold(lr=0.1, steps=3)
    cohorts = [[0, 2, 5], [1, 3, 4]]
    forwards = run(clients, algorithm, cohorts=cohorts)
    assert forwards.digest() == run(clients, algorithm, cohorts=[c[::-1] for c in cohorts]).digest()
    columns = [{"y": y, "x": x} for x, y in clients]
    assert forwards.digest() == run(columns, algorithm, cohorts=cohorts).digest()  # type: ignore[arg-type]


def test_global_generators_do_not_matter(clients: Clients) -> None:
    algorithm = a.pflego(head_lr=0.1, server_lr=0.1, steps=3)
    before = run(clients, algorithm).digest()
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    reports = ft.train(
        model=ft.models.mlp(6, [5], 4),
        data=ft.data.FederatedData.from_clients(clients),
        algorithm=algorithm,
        rounds=4,
        cohort=3,
        batch_size=4,
        seed=5,
        evaluation=None,
        backend="serial",
    )
    while True:
        torch.rand(3), np.random.rand(3), random.random()
        try:
            next(reports)
        except StopIteration as stop:
            assert stop.value.digest() == before
            break


def test_a_run_leaves_the_global_generator_alone(clients: Clients) -> None:
    model, data = ft.models.mlp(6, [5], 4), ft.data.FederatedData.from_clients(clients)
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    ft.run(model=model, data=data, algorithm=a.fedper(lr=0.1, steps=2), rounds=2)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "hash_seed",
    slow_but(
        [], ["0", "1", "random"], "spawned workers, whose hashes are their own, give this process's bits every time"
    ),
)
def test_the_hash_seed_does_not_matter(hash_seed: str) -> None:
    code = (
        "import fedtempo as ft; from fedtempo.contracts import small_data;"
        "r = ft.run(model=ft.models.mlp(6, [5], 4), data=small_data(), rounds=2, cohort=3, batch_size=4, "
        "algorithm=ft.algorithms.scaffold(lr=0.1, steps=2), evaluation=None, backend='serial'); print(r.digest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    digest = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    here = ft.run(
        model=ft.models.mlp(6, [5], 4),
        data=ft.contracts.small_data(),
        algorithm=a.scaffold(lr=0.1, steps=2),
        rounds=2,
        cohort=3,
        batch_size=4,
        evaluation=None,
        backend="serial",
    )
    assert digest.stdout.strip() == here.digest()


def reweighted(monkeypatch: pytest.MonkeyPatch, change: Callable[[int, float], float]) -> list[int]:
    """Change every client's weight; the list names the clients that were weighed."""
    plain, weighed = Federation.weights, []

    def weights(self: Federation, clients: np.ndarray, processed: np.ndarray) -> np.ndarray:
        weighed.extend(clients.tolist())
        return np.array([change(*pair) for pair in zip(clients, plain(self, clients, processed), strict=True)])

    monkeypatch.setattr(Federation, "weights", weights)
    return weighed


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_doubling_all_weights_changes_nothing(
    clients: Clients, weighting: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = a.fedexp(lr=0.1, steps=3, weighting=weighting)
    before = run(clients, algorithm, backend=backend)
    weighed = reweighted(monkeypatch, lambda client, weight: 2 * weight)
    assert run(clients, algorithm, backend=backend).digest() == before.digest()
    assert weighed == [client for report in before.history for client in report.clients]
    reweighted(monkeypatch, lambda client, weight: 2 * weight if client == weighed[0] else weight)
    assert run(clients, algorithm, backend=backend).digest() != before.digest()


def test_the_printed_plan_is_what_the_steps_use(clients: Clients) -> None:
    """Every rate of `fedtempo schedule` equals the rate of the step that was taken."""
    lr = ft.schedules.per_round(0.1, 0.9) * ft.schedules.per_step(1.0, 0.6)
    algorithm = a.fedavg(lr=lr, steps=ft.schedules.decaying_k(6, 0.7))
    used: list[tuple[int, int, float]] = []

    def note(carry, moved, received, now):  # type: ignore[no-untyped-def]
        used.append((now.round, now.step, moved.rate))
        return carry

    spied = replace(algorithm, phases=tuple(p.hooked(ft.Hook(after=note)) for p in algorithm.phases))
    result = run(clients, spied, cohorts=[[3]])
    federation = result.experiment.federation
    plan = planned_steps(algorithm, range(4), 16, Batching(4), federation.problem.now(0, 1.0))
    # The first step is also taken three times before the run: to try the algorithm's functions and count operations,
    # and twice to see whether they remember.
    assert used[3:] == [(p.round, p.step, p.rates["lr"]) for p in plan]
    assert [r.costs.steps for r in result.history] == [6, 5, 3, 3]
    assert [r.costs.steps_saved for r in result.history] == [0, 1, 3, 3]


EMPTY = ["fedavg", "scaffold", "fedadam", "fedadamw", "fedmuon", "fednar layer by layer", "ditto", "feddyn"]


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("name", EMPTY)
def test_a_parameter_without_numbers_changes_nothing(name: str, backend: str) -> None:
    """A table of no rows, as an embedding of no categories is: its mean was NaN, its largest number an error."""
    settings = {"data": zoo.data("mlp"), "rounds": 2, "batch_size": 4, "backend": backend, "init": "model"}
    found = []
    for empty in (False, True):
        model = zoo.model("mlp")
        if empty:
            model.body.register_parameter("none", torch.nn.Parameter(torch.zeros(0, 3)))
        for aggregator in (ft.robust.plain_mean, ft.robust.median()):
            robust = aggregator.name == "mean" or name in ("fedavg", "ditto")
            if robust:
                found.append(ft.run(model=model, algorithm=zoo.EVERYTHING[name], aggregator=aggregator, **settings))
    for plain, other in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert all(tensor.equal(other.params[name]) for name, tensor in plain.params.items())
        assert other.params["body.none"].shape == (0, 3)
