"""What evaluation measures is the model that each kind of user is served."""

from dataclasses import replace

import numpy as np
import pytest
from torch.nn import functional as F

import fedtempo as ft
from tests.numbers.personalised import reference
from tests.numbers.personalised import reference_models as models
from tests.numbers.personalised.cases import CASES
from tests.numbers.personalised.setting import (
    BODY,
    CLIENTS,
    HEAD,
    PARTIAL,
    SIZES,
    THETA,
    both_backends,
    draw_head,
    draw_rows,
    tensors,
)

PLAIN = sorted(set(CASES) - {"fedem", "fedbn"})


def mean_losses(result: ft.Result, clients: list[reference.Rows]) -> list[float]:
    """Every client's mean loss with its personal tensors in place of shared ones."""
    shared = {n: t.numpy() for n, t in result.params.items()}
    own = [{n: t.numpy() for n, t in result.client_state(i).items()} for i in range(len(clients))]
    return [float(reference.losses({**shared, **mine}, rows).mean()) for mine, rows in zip(own, clients, strict=True)]


@both_backends
@pytest.mark.parametrize("name", CASES)
def test_newcomers_are_scored_as_personalize_serves_them(backend: str, name: str) -> None:
    """A held-out client's loss in the evaluation is that of the model `personalize` makes from the same rows."""
    data = replace(ft.data.FederatedData.from_clients(CLIENTS), held_out=np.array([3]))
    result = CASES[name].run([[0, 2], [1, 2]], backend=backend, data=data, evaluation=ft.Evaluation())
    rows = tensors({"x": CLIENTS[3][0], "y": CLIENTS[3][1]})
    expected = F.cross_entropy(result.personalize(CLIENTS[3])(rows["x"]), rows["y"])
    assert result.scores is not None
    assert result.scores.new_after is not None
    assert result.scores.new_after.values["loss"] == pytest.approx([float(expected)], abs=1e-12)


@both_backends
@pytest.mark.parametrize("name", PLAIN)
def test_existing_users_are_scored_with_what_they_keep(backend: str, name: str) -> None:
    """Before fine-tuning: mean cross-entropy of (theta, W_i), of v_i, of theta_i, or of the shared model."""
    result = CASES[name].run(PARTIAL, backend=backend, evaluation=ft.Evaluation())
    assert result.scores is not None
    found = result.scores.existing_before.values["loss"]
    assert found.tolist() == pytest.approx(mean_losses(result, CLIENTS), abs=1e-12)


@both_backends
def test_existing_users_of_fedem_are_scored_with_their_mixture(backend: str) -> None:
    """-log sum_m pi_m softmax(h_m)_y, with each client's own pi."""
    result = CASES["fedem"].run(PARTIAL, backend=backend, evaluation=ft.Evaluation())
    shared = {n: t.numpy() for n, t in result.params.items()}
    expected = []
    for client, (x, y) in enumerate(CLIENTS):
        answers = models.mixture_probabilities(shared, result.client_state(client)["pi"].numpy(), x)
        expected.append(float(-np.log(answers[np.arange(len(y)), y]).mean()))
    assert result.scores is not None
    assert result.scores.existing_before.values["loss"].tolist() == pytest.approx(expected, abs=1e-12)


@both_backends
@pytest.mark.parametrize("name", ["pflego", "fedper"])
def test_fine_tuning_of_existing_users(backend: str, name: str) -> None:
    """One epoch, here one full-batch step, at the training rate, on what the first phase trains (PFLEGO: the head)."""
    result = CASES[name].run(PARTIAL, backend=backend, evaluation=ft.Evaluation())
    shared = {n: t.numpy() for n, t in result.params.items()}
    expected = []
    for client, rows in enumerate(CLIENTS):
        own = {n: t.numpy() for n, t in result.client_state(client).items()}
        tuned = reference.steps_on(HEAD if name == "pflego" else BODY + HEAD, {**shared, **own}, rows, 0.3, 1)
        expected.append(float(reference.losses(tuned, rows).mean()))
    assert result.scores is not None
    assert result.scores.existing_after.values["loss"].tolist() == pytest.approx(expected, abs=1e-12)


@both_backends
@pytest.mark.parametrize("name", ["pflego", "fedrep"])
def test_heads_of_different_sizes_are_scored_on_their_own_classes(backend: str, name: str) -> None:
    """Clients with 2, 4, 3 and 2 classes: each softmax runs over the client's own classes, padded or not."""
    outputs, random = [2, 4, 3, 2], np.random.default_rng(8)
    clients = [draw_rows(random, n, k) for n, k in zip(SIZES, outputs, strict=True)]
    heads = {i: draw_head(random, k) for i, k in enumerate(outputs)}
    settings = {"clients": clients, "outputs": outputs, "start": THETA, "starts": heads, "backend": backend}
    result = CASES[name].run(PARTIAL, **settings, evaluation=ft.Evaluation())
    assert result.scores is not None
    found = result.scores.existing_before.values["loss"]
    assert found.tolist() == pytest.approx(mean_losses(result, clients), abs=1e-12)
