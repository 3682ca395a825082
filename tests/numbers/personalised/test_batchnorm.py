"""FedBN against hand-worked numbers and a loop written out in torch, and its laws."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedtempo as ft
from tests.numbers.personalised.setting import (
    CLIENTS,
    FULL,
    NEWCOMER,
    NORM,
    PARTIAL,
    START,
    NormNet,
    assert_close,
    assert_same_bits,
    both_backends,
    both_participations,
    first_norm_state,
    run,
    tensors,
)

LR, STEPS = 0.3, 3

State = dict[str, Tensor]


def train(state: State, rows: tuple[np.ndarray, np.ndarray], steps: int) -> State:
    """Plain torch SGD on the full batch, from and to a state dict."""
    model = NormNet().double().train()
    model.load_state_dict(copy.deepcopy(state))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.from_numpy(rows[0])), torch.from_numpy(rows[1])).backward()
        optimizer.step()
    return {n: t.clone() for n, t in model.state_dict().items()}


def by_loop(cohorts: list[list[int]], personal: tuple[str, ...] = NORM) -> tuple[State, dict[int, State]]:
    """FedAvg with the uniform mean on all but the personal tensors."""
    first = first_norm_state()
    shared = {n: t for n, t in first.items() if n not in personal}
    kept = {i: {n: first[n] for n in personal} for i in range(4)}
    for cohort in cohorts:
        trained = {i: train({**shared, **kept[i]}, CLIENTS[i], STEPS) for i in cohort}
        kept |= {i: {n: trained[i][n] for n in personal} for i in cohort}
        means = {n: torch.stack([trained[i][n].double() for i in cohort]).mean(0) for n in shared}
        shared = {n: means[n] if shared[n].is_floating_point() else shared[n] for n in shared}
    return shared, kept


def arrays(state: State) -> dict[str, np.ndarray]:
    return {n: t.numpy() for n, t in state.items()}


@both_backends
def test_by_hand(backend: str) -> None:
    """Model c (gamma z + beta), z = (x - mean) / deviation; squared loss; c = gamma = 1, beta = 0; rate 1/4.

    eps is so small that 1 + eps = 1. A: x = (0, 2), z = (-1, 1), y = (0, 2), residuals (-1, -1): gradients of
    (gamma, beta, c) are (0, -2, 0), so beta = 1/2.
    Statistics: 1/10 of the mean 1, 9/10 + 1/10 of the unbiased variance 2: 1/10 and 11/10.
    B: x = (0, 4), z = (-1, 1), y = (1, 1), residuals (-2, 0): (2, -2, 2), so gamma = beta = c = 1/2.
    Statistics: 2/10 and 9/10 + 8/10 = 17/10. The shared c = (1 + 1/2) / 2 = 3/4.
    """
    x = [np.array([[0.0], [2.0]]), np.array([[0.0], [4.0]])]
    y = [np.array([0.0, 2.0]), np.array([1.0, 1.0])]
    model = nn.Sequential(nn.BatchNorm1d(1, eps=1e-30), nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[1].weight)
    result = run(
        ft.algorithms.fedbn(lr=1 / 4, steps=1),
        [[0, 1]],
        backend=backend,
        clients=list(zip(x, y, strict=True)),
        start=None,
        model=model,
        loss="regression",
    )
    assert_close(result.params, {"1.weight": [[3 / 4]]})
    names = ("0.weight", "0.bias", "0.running_mean", "0.running_var", "0.num_batches_tracked")
    for client, numbers in {0: (1, 1 / 2, 1 / 10, 11 / 10, 1), 1: (1 / 2, 1 / 2, 2 / 10, 17 / 10, 1)}.items():
        expected = {n: [v] for n, v in zip(names[:4], numbers, strict=False)} | {names[4]: 1}
        assert_close(result.client_state(client), expected)


@both_backends
@both_participations
def test_against_loop(backend: str, cohorts: list[list[int]]) -> None:
    """K SGD steps on everything; weight, bias, both statistics and the counter of BatchNorm stay with the client."""
    result = run(
        ft.algorithms.fedbn(lr=LR, steps=STEPS), cohorts, backend=backend, start=first_norm_state(), model=NormNet()
    )
    shared, kept = by_loop(cohorts)
    assert_close(result.params, arrays(shared))
    for client in range(4):
        assert_close(result.client_state(client), arrays(kept[client]))


@both_backends
def test_first_tensors_of_a_client(backend: str) -> None:
    """A client that never came has the first BatchNorm tensors; those of the others have counted their steps."""
    result = run(
        ft.algorithms.fedbn(lr=LR, steps=STEPS), [[0, 2]], backend=backend, start=first_norm_state(), model=NormNet()
    )
    assert_same_bits(result.client_state(1), first_norm_state(), NORM)
    assert [int(result.client_state(i)[NORM[-1]]) for i in range(4)] == [STEPS, 0, STEPS, 0]


@both_backends
def test_newcomer_starts_from_first_batchnorm_tensors(backend: str) -> None:
    """Averaged tensors and first BatchNorm tensors, then fine-tuning: one epoch, here one full-batch step."""
    result = run(
        ft.algorithms.fedbn(lr=LR, steps=STEPS), PARTIAL, backend=backend, start=first_norm_state(), model=NormNet()
    )
    shared, _ = by_loop(PARTIAL)
    expected = train({**shared, **{n: first_norm_state()[n] for n in NORM}}, NEWCOMER, 1)
    model = result.personalize(NEWCOMER)
    assert_close({**model.shared, **model.personal}, arrays(expected))
    net = NormNet().double().eval()
    net.load_state_dict(expected)
    x = tensors({"x": NEWCOMER[0]})["x"]
    assert_close({"y": model(x)}, {"y": net(x).detach().numpy()})


@both_backends
@pytest.mark.parametrize("batch_size", [None, 2])
def test_without_batchnorm_is_fedavg(backend: str, batch_size: int | None) -> None:
    """Nothing is personal, so every bit is FedAvg's."""
    algorithms = ft.algorithms.fedbn(lr=LR, steps=STEPS), ft.algorithms.fedavg(lr=LR, steps=STEPS)
    results = [run(a, PARTIAL, backend=backend, batch_size=batch_size, start=START) for a in algorithms]
    assert_same_bits(results[0].params, results[1].params)
    assert results[0].client_state(0) == {}


@both_backends
@both_participations
def test_shared_statistics_are_averaged(backend: str, cohorts: list[list[int]]) -> None:
    """FedAvg on the same network: running mean and variance are averaged too, the integer counter is not."""
    result = run(
        ft.algorithms.fedavg(lr=LR, steps=STEPS), cohorts, backend=backend, start=first_norm_state(), model=NormNet()
    )
    shared, _ = by_loop(cohorts, personal=())
    assert_close(result.params, arrays(shared))


def test_loop_really_depends_on_what_is_personal() -> None:
    """A check of the check: personal and averaged BatchNorm lead to different models."""
    assert not torch.allclose(by_loop(FULL)[0]["head.weight"], by_loop(FULL, personal=())[0]["head.weight"], atol=1e-6)
