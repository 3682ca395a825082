"""Every method and every variant against numpy: five rounds, everybody or changing cohorts, 1e-9 in float64.

All rows in one batch, so that a gradient is the client's own; `test_batches.py` has minibatches.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.schedules import decaying_k, per_round, per_step
from tests.numbers.local_work import clients as c
from tests.numbers.local_work import federations as f
from tests.numbers.single_model.problem import PLANE, SOFTMAX, START, assert_same, flat, run, trace
from tests.numbers.single_model.reference import NormalizedDecay, averaging, federate, momentum
from tests.slow import slow_but

EVERYBODY = [[0, 1, 2, 3]] * 5
SOME = [[0, 2], [1, 3], [0, 1, 3], [2], [1, 2, 3]]
L, K = 0.05, 4
P, X = PLANE, START
BLOCKS = [slice(0, 2), slice(2, 3)]
INSIDE = [1.0, 0.5, 0.25, 0.125]


@dataclass
class Case:
    """A method, and its reference as a function of the cohorts."""

    algorithm: ft.Algorithm
    expected: Callable[[list[list[int]]], np.ndarray]
    problem: object = PLANE
    start: object = None


def average(client: Callable[[], c.Client], server=averaging, weighting="uniform") -> Callable:
    return lambda cohorts: federate(P, X, cohorts, client(), server(), weighting)


def base(**settings) -> ft.Algorithm:
    return fl.fedavg(**{"lr": L, "steps": K, **settings})


def uneven(now: ft.Now) -> float:
    """Clients of two to five rows take two to five steps."""
    return now.samples


def own_steps(i: int) -> int:
    return PLANE.sizes[i]


def hyper_client(cohorts):
    memory: dict[str, np.ndarray] = {}

    def server(t, x, deltas, weights):
        memory["last"] = np.mean(deltas, axis=0)
        return x + memory["last"]

    return federate(P, X, cohorts, c.hyper_client(P, L, K, memory, 0.002), server)


WIDE = np.linspace(-1, 1, 9)
CASES = {
    "delta_sgd": Case(fl.delta_sgd(base(lr=0.3), delta=1.0), average(lambda: c.delta_sgd(P, 0.3, K, delta=1.0))),
    "delta_sgd variants": Case(
        fl.delta_sgd(fl.fedprox(lr=L, steps=K, mu=0.3), gamma=1.5, delta=1.0, theta=2.0, first_grows=True, eps=1e-3),
        average(lambda: c.delta_sgd(P, L, K, 1.5, 1.0, 2.0, mu=0.3, first_grows=True, eps=1e-3)),
    ),
    "delta_sgd, decay in round, fednar": Case(
        fl.fednar(fl.delta_sgd(fl.feddecay(lr=per_round(0.2, 0.8), beta=0.5, steps=K)), weight_decay=0.1, max_norm=2.0),
        average(lambda: c.delta_sgd(P, lambda t: 0.2 * 0.8**t, K, inside=INSIDE, shape=NormalizedDecay(0.1, 2.0))),
    ),
    "delta_sgd, decaying k, fedavgm": Case(
        fl.delta_sgd(fl.fedavgm(lr=L, steps=decaying_k(5, 0.6), momentum=0.5)),
        average(lambda: c.delta_sgd(P, L, lambda t: (5, 3, 2, 2, 1)[t]), lambda: momentum(0.5)),
    ),
    "fedsps": Case(fl.fedsps(base(lr=0.6)), average(lambda: c.sps(P, 0.6, K))),
    "fedsps proximal by samples": Case(
        fl.fedsps(fl.fedprox(lr=per_round(1.0, 0.5), steps=K, mu=0.5, weighting="samples"), c=2.0, lower=0.01),
        average(lambda: c.sps(P, lambda t: 0.5**t, K, 2.0, 0.01, mu=0.5), weighting="samples"),
    ),
    "fedsps of the data alone": Case(
        fl.fedsps(fl.fedprox(lr=1.0, steps=K, mu=0.5), c=2.0, with_proximal=False),
        average(lambda: c.sps(P, 1.0, K, c=2.0, mu=0.5, with_proximal=False)),
    ),
    "fedsps unbounded": Case(
        fl.fedsps(base(lr=0.01), c=2.0, bounded=False, eps=1e-8),
        average(lambda: c.sps(P, 0.0, K, 2.0, bounded=False, eps=1e-8)),
    ),
    **{
        f"feddecsps {counts}": Case(
            fl.feddecsps(base(lr=0.5, steps=decaying_k(4, 0.7)), c=1.0, counts=counts),
            average(lambda counts=counts: c.decsps(P, 0.5, lambda t: (4, 3, 2, 2, 1)[t], 1.0, counts)),
        )
        for counts in ("run", "own", "round")
    },
    "feddecsps of the data alone": Case(
        fl.feddecsps(fl.fedprox(lr=0.5, steps=K, mu=0.5), c=1.0, with_proximal=False),
        average(lambda: c.decsps(P, 0.5, K, 1.0, mu=0.5)),
    ),
    "fedhyper_global": Case(
        fl.fedhyper_global(base(), step=60.0),
        lambda cohorts: f.hyper_global(c.stopping(P, L, K), P, X, cohorts, 60.0),
    ),
    "fedhyper_global looking back": Case(
        fl.fedhyper_global(base(), step=0.3, smallest=0.8, largest=5.0, look_back=0.9),
        lambda cohorts: f.hyper_global(c.stopping(P, L, K), P, X, cohorts, 0.3, (0.8, 5.0), 0.9),
    ),
    "fedhyper_server": Case(
        fl.fedhyper_server(base(), step=5.0), lambda cohorts: f.hyper_server(P, X, cohorts, L, K, 5.0)
    ),
    "fedhyper_server relative": Case(
        fl.fedhyper_server(base(), step=0.9, relative=True),
        lambda cohorts: f.hyper_server(P, X, cohorts, L, K, 0.9, relative=True),
    ),
    "fedhyper_client": Case(fl.fedhyper_client(base(), step=0.002), hyper_client),
    "stop_early by gradient": Case(
        fl.stop_early(base(lr=0.2, steps=8), gradient=0.4), average(lambda: c.stopping(P, 0.2, 8, gradient=0.4))
    ),
    "stop_early relative": Case(
        fl.stop_early(base(steps=8), relative=0.5, minimum=2),
        average(lambda: c.stopping(P, L, 8, relative=0.5, minimum=2)),
    ),
    "stop_early by progress": Case(
        fl.stop_early(base(lr=0.8, steps=4), patience=1), average(lambda: c.stopping(P, 0.8, 4, patience=1))
    ),
    "fednova": Case(fl.fednova(lr=L, steps=uneven), lambda cohorts: f.nova(P, X, cohorts, L, own_steps)),
    "fednova momentum": Case(
        fl.fednova(lr=per_round(L, 0.9), steps=uneven, momentum=0.6, server_momentum=0.5),
        lambda cohorts: f.nova(P, X, cohorts, lambda t: L * 0.9**t, own_steps, 0.6, outer=0.5),
    ),
    "fednova proximal": Case(
        fl.fednova(lr=L, steps=uneven, mu=2.0, tau="steps", weighting="uniform"),
        lambda cohorts: f.nova(P, X, cohorts, L, own_steps, 0.0, 2.0, "steps", "uniform"),
    ),
    "fednova both, decay in round": Case(
        fl.fednova(lr=per_step(L, 0.5), steps=3, momentum=0.6, mu=2.0),
        lambda cohorts: f.nova(P, X, cohorts, L, lambda i: 3, 0.6, 2.0, inside=INSIDE),
    ),
    "fednova as released": Case(
        fl.fednova(lr=L, steps=uneven, momentum=0.6, mu=2.0, compat=True),
        lambda cohorts: f.nova(P, X, cohorts, L, own_steps, 0.6, 2.0, compat=True),
    ),
    "work_normalised scaffold": Case(
        fl.work_normalised(fl.scaffold(lr=per_round(L, 0.9), steps=uneven, weighting="samples")),
        lambda cohorts: f.nova_scaffold(P, X, cohorts, lambda t: L * 0.9**t, own_steps),
    ),
    "work_normalised scaffold, decay in round, server momentum": Case(
        fl.with_server(
            fl.work_normalised(fl.scaffold(lr=per_step(L, 0.5), steps=uneven), tau="steps"), ft.transforms.momentum(0.5)
        ),
        lambda cohorts: f.nova_scaffold(P, X, cohorts, L, own_steps, "steps", "uniform", [*INSIDE, 0.0625], outer=0.5),
    ),
    "work_normalised fedexp": Case(
        fl.work_normalised(fl.fedexp(lr=L, steps=uneven)), lambda cohorts: f.nova_exp(P, X, cohorts, L, own_steps)
    ),
    "work_normalised fedexp, momentum, eps": Case(
        fl.work_normalised(
            fl.fedexp(lr=L, steps=uneven, eps=0.003, weighting="samples", optimizer=ft.optimizers.sgd(0.6)), tau="steps"
        ),
        lambda cohorts: f.nova_exp(P, X, cohorts, L, own_steps, 0.003, 0.6, tau="steps", weighting="samples"),
    ),
    "work_normalised fedexp, server momentum": Case(
        fl.with_server(fl.work_normalised(fl.fedexp(lr=L, steps=uneven)), ft.transforms.momentum(0.5)),
        lambda cohorts: f.nova_exp(P, X, cohorts, L, own_steps, outer=0.5),
    ),
    "work_normalised, pull inside Nesterov's momentum": Case(
        fl.work_normalised(
            fl.fedprox(lr=per_round(L, 0.9), steps=uneven, mu=2.0, optimizer=ft.optimizers.sgd(0.6, nesterov=True))
        ),
        lambda cohorts: f.nova_exp(
            P, X, cohorts, lambda t: L * 0.9**t, own_steps, rho=0.6, mu=2.0, nesterov=True, extrapolates=False
        ),
    ),
    "feddyn": Case(fl.feddyn(lr=L, steps=K, alpha=0.7), lambda cohorts: f.dynamic(P, X, cohorts, L, K, 0.7)),
    "feddyn as released": Case(
        fl.feddyn(lr=L, steps=K, alpha=0.7, alpha_by_samples=True),
        lambda cohorts: f.dynamic(P, X, cohorts, L, K, 0.7, by_samples=True),
    ),
    "feddyn as released, clipped": Case(
        fl.feddyn(lr=L, steps=K, alpha=0.7, alpha_by_samples=True, max_norm=2.0),
        lambda cohorts: f.dynamic(P, X, cohorts, L, K, 0.7, by_samples=True, most=2.0),
    ),
    "fedcm": Case(
        fl.fedcm(lr=per_round(L, 0.8), steps=uneven, alpha=0.3, server_lr=1.2, weighting="samples"),
        lambda cohorts: f.client_momentum(P, X, cohorts, lambda t: L * 0.8**t, own_steps, 0.3, 1.2, "samples"),
    ),
    "fedcm, decay in round": Case(
        fl.fedcm(lr=per_step(L, 0.5), steps=K, alpha=0.3),
        lambda cohorts: f.client_momentum(P, X, cohorts, L, lambda i: K, 0.3, inside=INSIDE),
    ),
    "fedsam": Case(fl.fedsam(base(), rho=0.3), average(lambda: c.sam(P, L, K, 0.3))),
    "fedsam with eps": Case(fl.fedsam(base(), rho=0.3, eps=0.1), average(lambda: c.sam(P, L, K, 0.3, 0.1))),
    "fedlesam": Case(fl.fedlesam(base(), rho=0.3), average(lambda: c.lesam(P, L, K, 0.3))),
    "fedlesam global": Case(
        fl.fedlesam(base(), rho=0.3, previous="global"), average(lambda: c.lesam(P, L, K, 0.3, everybody=True))
    ),
    "fedspeed": Case(
        fl.fedspeed(lr=L, steps=K, pull=0.5, rho=0.3),
        lambda cohorts: f.speed(P, X, cohorts, L, K, 0.5, 0.3),
    ),
    "fedspeed by samples": Case(
        fl.fedspeed(lr=L, steps=K, pull=0.5, rho=0.3, weighting="samples"),
        lambda cohorts: f.speed(P, X, cohorts, L, K, 0.5, 0.3, weighting="samples"),
    ),
    "fedspeed as released": Case(
        fl.fedspeed(lr=L, steps=K, pull=0.5, rho=0.3, alpha=0.6, normalised=False, history="all"),
        lambda cohorts: f.speed(P, X, cohorts, L, K, 0.5, 0.3, 0.6, normalised=False, everybody=True),
    ),
    "fedspeed as released, clipped": Case(
        fl.fedspeed(lr=L, steps=K, pull=0.5, rho=0.3, history="all", max_norm=2.0),
        lambda cohorts: f.speed(P, X, cohorts, L, K, 0.5, 0.3, everybody=True, most=2.0),
    ),
    "fedinit": Case(fl.fedinit(base(), beta=0.2), average(lambda: c.relaxed(P, L, K, 0.2))),
    "fedinit as released": Case(
        fl.fedinit(base(), beta=0.2, sends="displacements", unseen="initial", most=0.1),
        average(lambda: c.relaxed(P, L, K, 0.2, X, "displacements", 0.1)),
    ),
    "diloco": Case(fl.diloco(lr=L, steps=K), lambda cohorts: f.diloco(P, X, cohorts, L, K, 0.7, 0.9, 0.1)),
    "diloco clipped": Case(
        fl.diloco(lr=L, steps=K, server_lr=0.5, momentum=0.8, weight_decay=0.0, max_norm=1.0, state="reset"),
        lambda cohorts: f.diloco(P, X, cohorts, L, K, 0.5, 0.8, 0.0, 1.0, kept=False),
    ),
    "fedadamw": Case(
        fl.fedadamw(lr=per_round(L, 0.8), steps=decaying_k(4, 0.7)),
        lambda cohorts: f.adamw(
            P, X, cohorts, lambda t: L * 0.8**t, lambda t: (4, 3, 2, 2, 1)[t], 0.5, 0.01, BLOCKS, "block_mean"
        ),
    ),
    "fedadamw as released": Case(
        fl.fedadamw(lr=per_step(L, 0.5), steps=K, second_moment="whole", one_count=True),
        lambda cohorts: f.adamw(P, X, cohorts, L, K, 0.5, 0.01, BLOCKS, "whole", one_count=True, inside=INSIDE),
    ),
    "fedadamw clipped": Case(
        fl.fedadamw(lr=L, steps=K, max_norm=1.5),
        lambda cohorts: f.adamw(P, X, cohorts, L, K, 0.5, 0.01, BLOCKS, "block_mean", most=1.5),
    ),
    "fedadamw reset": Case(
        fl.fedadamw(lr=L, steps=K, second_moment="reset", alpha=0.2, weight_decay=0.2),
        lambda cohorts: f.adamw(P, X, cohorts, L, K, 0.2, 0.2, BLOCKS, "reset"),
    ),
    "fedmuon": Case(
        fl.fedmuon(lr=L, steps=3, b=0.9, factor=2.0, weight_decay=0.1),
        lambda cohorts: f.muon(SOFTMAX, WIDE, cohorts, L, 3, 0.5, 0.9, 2.0, 0.1, (3, 2)),
        SOFTMAX,
        WIDE,
    ),
    "fedmuon clipped": Case(
        fl.fedmuon(lr=L, steps=3, b=0.9, factor=2.0, weight_decay=0.1, max_norm=0.3),
        lambda cohorts: f.muon(SOFTMAX, WIDE, cohorts, L, 3, 0.5, 0.9, 2.0, 0.1, (3, 2), most=0.3),
        SOFTMAX,
        WIDE,
    ),
    "fedmuon as printed": Case(
        fl.fedmuon(lr=L, steps=3, b=0.9, factor=2.0, weight_decay=0.1, exact=True, nesterov=False),
        lambda cohorts: f.muon(SOFTMAX, WIDE, cohorts, L, 3, 0.5, 0.9, 2.0, 0.1, (3, 2), printed=True),
        SOFTMAX,
        WIDE,
    ),
}
OFTEN = ["feddecsps run", "fedcm", "fedinit", "work_normalised scaffold", "work_normalised fedexp"]


def check(case: Case, cohorts: list[list[int]], **settings) -> ft.Result:
    result = run(case.problem, case.algorithm, X if case.start is None else case.start, cohorts, **settings)
    assert_same(result, case.expected(cohorts), 1e-9)
    return result


WAYS = [(name, backend, who) for name in CASES for backend in ("serial", "vectorised") for who in ("everybody", "some")]
FIRST_OF_ITS_KIND = [name for name in CASES if " " not in name]
EVERY_TIME = [
    (name, backend, who)
    for name, backend, who in WAYS
    if (backend, who) == ("vectorised", "some")
    or (name in FIRST_OF_ITS_KIND and (backend, who) == ("serial", "everybody"))
]


@pytest.mark.parametrize("way", slow_but(EVERY_TIME, WAYS, "every method runs in two ways each time"), ids="-".join)
def test_the_method_is_its_reference(way):
    name, backend, who = way
    check(CASES[name], EVERYBODY if who == "everybody" else SOME, backend=backend)


@pytest.mark.parametrize("name", slow_but(OFTEN, CASES, "two processes do what one does, for any algorithm"))
def test_in_processes_as_well(name):
    check(CASES[name], SOME, backend="vectorised", workers=2, block=2)


@pytest.mark.parametrize("cohorts", [EVERYBODY, SOME], ids=["everybody", "some"])
@pytest.mark.parametrize("serves", ["model", "mean", "clients"])
def test_each_of_feddyns_three_models_is_served(serves, cohorts):
    result = run(PLANE, fl.feddyn(lr=L, steps=K, alpha=0.7, serves=serves), X, cohorts, backend="vectorised")
    expected = f.dynamic(P, X, cohorts, L, K, 0.7, serves=serves)[-1]
    np.testing.assert_allclose(flat(result.model().state_dict()), expected, rtol=1e-9, atol=1e-9)
    assert_same(result, f.dynamic(P, X, cohorts, L, K, 0.7), 1e-9)


@pytest.mark.parametrize("serves", ["mean", "clients"])
def test_another_server_step_leaves_the_served_model_alone(serves):
    dynamic = fl.feddyn(lr=L, steps=K, alpha=0.7, serves=serves)
    result = run(PLANE, fl.with_server(dynamic, ft.transforms.momentum(0.5)), X, EVERYBODY)
    assert not np.allclose(flat(result.model().state_dict()), trace(result)[-1])


def test_a_rate_of_the_data_alone_needs_an_objective_that_knows_it():
    mixed = fl.fedem(lr=L, steps=K, components=2)
    with pytest.raises(ft.ConfigError, match="does not tell its terms apart"):
        fl.fedsps(mixed, with_proximal=False)


def test_the_mean_of_all_histories_knows_uniform_weights_only():
    with pytest.raises(ft.ConfigError, match=r"weighting must be 'uniform' with history='all'\. Got 'samples'"):
        fl.fedspeed(lr=L, steps=K, history="all", weighting="samples")


def test_the_cases_reach_their_branches():
    """Clipped rates, stops, curvature: each reference takes both sides of its branches at least once."""
    stops = [check(CASES[n], EVERYBODY).history for n in CASES if n.startswith("stop_early")]
    for history in stops:
        counts = [report.measurements["stopped_early"] for report in history]
        assert max(counts) > 0 and min(counts) < 4, counts
    factors = [r.measurements["server_lr"] for r in check(CASES["fedhyper_global"], EVERYBODY).history]
    assert 3.0 in factors and len(set(factors)) > 2
    rates = [r.measurements["client_lr"] for r in check(CASES["fedhyper_server"], EVERYBODY).history]
    assert rates[0] == pytest.approx(L) and rates[-1] == pytest.approx(10 * L) and len(set(rates)) > 2
    for name in ("work_normalised fedexp", "work_normalised fedexp, momentum, eps"):
        extrapolated = [r.measurements["server_lr"] for r in check(CASES[name], SOME).history]
        assert 1.0 in extrapolated and max(extrapolated) > 1.1, extrapolated
    for name in (name for name in CASES if name.endswith(" clipped")):
        counts = [r.measurements["clipped_steps"] for r in check(CASES[name], EVERYBODY).history]
        assert 0 < sum(counts) < 5 * 4 * K, (name, counts)
    bounded = [r.measurements["rate"] for r in check(CASES["fedsps"], EVERYBODY).history]
    assert all(0.5 < rate < 0.6 for rate in bounded)
