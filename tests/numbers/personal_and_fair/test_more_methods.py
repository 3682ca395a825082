"""Personal and fair methods against numpy: five rounds, everybody and some, one by one, side by side, in processes."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.schedules import per_round
from tests.numbers.personal_and_fair import fair, personal
from tests.numbers.personal_and_fair.network import HEAD, Arrays
from tests.numbers.personalised.setting import CLIENTS, PARTIAL, START, gap, run
from tests.slow import slow_but

COHORTS = {"everybody": [[0, 1, 2, 3]] * 5, "some": PARTIAL}
BACKENDS = {"serial": {}, "vectorised": {"backend": "vectorised", "block": 3}, "processes": {"workers": 2, "block": 2}}
OFTEN = {"lr": 0.3, "steps": 3}

PERSONAL: dict[str, tuple[ft.Algorithm, Callable[..., personal.Outcome], dict[str, object]]] = {
    "moon": (fl.moon(**OFTEN, mu=2.0), personal.moon, {**OFTEN, "mu": 2.0, "temperature": 0.5}),
    "moon, two earlier models": (
        fl.moon(**OFTEN, mu=2.0, temperature=0.8, buffer=2, first_visit="initial"),
        personal.moon,
        {**OFTEN, "mu": 2.0, "temperature": 0.8, "buffer": 2, "initial": True},
    ),
    "apfl": (fl.apfl(**OFTEN, alpha=0.3), personal.apfl, {**OFTEN, "alpha": 0.3}),
    "apfl, adaptive": (
        fl.apfl(**OFTEN, adaptive=True, alpha_lr=0.6),
        personal.apfl,
        {**OFTEN, "alpha": 0.5, "alpha_lr": 0.6},
    ),
    "apfl of outputs": (
        fl.apfl(**OFTEN, adaptive=True, mix="outputs"),
        personal.apfl,
        {**OFTEN, "alpha": 0.5, "alpha_lr": 0.3, "mix": "outputs"},
    ),
    "apfl, shared first": (
        fl.apfl(**OFTEN, adaptive=True, order="shared_first", mix="outputs"),
        personal.apfl,
        {**OFTEN, "alpha": 0.5, "alpha_lr": 0.3, "mix": "outputs", "first": True},
    ),
    "lg_fedavg": (fl.lg_fedavg(**OFTEN), personal.lg_fedavg, OFTEN),
    "fedala": (
        fl.fedala(**OFTEN, mix_lr=2.0, threshold=0.01, most_passes=20),
        personal.fedala,
        {**OFTEN, "mix_lr": 2.0, "threshold": 0.01, "most": 20},
    ),
    "fedala of everybody": (
        fl.fedala(**OFTEN, mix_lr=2.0, threshold=0.01, most_passes=20, mix_absent=True),
        personal.fedala,
        {**OFTEN, "mix_lr": 2.0, "threshold": 0.01, "most": 20, "everybody": True},
    ),
    "fedrod": (fl.fedrod(**OFTEN), personal.fedrod, OFTEN),
    "fedrod from a copy": (
        fl.fedrod(**OFTEN, gamma=0.5, personal_head="copy"),
        personal.fedrod,
        {**OFTEN, "gamma": 0.5, "copy": True},
    ),
}
IN_PROCESSES = ("moon", "apfl, adaptive", "apfl, shared first", "fedala", "fedala of everybody", "fedrod")


@lru_cache
def expected(name: str, cohorts: str) -> personal.Outcome:
    _, reference, settings = PERSONAL[name]
    return reference(CLIENTS, START, COHORTS[cohorts], **settings)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("cohorts", COHORTS)
@pytest.mark.parametrize("name", PERSONAL)
def test_what_is_shared_and_what_clients_keep(name: str, cohorts: str, backend: str) -> None:
    check(name, cohorts, backend)


@pytest.mark.parametrize("cohorts", slow_but(["some"], COHORTS, "some are everybody but for those that are absent"))
@pytest.mark.parametrize("name", slow_but(IN_PROCESSES, PERSONAL, "two processes do what one does, for any algorithm"))
def test_so_it_is_in_processes(name: str, cohorts: str) -> None:
    check(name, cohorts, "processes")


def check(name: str, cohorts: str, backend: str) -> None:
    shared, kept = expected(name, cohorts)
    result = run(PERSONAL[name][0], COHORTS[cohorts], **BACKENDS[backend])
    assert gap(result.params, shared) <= 1e-9
    for client, own in kept.items():
        found = result.client_state(client)
        assert gap({n: found[n] for n in own}, own) <= 1e-9, client


def test_the_cases_say_something() -> None:
    """W leaves 1 and stays inside, alpha moves and stays in [0, 1], classes are missing at some clients."""
    _, mixed = expected("fedala", "some")
    weights = np.concatenate([mixed[i][f"mix/{n}"].ravel() for i in mixed for n in HEAD])
    assert ((weights > 0) & (weights < 1)).any()
    assert weights.min() >= 0
    _, drifted = expected("fedala of everybody", "some")
    absent = next(i for i in mixed if i not in PARTIAL[-1])
    assert any(np.abs(mixed[absent][n] - drifted[absent][n]).max() > 1e-3 for n in HEAD)
    _, adaptive = expected("apfl, adaptive", "everybody")
    alphas = [float(own["<alpha>"]) for own in adaptive.values()]
    assert len(set(alphas)) > 2
    assert all(0 <= a <= 1 for a in alphas)
    assert any(len(set(y.tolist())) < 3 for _, y in CLIENTS)


FAIR: dict[str, tuple[ft.Algorithm, Callable[..., Arrays], dict[str, object]]] = {
    "q_fedavg": (fl.q_fedavg(**OFTEN, q=2.0), fair.q_fedavg, {**OFTEN, "q": 2.0}),
    "q_fedavg, q below 1, falling rate": (
        fl.q_fedavg(lr=per_round(0.3, 0.9), steps=3, q=0.5),
        fair.q_fedavg,
        {**OFTEN, "q": 0.5, "rate_decay": 0.9},
    ),
    "q_fedavg, static": (
        fl.q_fedavg(**OFTEN, q=1.0, static_step=True),
        fair.q_fedavg,
        {**OFTEN, "q": 1.0, "static": True},
    ),
    "q_fedsgd": (fl.q_fedsgd(lr=0.3, q=1.5), fair.q_fedavg, {"lr": 0.3, "steps": 1, "q": 1.5}),
    "by power": (
        fl.loss_weighted(fl.fedavg(**OFTEN), power=2.0),
        fair.loss_weighted,
        {**OFTEN, "phi": lambda F: F**2},
    ),
    "by tilt": (
        fl.loss_weighted(fl.fedavg(**OFTEN), tilt=0.7),
        fair.loss_weighted,
        {**OFTEN, "phi": lambda F: np.exp(0.7 * F)},
    ),
    "by a function": (
        fl.loss_weighted(fl.fedavg(**OFTEN), weigh=torch.log1p),
        fair.loss_weighted,
        {**OFTEN, "phi": np.log1p},
    ),
}


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("cohorts", COHORTS)
@pytest.mark.parametrize("name", FAIR)
def test_fair_methods(name: str, cohorts: str, backend: str) -> None:
    check_fair(name, cohorts, backend)


@pytest.mark.parametrize("cohorts", slow_but(["some"], COHORTS, "some are everybody but for those that are absent"))
@pytest.mark.parametrize(
    "name", slow_but(["q_fedavg", "by tilt"], FAIR, "two processes do what one does, for any algorithm")
)
def test_fair_methods_in_processes(name: str, cohorts: str) -> None:
    check_fair(name, cohorts, "processes")


def check_fair(name: str, cohorts: str, backend: str) -> None:
    algorithm, reference, settings = FAIR[name]
    shared = reference(CLIENTS, START, COHORTS[cohorts], **settings)
    assert gap(run(algorithm, COHORTS[cohorts], **BACKENDS[backend]).params, shared) <= 1e-9


@pytest.mark.parametrize("cohorts", COHORTS)
def test_afl(cohorts: str) -> None:
    """x, the weights and the mean of the iterates, which is served. With some, weights reach the simplex's border."""
    shared, weights, mean = fair.afl(CLIENTS, START, COHORTS[cohorts], lr=0.3, weights_lr=0.15)
    assert weights.sum() == pytest.approx(1)
    assert (weights.min() == 0) == (cohorts == "some")
    for backend in BACKENDS if cohorts == "some" else ("serial", "vectorised"):
        result = run(fl.afl(lr=0.3, weights_lr=0.15), COHORTS[cohorts], **BACKENDS[backend])
        assert gap(result.params, shared) <= 1e-9
        assert gap(result.model_params, mean) <= 1e-9
        np.testing.assert_allclose(result.server_state["lambda"].numpy(), weights, atol=1e-9)
