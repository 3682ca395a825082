"""Equalities between split algorithms and FedAvg, FedNAR around FedRep, and which selectors are accepted."""

import numpy as np
import pytest
from torch import nn

import fedtempo as ft
from tests.numbers.personalised import reference
from tests.numbers.personalised.setting import (
    BODY,
    CLIENTS,
    COMMON_HEAD,
    GIVEN_HEADS,
    HEAD,
    HEADS,
    NEWCOMER,
    PARTIAL,
    THETA,
    ScalarNet,
    assert_close,
    assert_personal,
    assert_same_bits,
    both_backends,
    draw_head,
    draw_rows,
    run,
    run_scalar,
    scalar,
    tensors,
)

both_batchings = pytest.mark.parametrize("batch_size", [None, 2])
SPLIT_ALGORITHMS = {
    "pflego": ft.algorithms.pflego(head_lr=0.3, server_lr=0.2, steps=3),
    "fedper": ft.algorithms.fedper(lr=0.3, steps=3),
    "fedrep": ft.algorithms.fedrep(lr=0.3, head_steps=2, body_steps=2),
    "fedrecon": ft.algorithms.fedrecon(lr=0.3, head_lr=0.3, head_steps=2),
    "fedrecon_stateful": ft.algorithms.fedrecon_stateful(head_lr=0.3, server_lr=0.2, head_steps=3),
}


@both_backends
@both_batchings
def test_fedper_without_personal_layers_is_fedavg(backend: str, batch_size: int | None) -> None:
    """Joint steps on everything, everything averaged by samples."""
    alike = (
        ft.algorithms.fedper(lr=0.3, steps=3, head=ft.params.nothing),
        ft.algorithms.fedavg(lr=0.3, steps=3, weighting="samples"),
    )
    results = [run(a, PARTIAL, backend=backend, batch_size=batch_size) for a in alike]
    assert_same_bits(results[0].params, results[1].params)
    assert results[0].client_state(0) == {}


@both_backends
def test_fedrep_without_head_steps_is_fedavg_on_the_body(backend: str) -> None:
    """theta_i <- theta_i - l grad_theta f_i(theta_i, W_i) under first heads that never move, uniform mean."""
    algorithm = ft.algorithms.fedrep(lr=0.3, head_steps=0, body_steps=3)
    result = run(algorithm, PARTIAL, backend=backend, starts=GIVEN_HEADS)
    theta, _ = reference.fedrep(CLIENTS, THETA, HEADS, PARTIAL, lr=0.3, head_steps=0, body_steps=3)
    assert_close(result.params, theta)
    assert_personal(result, HEADS, 0.0)


@both_backends
@both_batchings
def test_fedrep_without_head_steps_and_fedbabu_agree(backend: str, batch_size: int | None) -> None:
    """With one common head and the same weights both train the body alone."""
    alike = (
        ft.algorithms.fedrep(lr=0.3, head_steps=0, body_steps=3, weighting="samples"),
        ft.algorithms.fedbabu(lr=0.3, steps=3),
    )
    results = [run(a, PARTIAL, backend=backend, batch_size=batch_size) for a in alike]
    assert_same_bits(results[0].params, results[1].params, BODY)


@both_backends
@both_batchings
def test_fedbabus_head_never_changes(backend: str, batch_size: int | None) -> None:
    """After every round the head has the bits it was drawn with."""
    result = run(ft.algorithms.fedbabu(lr=0.3, steps=3), PARTIAL, backend=backend, batch_size=batch_size)
    for report in result.history:
        assert_same_bits(report.params, tensors(COMMON_HEAD), HEAD)
        assert np.abs(report.params["body.0.weight"].numpy() - THETA["body.0.weight"]).max() > 1e-4


def nar_steps(decay: float, limit: float, clipped: list[bool]) -> object:
    def local_steps(
        names: tuple[str, ...], p: reference.Arrays, rows: reference.Rows, lr: float, count: int, t: int
    ) -> reference.Arrays:
        for _ in range(count):
            g = reference.gradient(p, rows)
            d = {n: g[n] + decay * p[n] for n in names}
            norm = np.sqrt(sum((a**2).sum() for a in d.values()))
            clipped.append(norm > limit)
            p = {**p, **reference.plus(reference.only(p, names), d, -lr * min(1.0, limit / norm))}
        return p

    return local_steps


@both_backends
def test_fednar_around_fedrep(backend: str) -> None:
    """Every step of both phases: d = g + u x over what the phase trains, x <- x - l min(1, A / ||d||) d.

    u = 0.2 and A = 0.45 are such that some steps are clipped and some are not.
    """
    rates = {"lr": 0.3, "head_steps": 3, "body_steps": 2}
    algorithm = ft.algorithms.fednar(ft.algorithms.fedrep(**rates), weight_decay=0.2, max_norm=0.45)
    result = run(algorithm, PARTIAL, backend=backend, starts=GIVEN_HEADS)
    clipped: list[bool] = []
    theta, heads = reference.fedrep(CLIENTS, THETA, HEADS, PARTIAL, **rates, local_steps=nar_steps(0.2, 0.45, clipped))
    assert {True, False} == {bool(c) for c in clipped}
    assert_close(result.params, theta)
    assert_personal(result, heads)
    assert sum(report.measurements["clipped_steps"] for report in result.history) == sum(clipped)


@both_backends
def test_fedrep_with_momentum(backend: str) -> None:
    """The authors' momentum: b <- 1/2 b + g, x <- x - l b, with b = 0 at the start of each phase of each round."""

    def local_steps(
        names: tuple[str, ...], p: reference.Arrays, rows: reference.Rows, lr: float, count: int, t: int
    ) -> reference.Arrays:
        b = {n: np.zeros_like(p[n]) for n in names}
        for _ in range(count):
            g = reference.gradient(p, rows)
            b = {n: 0.5 * b[n] + g[n] for n in names}
            p = {**p, **reference.plus(reference.only(p, names), b, -lr)}
        return p

    rates = {"lr": 0.3, "head_steps": 3, "body_steps": 2}
    result = run(ft.algorithms.fedrep(**rates, momentum=0.5), PARTIAL, backend=backend, starts=GIVEN_HEADS)
    theta, heads = reference.fedrep(CLIENTS, THETA, HEADS, PARTIAL, **rates, local_steps=local_steps)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@both_backends
@pytest.mark.parametrize(
    "head", [ft.params.submodule("head"), ft.params.matching("head.*"), ft.params.of_type(nn.Linear)], ids=repr
)
def test_selectors_by_submodule_name_and_type(backend: str, head: ft.params.Selector) -> None:
    """Three ways to name the same head: with a body that is no nn.Linear the type names it too."""

    class OwnLinear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(nn.init.normal_(nn.Linear(3, 2).weight))
            self.bias = nn.Parameter(nn.Linear(3, 2).bias.detach().clone())

        def forward(self, x: object) -> object:
            return nn.functional.linear(x, self.weight, self.bias)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(OwnLinear(), nn.Tanh())
            self.head = nn.Linear(2, 3)

        def forward(self, x: object) -> object:
            return self.head(self.body(x))

    result = run(
        ft.algorithms.fedper(lr=0.3, steps=3, head=head), PARTIAL, backend=backend, starts=GIVEN_HEADS, model=Net()
    )
    theta, heads = reference.fedper(CLIENTS, THETA, HEADS, PARTIAL, lr=0.3, steps=3)
    assert_close(result.params, theta)
    assert_personal(result, heads)


@pytest.mark.parametrize(
    "make", [ft.algorithms.fedper, ft.algorithms.fedrep, ft.algorithms.pflego, ft.algorithms.fedrecon]
)
@pytest.mark.parametrize(
    "head",
    [
        ft.params.submodule("tail"),
        ft.params.matching("tail.*"),
        ft.params.of_type(nn.BatchNorm1d),
        ft.params.everything,
        ft.params.matching("*"),
        ft.params.of_type(nn.Linear),
    ],
    ids=repr,
)
def test_selector_that_matches_nothing_or_everything(make: object, head: ft.params.Selector) -> None:
    """Split methods need something to keep and something to share."""
    needed = {
        ft.algorithms.fedper: {"lr": 0.1, "steps": 1},
        ft.algorithms.fedrep: {"lr": 0.1, "head_steps": 1, "body_steps": 1},
        ft.algorithms.pflego: {"head_lr": 0.1, "server_lr": 0.1, "steps": 2},
        ft.algorithms.fedrecon: {"lr": 0.1, "head_lr": 0.1, "head_steps": 1},
    }
    with pytest.raises(ft.ConfigError, match="selector"):
        run(make(**needed[make], head=head), [[0, 1]], start=None)


@both_backends
@pytest.mark.parametrize("name", SPLIT_ALGORITHMS)
def test_newcomer_does_not_get_client_0s_given_head(backend: str, name: str) -> None:
    """init_clients names clients of the federation; a held-out client starts from the common head."""
    given = {0: GIVEN_HEADS[3]}
    with_given, without = (run(SPLIT_ALGORITHMS[name], [[1, 2]], backend=backend, starts=s) for s in (given, {}))
    assert_same_bits(with_given.personalize(NEWCOMER).personal, without.personalize(NEWCOMER).personal)


@both_backends
def test_newcomer_with_classes_of_its_own(backend: str) -> None:
    """Clients with 4, 2, 3 and 2 classes, a newcomer with 5: its new head has 5 outputs."""
    outputs, random = [4, 2, 3, 2], np.random.default_rng(6)
    clients = [draw_rows(random, 4, k) for k in outputs]
    heads = {i: draw_head(random, k) for i, k in enumerate(outputs)}
    result = run(
        SPLIT_ALGORITHMS["pflego"],
        PARTIAL,
        clients=clients,
        outputs=outputs,
        start=THETA,
        starts=heads,
        backend=backend,
    )
    model = result.personalize(draw_rows(random, 6, 5), outputs=5)
    assert model(tensors({"x": clients[0][0]})["x"]).shape == (4, 5)


@both_backends
def test_common_head_without_bias(backend: str) -> None:
    """init holds every client's first head, w = 2: after FedPer's hand-worked step w = 3/2 and 5/2."""
    result = run_scalar(
        ft.algorithms.fedper(lr=1 / 4, steps=1),
        [[1.0], [2.0, 4.0]],
        [[0, 1]],
        start={"body.weight": 1.0, "head.weight": 2.0},
        backend=backend,
        starts={},
    )
    assert ft.params.submodule("head").names(ScalarNet()) == {"head.weight"}
    assert [scalar(result.client_state(i), "head.weight") for i in (0, 1)] == pytest.approx([3 / 2, 5 / 2], abs=1e-12)
