"""LoRA methods against numpy, and the laws of the averages; a `peft` model takes the same path."""

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from tests import zoo
from tests.numbers.personal_and_fair import lora
from tests.numbers.personal_and_fair.lora import BASE, A, B
from tests.numbers.personal_and_fair.network import gradient
from tests.numbers.personalised.setting import CLIENTS, NEWCOMER, PARTIAL, gap, run

SCALE, EVERYBODY = 1.5, [[0, 1, 2, 3]] * 5
_random = np.random.default_rng(5)
START = {
    **{BASE: _random.normal(size=(3, 3)), "base_layer.bias": _random.normal(size=3)},
    **{A: _random.normal(size=(2, 3)), B: np.zeros((3, 2))},
}
METHODS = {"fedsa_lora": fl.fedsa_lora, "ffa_lora": fl.ffa_lora, "fedex_lora": fl.fedex_lora}


class OneLayer(torch.nn.Module):
    """Its parameters have names below `layer`, as those of a part of a larger model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = zoo.Adapted(3, 3, scale=SCALE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(x)
        return output


def trained(algorithm: ft.Algorithm, cohorts: list[list[int]], start=START, **way: object) -> ft.Result:
    first = {f"layer.{n}": a for n, a in start.items()}
    return run(algorithm, cohorts, model=OneLayer(), start=first, **{"backend": "serial", **way})


def effective(params: dict[str, torch.Tensor]) -> np.ndarray:
    own = {n.removeprefix("layer."): t.numpy() for n, t in params.items()}
    return own[BASE] + SCALE * own[B] @ own[A]


@pytest.mark.parametrize("backend", ["serial", "vectorised", "processes"])
@pytest.mark.parametrize("cohorts", [EVERYBODY, PARTIAL], ids=["everybody", "some"])
@pytest.mark.parametrize("method", METHODS)
def test_against_the_reference(method: str, cohorts: list[list[int]], backend: str) -> None:
    shared, own = lora.federated(method, CLIENTS, START, cohorts, SCALE, lr=0.2, steps=3)
    way: dict[str, object] = {"workers": 2, "block": 2} if backend == "processes" else {"backend": backend}
    result = trained(METHODS[method](lr=0.2, steps=3), cohorts, **way)
    expected = {f"layer.{n}": a for n, a in shared.items() if method != "fedsa_lora" or n != B}
    assert gap(result.params, expected) <= 1e-9
    if method == "fedsa_lora":
        assert max(gap(result.client_state(i), {f"layer.{B}": own[i]}) for i in own) <= 1e-9


def test_fedex_averages_products_exactly() -> None:
    """W_eff = old base + s mean(B_i A_i), which plain averaging of A and B misses."""
    rows = [[0, 1, 2, 3]]
    clients = [lora.trained(START, rows, SCALE, (A, B), 0.5, 5) for rows in CLIENTS]
    weights = np.array([len(y) for _, y in CLIENTS])
    exact = sum(w * c[B] @ c[A] for w, c in zip(weights / weights.sum(), clients, strict=True))
    found = effective(trained(fl.fedex_lora(lr=0.5, steps=5), rows).params)
    plain = effective(trained(fl.fedavg(lr=0.5, steps=5, weighting="samples"), rows).params)
    np.testing.assert_allclose(found, START[BASE] + SCALE * exact, atol=1e-12)
    assert np.abs(plain - found).max() > 1e-4


def test_one_step_from_zero_moves_b_alone() -> None:
    """B = 0, so the gradient of A is 0: FedIT is FFA in round 0. A second step tells them apart."""
    one, two = ([trained(f(lr=0.2, steps=k), [[0, 1]]).params for f in (fl.ffa_lora, fl.fedex_lora)] for k in (1, 2))
    assert gap(one[0], {n: t.numpy() for n, t in one[1].items()}) <= 1e-12
    assert not torch.equal(two[0][f"layer.{A}"], two[1][f"layer.{A}"])


def test_ffa_is_the_same_for_another_scale_and_rate() -> None:
    """(c lora_alpha, lr / c^2) gives the same W: B is c times smaller."""
    result = trained(fl.ffa_lora(lr=0.2, steps=3), PARTIAL)
    model = OneLayer()
    model.layer.scaling = {"default": 2 * SCALE}
    first = {f"layer.{n}": a for n, a in START.items()}
    other = run(fl.ffa_lora(lr=0.05, steps=3), PARTIAL, model=model, start=first)
    np.testing.assert_allclose(result.params[f"layer.{B}"], 2 * other.params[f"layer.{B}"], atol=1e-12)


def test_a_single_client_is_local_lora() -> None:
    alone = lora.trained(START, CLIENTS[2], SCALE, (A, B), 0.2, 3)
    result = trained(fl.fedsa_lora(lr=0.2, steps=3), [[2]])
    assert gap(result.params, {f"layer.{n}": alone[n] for n in alone if n != B}) <= 1e-12
    assert gap(result.client_state(2), {f"layer.{B}": alone[B]}) <= 1e-12


def test_a_new_client_of_fedsa_trains_b_from_zero() -> None:
    result = trained(fl.fedsa_lora(lr=0.2, steps=3), PARTIAL)
    shared = {n.removeprefix("layer."): t.numpy() for n, t in result.params.items()}
    expected = lora.trained({**shared, B: np.zeros((3, 2))}, NEWCOMER, SCALE, (B,), 0.2, 3)
    model = result.personalize(NEWCOMER)
    assert gap({**model.shared, **model.personal}, {f"layer.{n}": a for n, a in expected.items()}) <= 1e-12


def test_frozen_tensors_are_not_sent() -> None:
    """FFA sends B alone; FedEx sends A, B and the product, and gets the base back."""
    sizes = {}
    for method, make in METHODS.items():
        costs = trained(make(lr=0.2, steps=1), [[0]]).history[0].costs
        sizes[method] = (costs.bytes_up // 8, costs.bytes_down // 8)
    assert sizes["ffa_lora"][0] == 6
    assert sizes["fedsa_lora"][0] == 6
    assert sizes["fedex_lora"][0] == 12 + 9


def test_a_model_without_adapters_is_refused() -> None:
    with pytest.raises(ft.ModelError, match="fedex_lora needs a model with peft's LoRA adapters"):
        run(fl.fedex_lora(lr=0.1, steps=1), [[0]])


def test_peft_lays_adapters_out_as_expected() -> None:
    """The same run on peft's own layer."""
    peft = pytest.importorskip("peft")

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.layer(x)
            return output

    settings = peft.LoraConfig(r=2, lora_alpha=2 * SCALE, target_modules=["layer"], lora_dropout=0.0)
    model = peft.get_peft_model(Plain(), settings)
    first = {f"base_model.model.layer.{n}": a for n, a in START.items()}
    for method, make in METHODS.items():
        result = run(make(lr=0.2, steps=2), PARTIAL, model=model, start=first)
        ours = trained(make(lr=0.2, steps=2), PARTIAL)
        expected = {f"base_model.model.{n}": t.numpy() for n, t in ours.params.items()}
        assert gap(result.params, expected) <= 1e-12, method


def test_one_participant_is_exact_without_a_residual() -> None:
    """mean(B A) = mean(B) mean(A) for one client: the base stays, and FedEx is FedIT."""
    exact, plain = (trained(f(lr=0.2, steps=3), [[2], [0]]).params for f in (fl.fedex_lora, fl.fedavg))
    np.testing.assert_allclose(exact[f"layer.{BASE}"], START[BASE], atol=1e-12)
    assert gap(exact, {n: t.numpy() for n, t in plain.items()}) <= 1e-12


def test_the_mean_of_ffa_has_no_residual() -> None:
    """mean(B_i) A = mean(B_i A)."""
    models = [lora.trained(START, rows, SCALE, (B,), 0.5, 5) for rows in CLIENTS]
    shares = np.array([len(y) for _, y in CLIENTS]) / sum(len(y) for _, y in CLIENTS)
    exact = START[BASE] + SCALE * sum(w * m[B] @ m[A] for w, m in zip(shares, models, strict=True))
    found = effective(trained(fl.ffa_lora(lr=0.5, steps=5), [[0, 1, 2, 3]]).params)
    np.testing.assert_allclose(found, exact, atol=1e-12)


@pytest.mark.parametrize("rank", [2, 3])
def test_ffa_with_orthonormal_a_is_projected_sgd(rank: int) -> None:
    """W <- W - s^2 l grad A'A; with as many rows as inputs A'A = 1, and it is SGD on all of W."""
    orthonormal = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0][:rank]
    start = {**START, A: orthonormal, B: np.zeros((3, rank))}
    weight = {BASE: START[BASE], "base_layer.bias": START["base_layer.bias"], A: np.zeros((1, 3)), B: np.zeros((3, 1))}
    for _ in range(4):
        slope = gradient(lambda p: lora.loss(p, CLIENTS[1], SCALE), weight, (BASE,))[BASE]
        weight[BASE] = weight[BASE] - SCALE**2 * 0.1 * slope @ orthonormal.T @ orthonormal
    model = lora.trained(start, CLIENTS[1], SCALE, (B,), 0.1, 4)
    np.testing.assert_allclose(start[BASE] + SCALE * model[B] @ model[A], weight[BASE], atol=1e-12)
    if rank == START[A].shape[0]:
        found = effective(trained(fl.ffa_lora(lr=0.1, steps=4), [[1]], start).params)
        np.testing.assert_allclose(found, weight[BASE], atol=1e-12)


def test_no_wrapper_at_the_server_of_fedex_lora_is_lost() -> None:
    plain = fl.fedex_lora(lr=0.2, steps=3)

    def hyper(algorithm: ft.Algorithm) -> ft.Algorithm:
        return fl.fedhyper_global(algorithm, step=5.0)

    def decayed(algorithm: ft.Algorithm) -> ft.Algorithm:
        return fl.server_decay(algorithm, decay=0.05)

    one, other, *alone = (trained(a, PARTIAL) for a in (hyper(decayed(plain)), decayed(hyper(plain)), hyper(plain)))
    assert gap(one.params, other.params) <= 1e-12
    assert all(gap(one.params, each.params) > 1e-6 for each in (*alone, trained(decayed(plain), PARTIAL)))
