"""Laws of the methods that control local work: what each becomes at its ends, what it keeps, where it stays.

The problems are those of `tests/numbers/single_model/problem.py`, all rows in one batch.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.client.transforms import momentum, scale_by_adam
from fedtempo.contracts import distance
from fedtempo.params import without_prefix
from fedtempo.schedules import (
    Now,
    by_loss,
    by_own_loss,
    inverse_time,
    on_plateau,
    over_time,
    per_round,
    per_step,
    piecewise,
    qsr,
)
from tests import zoo
from tests.numbers.single_model.problem import HAND, PLANE, START, ZERO, B, assert_same, flat, run, trace
from tests.slow import slow_but

L, K = 0.05, 4
EVERYBODY, SOME = [[0, 1, 2, 3]] * 3, [[0, 2], [1, 3], [0, 1, 3]]


def base(**settings: object) -> ft.Algorithm:
    return a.fedavg(**{"lr": L, "steps": K, **settings})  # type: ignore[arg-type]


OTHER_RATES = [
    *(per_round(0.1, 0.9), piecewise(0.1, {50: 0.5}), piecewise(0.1, {100_000: 0.5}), inverse_time(1.0, 10.0)),
    *(over_time(0.1, 0.5, 60.0), by_loss(0.1), on_plateau(0.1), by_own_loss(0.1)),
    *(lambda now: 0.1 * now.samples, lambda now: 0.1 + 0.1 * (now.client == 3)),
    lambda now: [0.1, 0.1, 0.1][now.client],
]
"""Rates that differ between rounds, sooner or later, or between clients."""
ADAMW = base(optimizer=ft.optimizers.adamw(weight_decay=0.01))


def falling(now: Now) -> float:
    return L / (now.round * K + now.step + 1) ** 0.5


def own_rows(now: Now) -> float:
    """Clients take two to five steps."""
    return now.samples


SAME = {
    "delta_sgd without curvature and growth": (a.delta_sgd(base(), gamma=None, delta=0.0), base()),
    "delta_sgd keeps a decay in the round": (
        a.delta_sgd(base(lr=per_step(L, 0.5)), gamma=None, delta=0.0),
        base(lr=per_step(L, 0.5)),
    ),
    "fedsps with c near 0": (a.fedsps(base(), c=1e-12), base()),
    "feddecsps with c near 0": (a.feddecsps(base(), c=1e-12), base(lr=falling)),
    "one step without memory": (a.feddecsps(base(lr=1.0, steps=1), counts="round"), a.fedsps(base(lr=1.0, steps=1))),
    "fedhyper_global, step 0": (a.fedhyper_global(base(), step=0.0), base()),
    "fedhyper_server, step 0": (a.fedhyper_server(base(), step=0.0), base()),
    "fedhyper_client, step 0": (a.fedhyper_client(base(), step=0.0), base()),
    "stopping at a zero gradient only": (a.stop_early(base(), gradient=0.0), base()),
    "stopping always": (a.stop_early(base(), relative=1e9, minimum=2), base(steps=2)),
    "stopping in the middle of fedcm": (
        a.stop_early(a.fedcm(lr=L, steps=K), relative=1e9, minimum=2),
        a.fedcm(lr=L, steps=2),
    ),
    "fednova with equal work": (a.fednova(lr=L, steps=K), base(weighting="samples")),
    "fednova with equal work and a pull": (
        a.fednova(lr=L, steps=K, mu=0.5),
        a.fedprox(lr=L, steps=K, mu=0.5, weighting="samples"),
    ),
    "fednova with equal work and momentum": (
        a.fednova(lr=L, steps=K, momentum=0.7),
        base(momentum=0.7, weighting="samples"),
    ),
    "fednova's server momentum at one rate": (
        a.fednova(lr=L, steps=K, server_momentum=0.6),
        a.with_server(base(weighting="samples"), momentum(0.6)),
    ),
    "work over fedavg is fednova": (
        a.work_normalised(base(steps=own_rows, weighting="samples")),
        a.fednova(lr=L, steps=own_rows),
    ),
    "work over fedprox is fednova": (
        a.work_normalised(a.fedprox(lr=L, steps=own_rows, mu=0.5, weighting="samples"), tau="steps"),
        a.fednova(lr=L, steps=own_rows, mu=0.5, tau="steps"),
    ),
    "work over momentum is fednova": (
        a.work_normalised(base(steps=own_rows, weighting="samples", optimizer=ft.optimizers.sgd(0.7))),
        a.fednova(lr=L, steps=own_rows, momentum=0.7),
    ),
    "equal work over scaffold": (a.work_normalised(a.scaffold(lr=L, steps=K)), a.scaffold(lr=L, steps=K)),
    "equal work over fedexp": (a.work_normalised(a.fedexp(lr=L, steps=K)), a.fedexp(lr=L, steps=K)),
    "one step each over scaffold": (
        a.work_normalised(a.scaffold(lr=L, steps=1), tau="steps"),
        a.scaffold(lr=L, steps=1),
    ),
    "work inside and outside fednar": (
        a.work_normalised(a.fednar(base(steps=own_rows), weight_decay=0.1, max_norm=0.5)),
        a.fednar(a.work_normalised(base(steps=own_rows)), weight_decay=0.1, max_norm=0.5),
    ),
    "fedcm, alpha 1": (a.fedcm(lr=L, steps=K, alpha=1.0), base()),
    "fedsam, rho 0": (a.fedsam(base(), rho=0.0), base()),
    "fedlesam, rho 0": (a.fedlesam(base(), rho=0.0), base()),
    "fedinit, beta 0": (a.fedinit(base(), beta=0.0), base()),
    "fedspeed without its looking up": (
        a.fedspeed(lr=L, steps=K, pull=0.3, alpha=0.0, history="all"),
        a.feddyn(lr=L, steps=K, alpha=0.3),
    ),
    "diloco without outer momentum": (
        a.diloco(lr=L, steps=K, momentum=0.0, server_lr=0.5, state="reset"),
        base(server_lr=0.5, optimizer=ft.optimizers.adamw(0.9, 0.95, weight_decay=0.1)),
    ),
    "diloco's first move": (
        a.diloco(lr=L, steps=K, server_lr=0.7, momentum=0.9, optimizer=ft.optimizers.sgd()),
        a.with_server(base(), momentum(0.9, nesterov=True), 0.7),
    ),
    "a client's optimizer at the server": (
        a.with_server(base(), ft.optimizers.adam(), 0.1),
        a.with_server(base(), scale_by_adam(0.9, 0.999, 1e-8, "moments"), 0.1),
    ),
    "fedadamw alone": (
        a.fedadamw(lr=L, steps=K, alpha=0.0, second_moment="reset"),
        base(optimizer=ft.optimizers.adamw(weight_decay=0.01)),
    ),
    "steps from a constant rate": (base(steps=qsr(L, alpha=0.1)), base(steps=4)),
}
BIT_FOR_BIT = ("delta_sgd", "fedhyper", "stopping")


CASES = [(name, backend) for name in SAME for backend in ("serial", "vectorised")]
IN_TURN = [case for number, case in enumerate(CASES) if number % 4 in (0, 3)]


@pytest.mark.parametrize("case", slow_but(IN_TURN, CASES, "the law runs every time, on one backend or the other"))
def test_it_becomes_the_other(case: tuple[str, str]) -> None:
    name, backend = case
    one, other = (run(PLANE, algorithm, START, SOME, backend) for algorithm in SAME[name])
    assert_same(one, trace(other), 1e-12 if name.startswith(BIT_FOR_BIT) else 1e-9)


def test_with_everybody_two_variants_are_one() -> None:
    for one, other in (
        (a.fedlesam(base()), a.fedlesam(base(), previous="global")),
        (a.fedinit(base()), a.fedinit(base(), sends="displacements")),
        (a.fedspeed(lr=L, steps=K), a.fedspeed(lr=L, steps=K, history="all")),
    ):
        assert_same(run(PLANE, one, START, EVERYBODY), trace(run(PLANE, other, START, EVERYBODY)))
        assert np.abs(trace(run(PLANE, one, START, SOME)) - trace(run(PLANE, other, START, SOME))).max() > 1e-4


def test_the_first_round() -> None:
    """FedCM is FedAvg at rate alpha l, FedDyn and FedSpeed move twice as far as their clients, others as FedAvg."""
    first = [[0, 1, 2, 3]]
    plain = trace(run(PLANE, base(), START, first))
    for same in (a.fedhyper_global(base()), a.fedhyper_server(base()), a.fedlesam(base()), a.fedinit(base())):
        assert_same(run(PLANE, same, START, first), plain)
    slow = trace(run(PLANE, base(lr=0.3 * L), START, first))
    assert_same(run(PLANE, a.fedcm(lr=L, steps=K, alpha=0.3), START, first), slow)
    near = trace(run(PLANE, a.fedprox(lr=L, steps=K, mu=0.6), START, first))
    twice = START + 2 * (near - START)
    assert_same(run(PLANE, a.feddyn(lr=L, steps=K, alpha=0.6), START, first), twice)
    assert_same(run(PLANE, a.fedspeed(lr=L, steps=K, pull=0.6, rho=0.0), START, first), twice)


def history_of(result: ft.Result, client: int) -> np.ndarray:
    return flat(without_prefix(result.client_state(client), "_history/"))


def test_the_server_knows_the_mean_of_what_clients_remember() -> None:
    """FedDyn: h = (1/N) sum g_i, that is, mean s_i; an absent client's s_i stays as it is."""
    result = run(PLANE, a.feddyn(lr=L, steps=K, alpha=0.5), START, SOME)
    before = run(PLANE, a.feddyn(lr=L, steps=K, alpha=0.5), START, SOME[:-1])
    sums = np.array([history_of(result, i) for i in range(4)])
    np.testing.assert_allclose(flat(result.server_state["dynamic"]["history"]), sums.mean(0), rtol=1e-12)
    np.testing.assert_array_equal(sums[2], history_of(before, 2))


@pytest.mark.parametrize("build", [a.feddyn, a.fedspeed])
def test_drift_is_gone_at_the_minimiser(build: object) -> None:
    """With alpha s_i = -grad f_i(x*) no client leaves x*, the minimiser of the unweighted mean; FedAvg does."""
    shifts = [-PLANE.gradient(i, np.zeros(3)) for i in range(4)]
    hessians = [np.array([PLANE.gradient(i, e) + h for e in np.eye(3)]).T for i, h in enumerate(shifts)]
    best = np.linalg.solve(sum(hessians), sum(shifts))
    strength = {"alpha": 0.5} if build is a.feddyn else {"pull": 0.5, "rho": 0.0, "history": "all"}
    first = {i: PLANE.tensors(-PLANE.gradient(i, best) / 0.5) for i in range(4)}
    starts = {i: {f"_history/{name}": value for name, value in own.items()} for i, own in first.items()}
    result = run(PLANE, build(lr=L, steps=K, **strength), best, SOME, init_clients=starts)  # type: ignore[operator]
    assert_same(result, np.tile(best, (3, 1)))
    assert np.abs(trace(run(PLANE, base(), best, SOME)) - best).max() > 0.01


def test_delta_sgd_finds_newtons_step() -> None:
    """Client B has f = (b + 1/2)^2 of curvature 2: the rate grows to gamma / 4 = 1/2, and one such step is exact."""
    algorithm = a.delta_sgd(a.fedavg(lr=1 / 8, steps=8), gamma=2.0, delta=1.0)
    assert_same(run(HAND, algorithm, ZERO, [[B]]), np.array([[0.0, -0.5]]))
    bounded = a.delta_sgd(a.fedavg(lr=1 / 8, steps=8), gamma=2.0, delta=1.0, most=0.2)
    assert np.abs(trace(run(HAND, bounded, ZERO, [[B]]))[0, 1] + 0.5) > 1e-3


@pytest.mark.parametrize("first_grows", [False, True])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_the_bound_holds_in_the_first_step_too(backend: str, first_grows: bool) -> None:
    """Both rates would be above the bound from the first step on, so every step has the bound."""
    algorithm = a.delta_sgd(base(lr=0.3), gamma=None, most=0.2, first_grows=first_grows)
    assert_same(run(PLANE, algorithm, START, SOME, backend), trace(run(PLANE, base(lr=0.2), START, SOME)))


def test_polyaks_step_on_a_parabola() -> None:
    """f = (b + 1/2)^2, |g|^2 = 4 f: eta = 1 / (4 c), so c = 1/2 is Newton's step and c = 1 leaves half of the way."""
    for c, factor in ((0.5, 0.0), (1.0, 0.5)):
        result = run(HAND, a.fedsps(a.fedavg(lr=10.0, steps=2), c=c), ZERO, [[B]])
        assert trace(result)[0, 1] == pytest.approx(-0.5 + 0.5 * factor**2, abs=1e-12)


@pytest.mark.parametrize("rate", [1.0, 1.7, 3.0])
def test_a_server_rate_above_one(rate: float) -> None:
    """On a parabola a round multiplies the error by 1 - eta_g (1 - (1 - l q)^K): stable up to 2 over the bracket."""
    result = run(HAND, a.fedavg(lr=1 / 8, steps=2, server_lr=rate), ZERO, [[B]] * 3)
    factor = 1 - rate * (1 - (1 - 2 / 8) ** 2)
    np.testing.assert_allclose(trace(result)[:, 1] + 0.5, 0.5 * factor ** np.arange(1, 4), rtol=1e-12)


def test_who_works_more_does_not_move_fednovas_limit() -> None:
    """A takes one step and B three: FedAvg's limit moves towards B, FedNova's hardly for a small rate."""

    def limit(build: object, steps: object) -> np.ndarray:
        algorithm = build(lr=0.02, steps=steps, weighting="uniform")  # type: ignore[operator]
        return trace(run(HAND, algorithm, ZERO, [[0, 1]] * 150))[-1]

    def uneven(now: Now) -> float:
        return now.samples

    def around_fedexp(**settings: object) -> ft.Algorithm:
        return a.work_normalised(a.fedexp(**settings))  # type: ignore[arg-type]

    builds = (a.fednova, a.fedavg, around_fedexp)
    moved = {build: np.abs(limit(build, uneven) - limit(build, 2)).max() for build in builds}
    assert moved[a.fednova] < moved[a.fedavg] / 3
    assert moved[around_fedexp] < moved[a.fedavg] / 3


def test_scaffold_s_limit_is_the_minimiser_whoever_works_more() -> None:
    """Drift is corrected and work is normalised: the limit is the minimiser of the mean loss, w + b = 1, b = -1/2."""

    def uneven(now: Now) -> float:
        return now.samples

    algorithm = a.work_normalised(a.scaffold(lr=0.1, steps=uneven))
    np.testing.assert_allclose(trace(run(HAND, algorithm, ZERO, [[0, 1]] * 400))[-1], [1.5, -0.5], atol=1e-6)


def test_steps_on_a_personal_head_are_no_work() -> None:
    """FedRep's clients take as many body steps as each other, and as many head steps as they have rows."""
    federation = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "rounds": 2, "evaluation": None, "seed": 0}
    plain = a.fedrep(lr=0.1, head_steps=own_rows, body_steps=3)
    one, other = (ft.run(algorithm=x, dtype=torch.float64, **federation) for x in (a.work_normalised(plain), plain))
    assert distance(one, other) < 1e-12


def test_an_orthogonalised_matrix_has_singular_values_near_one() -> None:
    from fedtempo.algorithms.parts.polar_factor import orthogonalised

    torch.manual_seed(0)
    matrix = torch.randn(6, 3, dtype=torch.float64)
    values = torch.linalg.svdvals(orthogonalised(matrix)) / 2**0.5
    assert values.min() > 0.5 and values.max() < 1.5
    assert torch.allclose(orthogonalised(7 * matrix), orthogonalised(matrix), atol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    for build, message in (
        (lambda: a.fednova(lr=1.0, steps=2, mu=1.5), "lr \\* mu must be below 1"),
        (lambda: a.fednova(lr=0.1, steps=2, optimizer=ft.optimizers.adam()), "fednova must know the weight"),
        (lambda: a.work_normalised(a.fedprox(lr=1.0, steps=2, mu=1.5)), "lr \\* mu must be below 1"),
        *(
            (lambda o=o: a.work_normalised(base(optimizer=o)), "gradients count by known weights")
            for o in (ft.optimizers.adam(), ft.optimizers.rmsprop(momentum=0.5), ft.optimizers.sgd(0.5, state="keep"))
        ),
        (lambda: a.work_normalised(base(momentum=0.5)), "Got a momentum of the algorithm's own"),
        (lambda: a.work_normalised(a.fedinit(base())), "must be the only one to set what the server averages"),
        (lambda: a.feddyn(lr=0.1, steps=2, alpha=0.0), "alpha must be a number > 0"),
        (lambda: a.fedcm(lr=0.1, steps=2, alpha=1.5), "alpha must be at most 1"),
        *((lambda lr=lr: a.fedhyper_server(base(lr=lr)), "one rate for all rounds and clients") for lr in OTHER_RATES),
        (lambda: a.fedhyper_global(base(), smallest=0.0), "smallest must be a number in"),
        (lambda: a.stop_early(base()), "gradient, relative or patience must be given"),
        (lambda: a.fedinit(a.fednova(lr=0.1, steps=2)), "sends must be 'displacements' around fednova"),
        (lambda: a.fedmuon(lr=0.1, steps=2, optimizer=ft.optimizers.adam()), "must keep its own optimizer"),
        (lambda: a.delta_sgd(base(), gamma=-1.0), "gamma must be a number > 0"),
        (lambda: a.fednar(ADAMW, weight_decay=0.1, max_norm=1.0), "fednar must be around an optimizer that does not"),
        (lambda: a.clip_then_decay(a.diloco(lr=0.1, steps=2), weight_decay=0.1, max_norm=1.0), "decay twice"),
    ):
        with pytest.raises(ft.ConfigError, match=message):
            build()


@pytest.mark.parametrize("momentum_decay", [0.0, 0.5])
def test_fednovas_pull_is_refused_before_the_run_that_would_reach_it(momentum_decay: float) -> None:
    """l mu passes 1 in round 2: two rounds run, three are refused before the first."""
    for lr, mu in ((per_round(0.3, 2.0), 1.0), (0.3, per_round(1.0, 2.0))):
        algorithm = a.fednova(lr=lr, steps=2, mu=mu, momentum=momentum_decay)
        assert len(run(PLANE, algorithm, START, SOME[:2]).history) == 2
        with pytest.raises(ft.ConfigError, match=r"lr \* mu must be below 1, .* Got 1\.2"):
            run(PLANE, algorithm, START, SOME)


def test_a_decay_by_a_function_and_one_of_the_optimizer_are_refused() -> None:
    """Algorithm 2 of FedNAR has one decay; with AdamW's own weights would decay twice."""
    with pytest.raises(ft.ConfigError, match="adaptive_decay must be around an optimizer that does not decay weights"):
        a.adaptive_decay(ADAMW, rate=zoo.half, decay=zoo.tenth)
    free = base(optimizer=ft.optimizers.adamw(weight_decay=0.0))
    adam = base(optimizer=ft.optimizers.adam())
    one, other = (
        run(PLANE, a.adaptive_decay(each, rate=zoo.half, decay=zoo.tenth), START, SOME) for each in (free, adam)
    )
    assert_same(one, trace(other))


def test_one_of_two_decays_may_be_off() -> None:
    """FedNAR around AdamW: the decay is inside what is clipped, or AdamW's own while FedNAR clips alone."""
    inside = base(optimizer=ft.optimizers.adamw(weight_decay=0.0))
    assert a.fednar(inside, weight_decay=0.1, max_norm=1.0).name == "fednar"
    assert a.fednar(ADAMW, weight_decay=0.0, max_norm=1.0).name == "fednar"
