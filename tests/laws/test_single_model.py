"""Laws: algorithms that must coincide, fixed points that are known, things that must not matter."""

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.client.objectives import supervised
from fedtempo.schedules import decaying_k, per_step
from tests.numbers.single_model.problem import PLANE, SOFTMAX, START, assert_same, control_of, flat, run, trace
from tests.numbers.single_model.reference import displacement, federate, sgd
from tests.slow import slow_but

SAME = {
    "reptile(1) = fedavg uniform": (fl.reptile(lr=0.1, steps=3, server_lr=1.0), fl.fedavg(lr=0.1, steps=3)),
    "fedprox(0) = fedavg": (fl.fedprox(lr=0.1, steps=3, mu=0.0), fl.fedavg(lr=0.1, steps=3)),
    "feddecay(1) = fedavg": (fl.feddecay(lr=0.1, beta=1.0, steps=3), fl.fedavg(lr=0.1, steps=3)),
    "feddecay(0) = fedsgd": (fl.feddecay(lr=0.1, beta=0.0, steps=3), fl.fedsgd(lr=0.1)),
    "linear feddecay(1) = fedavg": (fl.feddecay(lr=0.1, beta=1.0, steps=3, decay="linear"), fl.fedavg(lr=0.1, steps=3)),
    "linear feddecay(0) = fedsgd": (fl.feddecay(lr=0.1, beta=0.0, steps=3, decay="linear"), fl.fedsgd(lr=0.1)),
    "fomaml(K=1) = fedsgd": (fl.fomaml(lr=0.1, steps=1), fl.fedsgd(lr=0.1)),
    "fedavg(K=1) = fedsgd": (fl.fedavg(lr=0.1, steps=1), fl.fedsgd(lr=0.1)),
    "decaying K at rate 1 = fedavg": (fl.fedavg(lr=0.1, steps=decaying_k(3, 1.0)), fl.fedavg(lr=0.1, steps=3)),
    "fedavgm(0) = fedavg": (fl.fedavgm(lr=0.1, steps=3, momentum=0.0), fl.fedavg(lr=0.1, steps=3)),
    "3 epochs of the full batch = 3 steps": (fl.fedavg(lr=0.1, epochs=3), fl.fedavg(lr=0.1, steps=3)),
}


@pytest.mark.parametrize("name", SAME)
def test_same_bits(backend, cohorts, name):
    """Bit for bit, round for round."""
    one, other = (run(PLANE, algorithm, START, cohorts, backend) for algorithm in SAME[name])
    np.testing.assert_array_equal(trace(one), trace(other))


def test_fomaml_with_the_inner_rate_outside_is_fedsgd(backend, cohorts):
    """K = 1 and eta_out = l: -l mean g, up to the rounding of the division by l."""
    one = run(PLANE, fl.fomaml(lr=0.1, steps=1, server_lr=0.1), START, cohorts, backend)
    assert_same(one, trace(run(PLANE, fl.fedsgd(lr=0.1), START, cohorts, backend)))


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffolds_first_round_is_fedavg(backend, option):
    """All controls are zero: the same bits."""
    one = run(PLANE, fl.scaffold(lr=0.1, steps=3, option=option), START, [[0, 1, 3]], backend)
    other = run(PLANE, fl.fedavg(lr=0.1, steps=3), START, [[0, 1, 3]], backend)
    np.testing.assert_array_equal(trace(one), trace(other))


RATE = {"lr": per_step(0.1, 0.8), "steps": 3}
BACKBONES = [
    fl.fedavg(**RATE),
    fl.fedprox(**RATE, mu=0.5),
    fl.scaffold(**RATE),
    fl.scaffold(**RATE, option="I"),
    fl.fedexp(**RATE),
    fl.fedadam(**RATE),
    fl.fedavgm(**RATE),
    fl.feddecay(lr=0.1, beta=0.8, steps=3),
    fl.fomaml(**RATE),
]


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda a: a.name)
@pytest.mark.parametrize(
    "wrap", slow_but([fl.fednar], [fl.fednar, fl.clip_then_decay], "the baseline, which shares fednar's code")
)
def test_fednar_without_decay_and_clipping_is_its_backbone(backend, cohorts, backbone, wrap):
    """wd = 0 and A larger than any gradient: no clipped step in any round, and the same bits.

    Alone, a backbone with terms of its own subtracts them from the weights one by one, which rounds differently.
    """
    bare = run(PLANE, backbone, START, cohorts, backend)
    wrapped = run(PLANE, wrap(backbone, weight_decay=0.0, max_norm=1e6), START, cohorts, backend)
    adds = any(p.correction is not None or p.objective is not supervised for p in backbone.phases)
    assert_same(wrapped, trace(bare), 1e-12 if adds else 0.0)
    assert not any(report.measurements["clipped_steps"] for report in wrapped.history)


def test_fednar_is_its_baseline_when_nothing_is_clipped(backend, cohorts):
    """s = 1: l (g + wd y) in either order, u_t = wd l_t."""
    one, other = (
        run(PLANE, wrap(fl.fedavg(**RATE), weight_decay=0.4, max_norm=1e6), START, cohorts, backend)
        for wrap in (fl.fednar, fl.clip_then_decay)
    )
    assert_same(one, trace(other))


def test_fedexp_never_steps_less_than_fedavg(backend, cohorts):
    """x_{t+1} - x_t = eta_t D_t with eta_t >= 1, by projection on D_t computed here from x_t."""
    after = trace(run(PLANE, fl.fedexp(lr=0.1, steps=3), START, cohorts, backend))
    before = np.vstack([START, after[:-1]])
    client = sgd(PLANE, 0.1, 3, sends=displacement)
    rates = []
    for t, cohort in enumerate(cohorts):
        d = np.mean([client(t, i, before[t]) for i in cohort], axis=0)
        rates.append((after[t] - before[t]) @ d / (d @ d))
    assert min(rates) >= 1 - 1e-12
    assert max(rates) > 1 + 1e-3


def quadratics():
    """f_i = y' H_i y / 2 - h_i . y + const of PLANE, from its gradients: H_i column by column, h_i = -grad f_i(0)."""
    shifts = [-PLANE.gradient(i, np.zeros(3)) for i in range(4)]
    return [np.array([PLANE.gradient(i, e) + h for e in np.eye(3)]).T for i, h in enumerate(shifts)], shifts


def test_scaffold_finds_the_minimiser_and_fedavg_does_not(backend):
    """F = mean f_i has its minimiser at x* = (sum H_i)^{-1} sum h_i.

    SCAFFOLD's fixed point: c_i = grad f_i(x*), c = mean c_i = 0, so g = grad f_i(y) - grad f_i(x*) vanishes at x*.
    FedAvg's: sum_i A_i (x - m_i) = 0 with A_i = I - (I - l H_i)^K and m_i = H_i^+ h_i the client's own minimiser;
    A_i m_i = P_i h_i with P_i = l sum_{k<K} (I - l H_i)^k also where H_i is singular (client 0 has two rows).
    """
    hessians, shifts = quadratics()
    minimiser = np.linalg.solve(sum(hessians), sum(shifts))
    powers = [0.2 * sum(np.linalg.matrix_power(np.eye(3) - 0.2 * h, k) for k in range(5)) for h in hessians]
    drifted = np.linalg.solve(
        sum(p @ h for p, h in zip(powers, hessians, strict=True)),
        sum(p @ s for p, s in zip(powers, shifts, strict=True)),
    )
    assert np.abs(drifted - minimiser).max() > 0.2
    rounds = [[0, 1, 2, 3]] * 70
    scaffold = run(PLANE, fl.scaffold(lr=0.2, steps=5), START, rounds, backend)
    np.testing.assert_allclose(flat(scaffold.params), minimiser, rtol=0, atol=1e-9)
    for i in range(4):
        np.testing.assert_allclose(control_of(scaffold, i), PLANE.gradient(i, minimiser), rtol=0, atol=1e-9)
    fedavg = run(PLANE, fl.fedavg(lr=0.2, steps=5), START, rounds, backend)
    np.testing.assert_allclose(flat(fedavg.params), drifted, rtol=0, atol=1e-9)


def test_scaffold_stays_at_the_minimiser(backend, cohorts):
    """Started at x* with c_i = grad f_i(x*) and c = 0 nothing moves, whoever takes part; FedAvg leaves at once."""
    hessians, shifts = quadratics()
    minimiser = np.linalg.solve(sum(hessians), sum(shifts))
    first = {i: PLANE.tensors(PLANE.gradient(i, minimiser)) for i in range(4)}
    controls = {i: {f"_control/{name}": value for name, value in own.items()} for i, own in first.items()}
    result = run(PLANE, fl.scaffold(lr=0.1, steps=5), minimiser, cohorts, backend, init_clients=controls)
    assert_same(result, np.tile(minimiser, (len(cohorts), 1)))
    assert np.abs(trace(run(PLANE, fl.fedavg(lr=0.1, steps=5), minimiser, cohorts, backend)) - minimiser).max() > 0.02


@pytest.mark.parametrize("build", [fl.fedavg, fl.scaffold, fl.fedexp, fl.fedadam], ids=lambda b: b.__name__)
def test_what_must_not_matter(backend, build):
    """The order in which a cohort is named, the block size (to rounding), and the global random state."""
    algorithm = build(lr=0.5, steps=3, weighting="samples")
    start = np.linspace(-1, 1, 9)
    result = run(SOFTMAX, algorithm, start, [[0, 1, 3], [2, 3]], backend)
    torch.manual_seed(1)
    np.random.seed(1)
    assert run(SOFTMAX, algorithm, start, [[3, 0, 1], [3, 2]], backend).digest() == result.digest()
    assert_same(run(SOFTMAX, algorithm, start, [[0, 1, 3], [2, 3]], backend, block=1), trace(result))


def test_doubled_rows_change_nothing(backend, cohorts):
    """Every row twice: the same means and, under sample weights, the same shares."""
    doubled = type(PLANE)(tuple((np.vstack([x, x]), np.append(y, y)) for x, y in PLANE.clients))
    for weighting in ("uniform", "samples"):
        algorithm = fl.fedavg(lr=0.1, steps=3, weighting=weighting)
        assert_same(
            run(doubled, algorithm, START, cohorts, backend),
            trace(run(PLANE, algorithm, START, cohorts, backend)),
        )


def test_backends_agree():
    """Serial and vectorised, all backbones under FedNAR: 1e-12 in float64, as promised."""
    for backbone in BACKBONES:
        algorithm = fl.fednar(backbone, weight_decay=0.3, max_norm=2.0)
        serial, vectorised = (run(PLANE, algorithm, START, [[0, 2], [1, 2, 3]], b) for b in ("serial", "vectorised"))
        assert_same(vectorised, trace(serial))


def test_train_is_run_one_round_at_a_time():
    """The reports of `ft.train` carry the same models as the reference after every round."""
    expected = federate(PLANE, START, [[0, 1], [2, 3]], sgd(PLANE, 0.1, 3))
    rounds = ft.train(
        model=PLANE.model(),
        data=ft.data.FederatedData.from_clients(list(PLANE.clients)),
        algorithm=fl.fedavg(lr=0.1, steps=3),
        rounds=2,
        cohorts=[[0, 1], [2, 3]],
        batch_size=None,
        dtype=torch.float64,
        init=PLANE.tensors(START),
        loss="regression",
        evaluation=None,
    )
    found = np.array([flat(report.params) for report in rounds])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
