"""Equalities of the personal and fair methods: with FedAvg, with local training, and with each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.algorithms.parts.agnostic_server import on_simplex
from tests.numbers.personalised.setting import (
    BODY,
    CLIENTS,
    HEAD,
    NEWCOMER,
    PARTIAL,
    assert_close,
    assert_same_bits,
    run,
    tensors,
)

BATCHES = {"batch_size": 2, "backend": "serial"}
FEDAVG = {"lr": 0.3, "steps": 3}
SAMPLES = fl.fedavg(**FEDAVG, weighting="samples")
UNIFORM = fl.fedavg(**FEDAVG)

SAME_MODEL: dict[str, tuple[ft.Algorithm, ft.Algorithm]] = {
    "moon without contrast": (fl.moon(**FEDAVG, mu=0.0), SAMPLES),
    "apfl, whatever alpha is": (fl.apfl(**FEDAVG, alpha=0.9, adaptive=True), UNIFORM),
    "fedala that does not mix": (fl.fedala(**FEDAVG, mix_lr=0.0), SAMPLES),
    "fedrod without a prior": (fl.fedrod(**FEDAVG, gamma=0.0), SAMPLES),
    "fedrod, whatever the personal heads are": (fl.fedrod(**FEDAVG), fl.fedrod(**FEDAVG, personal_head="copy")),
    "q_fedavg with q = 0": (fl.q_fedavg(**FEDAVG, q=0.0), UNIFORM),
    "q_fedsgd with q = 0": (fl.q_fedsgd(lr=0.3, q=0.0, full_batch=False), fl.fedsgd(lr=0.3)),
    "afl with weights that stay": (fl.afl(lr=0.3, weights_lr=0.0, full_batch=False), fl.fedsgd(lr=0.3)),
    "weights that do not follow the loss": (fl.loss_weighted(UNIFORM), UNIFORM),
    "no decay at the server": (fl.server_decay(UNIFORM, decay=0.0), UNIFORM),
    "no share of its own": (fl.adaptive_decay(UNIFORM, rate=lambda g, x, n: 1.0, decay=lambda g, x, n: 0.0), UNIFORM),
}


@pytest.mark.parametrize("name", SAME_MODEL)
def test_the_shared_model_is_the_same(name: str) -> None:
    one, other = (run(algorithm, PARTIAL, **BATCHES) for algorithm in SAME_MODEL[name])
    assert_close(one.params, {n: t.numpy() for n, t in other.params.items()})


def test_moons_first_round_is_fedavgs() -> None:
    """Nobody has an earlier model; with the initial one as the negative it is the positive, whose gradient is zero."""
    for first in ("received", "initial"):
        one, other = (run(a, [[0, 2]], **BATCHES) for a in (fl.moon(**FEDAVG, mu=3.0, first_visit=first), SAMPLES))
        assert_close(one.params, {n: t.numpy() for n, t in other.params.items()})
    later = [run(fl.moon(**FEDAVG, mu=mu), [[0, 2], [0, 1]], **BATCHES) for mu in (3.0, 0.0)]
    assert not torch.equal(later[0].params["body.0.weight"], later[1].params["body.0.weight"])


def test_moons_head_has_no_contrast_gradient() -> None:
    """One step from the same point: the body depends on mu, the head does not."""
    one, other = (run(fl.moon(lr=0.3, steps=1, mu=mu), [[0, 2], [0, 2]]) for mu in (3.0, 0.0))
    first = [result.history[0].params for result in (one, other)]
    assert_same_bits(*first)
    assert_close({n: one.params[n] for n in HEAD}, {n: other.params[n].numpy() for n in HEAD})
    assert not torch.equal(one.params["body.0.weight"], other.params["body.0.weight"])


def test_apfl_with_alpha_one_trains_alone_and_with_zero_not_at_all() -> None:
    alone = run(fl.local_only(**FEDAVG), PARTIAL, **BATCHES)
    for alpha in (1.0, 0.0):
        result = run(fl.apfl(**FEDAVG, alpha=alpha), PARTIAL, **BATCHES)
        for client in range(4):
            own = {n: t for n, t in result.client_state(client).items() if n != "<alpha>"}
            first = {n: t.numpy() for n, t in result.experiment.first_shared.items()}
            expected = {n: t.numpy() for n, t in alone.client_state(client).items()} if alpha else first
            assert_close(own, expected)
    x = tensors({"x": NEWCOMER[0]})["x"]
    served = result.personalize(NEWCOMER)
    with torch.no_grad():
        torch.testing.assert_close(served(x), served(x) * 0 + _forward(result.params, x), rtol=0, atol=1e-12)


def _forward(params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x @ params["body.0.weight"].T + params["body.0.bias"])
    return hidden @ params["head.weight"].T + params["head.bias"]


def test_lg_fedavg_is_fedper_with_the_roles_swapped() -> None:
    body = ft.params.submodule("body")
    one, other = (run(a, PARTIAL, **BATCHES) for a in (fl.lg_fedavg(**FEDAVG), fl.fedper(**FEDAVG, head=body)))
    assert_same_bits(one.params, other.params)
    assert set(one.client_state(0)) == set(BODY)
    for client in range(4):
        assert_same_bits(one.client_state(client), other.client_state(client))


def test_a_new_client_of_lg_fedavg_trains_its_body_alone() -> None:
    result = run(fl.lg_fedavg(**FEDAVG), PARTIAL)
    model = result.personalize(NEWCOMER)
    assert_same_bits(model.shared, result.params, HEAD)
    assert not torch.equal(
        model.personal["body.0.weight"], result.personalize(NEWCOMER, steps=0).personal["body.0.weight"]
    )


def test_fedala_mixes_only_where_the_models_differ() -> None:
    """W is 1 where it was never needed, stays in [0, 1], and the lower tensors start at x."""
    result = run(fl.fedala(**FEDAVG, mix_lr=5.0, threshold=1.0), PARTIAL, **BATCHES)
    own = [result.client_state(i) for i in range(4)]
    weights = torch.cat([state[f"mix/{n}"].reshape(-1) for state in own for n in HEAD])
    assert bool(((weights >= 0) & (weights <= 1)).all())
    assert bool((weights < 1).any())
    once = run(fl.fedala(**FEDAVG, mix_lr=5.0), [[0], [1]], **BATCHES).client_state(0)
    assert all(bool((once[f"mix/{n}"] == 1).all()) for n in HEAD), "its only visit had nothing to mix"
    assert set(HEAD) == {n.removeprefix("mix/") for n in own[0] if n.startswith("mix/")}


def test_fedrod_does_not_see_how_many_rows_there_are() -> None:
    """Doubling every row doubles all counts and changes nothing."""
    twice = [(np.concatenate([x, x]), np.concatenate([y, y])) for x, y in CLIENTS]
    one, other = (run(fl.fedrod(**FEDAVG), PARTIAL, clients=rows) for rows in (CLIENTS, twice))
    assert_close(one.params, {n: t.numpy() for n, t in other.params.items()})


def test_fedrod_with_equal_class_counts_is_fedavg() -> None:
    rows = [(x[:3], np.arange(3)) for x, _ in CLIENTS[1:]]
    one, other = (run(a, [[0, 1], [2]], clients=rows) for a in (fl.fedrod(**FEDAVG), SAMPLES))
    assert_close(one.params, {n: t.numpy() for n, t in other.params.items()})


def test_fedrod_starts_as_the_shared_model_and_a_new_client_trains_its_head_alone() -> None:
    result = run(fl.fedrod(**FEDAVG), PARTIAL)
    x = tensors({"x": NEWCOMER[0]})["x"]
    torch.testing.assert_close(result.personalize(NEWCOMER, steps=0)(x), _forward(result.params, x), rtol=0, atol=1e-12)
    tuned = result.personalize(NEWCOMER)
    assert_same_bits(tuned.shared, result.params)
    assert bool(tuned.personal["head.weight"].any())


@pytest.mark.parametrize("rate", [0.1, 0.7])
def test_one_client_of_q_fedavg(rate: float) -> None:
    """x - u / (q ||u||^2 / F + 1 / l), with u and F from a FedAvg run of the same client."""
    alone, fair = (run(a, [[2]]) for a in (fl.fedavg(lr=rate, steps=3), fl.q_fedavg(lr=rate, steps=3, q=2.0)))
    first = alone.experiment.first_shared
    u = {n: (first[n] - alone.params[n]) / rate for n in first}
    rows = tensors({"x": CLIENTS[2][0], "y": CLIENTS[2][1]})
    loss = float(torch.nn.functional.cross_entropy(_forward(first, rows["x"]), rows["y"])) + 1e-10
    below = 2.0 * sum(float((t**2).sum()) for t in u.values()) / loss + 1 / rate
    assert_close(fair.params, {n: (first[n] - u[n] / below).numpy() for n in first})


def test_the_largest_loss_wins_as_q_grows() -> None:
    """The step tends to that of the client with the largest loss alone."""
    high = max(range(4), key=_loss_at_first)
    direction = _moved(run(fl.fedsgd(lr=0.3), [[high]]))
    steps = [_moved(run(fl.q_fedsgd(lr=0.3, q=q), [[0, 1, 2, 3]])) for q in (0.0, 4.0, 40.0)]
    angles = [float(torch.nn.functional.cosine_similarity(step, direction, 0)) for step in steps]
    assert angles == sorted(angles)
    assert angles[-1] > 0.999


def _moved(result: ft.Result) -> torch.Tensor:
    first = result.experiment.first_shared
    return torch.cat([(result.params[n] - first[n]).reshape(-1) for n in first])


def _loss_at_first(client: int) -> float:
    return run(fl.fedsgd(lr=0.0), [[client]]).history[0].loss


def test_the_simplex() -> None:
    random = torch.Generator().manual_seed(3)
    for _ in range(20):
        point = 3 * torch.randn(6, generator=random, dtype=torch.float64)
        found = on_simplex(point)
        assert float(found.sum()) == pytest.approx(1)
        assert bool((found >= 0).all())
        other = on_simplex(torch.rand(6, generator=random, dtype=torch.float64))
        assert float((found - point).norm()) <= float((other - point).norm()) + 1e-12
    inside = torch.full((4,), 0.25, dtype=torch.float64)
    torch.testing.assert_close(on_simplex(inside + 7.0), inside)


def test_loss_weights_and_scaffold_keep_the_variates() -> None:
    """The control variates count every client once; only the models' mean follows the losses."""
    plain, weighted = (
        run(a, [[0, 1, 2, 3]], **BATCHES)
        for a in (fl.scaffold(**FEDAVG), fl.loss_weighted(fl.scaffold(**FEDAVG), power=2.0))
    )
    assert_same_bits(plain.server_state["control"], weighted.server_state["control"])
    assert not torch.equal(plain.params["head.bias"], weighted.params["head.bias"])


def test_fednar_leaves_what_is_no_local_step_alone() -> None:
    """APFL's alpha and FedALA's weights are not clipped; w and v have a norm each."""
    for algorithm in (fl.apfl(**FEDAVG, adaptive=True), fl.fedala(**FEDAVG)):
        wrapped = fl.fednar(algorithm, weight_decay=0.1, max_norm=0.1)
        assert [a.direction is b.direction for a, b in zip(algorithm.phases, wrapped.phases, strict=True)] == [
            True,
            False,
        ]
    nar = run(fl.fednar(fl.apfl(**FEDAVG), weight_decay=0.0, max_norm=1e-3), [[0]])
    assert nar.history[0].measurements["clipped_steps"] == 6, "three steps of w and three of v"


def test_absent_clients_of_pfedme_get_no_say() -> None:
    """Training everybody changes what absent clients keep, and nothing else."""
    settings = {"lr": 0.1, "personal_lr": 0.2, "lam": 1.5, "inner_steps": 2, "local_rounds": 2}
    one, other = (run(fl.pfedme(**settings, train_absent=absent), [[0, 2]], **BATCHES) for absent in (False, True))
    assert_same_bits(one.params, other.params)
    assert_same_bits(one.client_state(0), other.client_state(0))
    assert not torch.equal(one.client_state(1)["head.bias"], other.client_state(1)["head.bias"])
    assert one.costs == other.costs


def test_a_phase_beside_another_must_be_on_personal_tensors() -> None:
    (phase,) = UNIFORM.phases
    with pytest.raises(ft.ConfigError, match="beside must be a phase on personal tensors beside one on shared tensors"):
        replace(phase, beside=ft.Beside(phase))
