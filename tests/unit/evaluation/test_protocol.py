"""The evaluation protocol: statistics over users, who selects, what fine-tuning does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.config import parse
from fedtempo.evaluation.protocol import Evaluation, Scores, UserScores
from fedtempo.evaluation.serving import served_phases
from fedtempo.training.prepare import prepare
from tests.unit.config.experiments import experiment as experiment_file


def users(values: list[float], samples: list[int] | None = None, interpolated: bool = False) -> UserScores:
    counts = np.array(samples or [1] * len(values))
    return UserScores(
        np.arange(len(values)), counts, {"accuracy": np.array(values), "loss": np.array(values)}, interpolated
    )


def test_statistics_over_users() -> None:
    """Twenty users 0.05, 0.10, ... 1.00: the bottom decile is sorted[2] = 0.15, the mean of the two below it 0.075."""
    values = [0.05 * k for k in range(20, 0, -1)]
    summary = users(values).summary("accuracy")
    assert summary["mean"] == pytest.approx(0.525)
    assert summary["bottom_decile"] == pytest.approx(0.15)
    assert summary["worst_tenth"] == pytest.approx(0.075)
    assert summary["worst"] == pytest.approx(0.05)
    assert summary["std"] == pytest.approx(np.std(values))
    assert users(values, interpolated=True).summary("accuracy")["bottom_decile"] == pytest.approx(0.145)


def test_sample_weighted_mean_and_users_without_rows() -> None:
    summary = users([1.0, 0.0, 0.5], [3, 1, 0]).summary("accuracy")
    assert summary["mean"] == 0.5
    assert summary["weighted_mean"] == 0.75


def test_a_rate_that_is_none_is_named() -> None:
    with pytest.raises(ft.ConfigError, match=r"evaluation\.lr must be a number >= 0 or a schedule\. Got 'fast'\."):
        Evaluation(lr="fast")  # type: ignore[arg-type]


def test_for_a_loss_the_worst_is_the_largest() -> None:
    assert users([1.0, 2.0, 3.0]).summary("loss")["worst"] == 3.0


def test_quality_is_the_mean_and_what_is_better_when_low_counts_negative() -> None:
    """Perplexities 2 and 4 are worth -3, less than those of 1 and 4: selection must take the second."""

    def quality(metric: str, values: list[float]) -> float:
        scored = UserScores(np.arange(2), np.array([1, 1]), {metric: np.array(values)})
        return Scores("validation", scored, scored, metric=metric).quality()

    assert quality("accuracy", [0.25, 0.75]) == 0.5
    assert quality("loss", [2.0, 4.0]) == quality("perplexity", [2.0, 4.0]) == -3.0
    assert quality("perplexity", [1.0, 4.0]) > quality("perplexity", [2.0, 4.0])


def test_initial_scores_are_the_shared_models(digits: ft.data.FederatedData) -> None:
    result = ft.run(model=ft.models.mlp(64, [8], 10), data=digits, algorithm=a.fedavg(lr=0.1, steps=3), rounds=2)
    model = result.experiment.federation.problem.network
    scores = result.history[-1].test
    assert scores is not None
    for scored in (scores.existing_before, scores.new_before):
        client = int(scored.clients[0])
        rows = digits.client(client, "test")
        outputs = model.forward(result.params, rows)
        expected = (outputs.argmax(1) == rows["y"]).double().mean()
        assert scored.values["accuracy"][0] == pytest.approx(float(expected))


def test_fine_tuning_is_one_epoch_at_the_training_rate(digits: ft.data.FederatedData) -> None:
    """What `personalize` returns is the shared model after one pass of SGD over the new user's rows."""
    result = ft.run(
        model=ft.models.softmax_regression(64, 10),
        data=digits,
        algorithm=a.feddecay(lr=0.1, beta=0.5, steps=3),
        rounds=2,
        batch_size=None,
        dtype=torch.float64,
        evaluation=None,
    )
    rows = digits.client(int(digits.held_out[0]), "train", torch.float64)
    served = result.personalize(rows)
    params = {n: p.clone().requires_grad_() for n, p in result.params.items()}
    network = result.experiment.federation.problem.network
    loss = torch.nn.functional.cross_entropy(network.forward(params, rows), rows["y"])
    gradients = torch.autograd.grad(loss, list(params.values()))
    for (name, p), gradient in zip(params.items(), gradients, strict=True):
        torch.testing.assert_close(served.shared[name], (p - 0.1 * gradient).detach(), rtol=1e-12, atol=1e-12)
    untouched = result.personalize(rows, steps=0)
    assert all(torch.equal(untouched.shared[n], p) for n, p in result.params.items())


def test_head_only_fine_tuning_leaves_the_body(digits: ft.data.FederatedData) -> None:
    settings = {
        "model": ft.models.mlp(64, [8], 10),
        "data": digits,
        "rounds": 1,
        "algorithm": a.fedavg(lr=0.1, steps=1),
    }
    everything = ft.run(**settings, evaluation=Evaluation(epochs=3)).scores
    head = ft.run(**settings, evaluation=Evaluation(epochs=3, trains="head")).scores
    assert everything.existing_before.values["loss"] == pytest.approx(head.existing_before.values["loss"])
    assert (everything.existing_after.values["loss"] != head.existing_after.values["loss"]).any()


def test_body_only_fine_tuning_leaves_the_head(digits: ft.data.FederatedData) -> None:
    """FedBABU's third way to serve a user: everything is its first, the head alone its second."""
    settings = {"model": ft.models.mlp(64, [8], 10), "data": digits, "rounds": 1, "algorithm": a.fedbabu(0.3, 1)}
    experiment = prepare(**settings, evaluation=Evaluation(steps=2, trains="body"))
    for newcomers in (False, True):
        (phase,), _ = served_phases(experiment.federation, experiment.evaluation, newcomers)
        moved = phase.trains.names(settings["model"])
        assert moved == {n for n, _ in settings["model"].named_parameters() if not n.startswith("head.")}
    losses = [
        ft.run(**settings, evaluation=Evaluation(steps=2, trains=part)).scores.new_after.values["loss"]
        for part in ("all", "head", "body")
    ]
    assert not any(np.allclose(one, other) for one, other in itertools.combinations(losses, 2))
    section = parse(experiment_file(evaluation={"trains": "body"})).evaluation
    assert section.trains == "body"


def test_validation_selects_and_test_is_read_only_then(digits: ft.data.FederatedData) -> None:
    result = ft.run(
        model=ft.models.mlp(64, [8], 10),
        data=digits,
        algorithm=a.fedavg(lr=0.5, steps=5),
        rounds=12,
        cohort=3,
        evaluation=Evaluation(every=1),
    )
    best = -1.0
    for report in result.history:
        quality = report.validation.existing_after.summary("accuracy")["mean"]
        assert (report.test is not None) == (quality > best)
        best = max(best, quality)
    assert result.scores is result.selected.test


def test_a_seeded_sample_of_users(digits: ft.data.FederatedData) -> None:
    settings = {
        "model": ft.models.mlp(64, [8], 10),
        "data": digits,
        "rounds": 1,
        "algorithm": a.fedavg(lr=0.1, steps=1),
    }
    scores = ft.run(**settings, evaluation=Evaluation(users=3)).scores
    assert len(scores.existing_before.clients) == len(scores.new_before.clients) == 3
    again = ft.run(**settings, evaluation=Evaluation(users=3)).scores
    assert scores.existing_before.clients.tolist() == again.existing_before.clients.tolist()


def test_multilabel_and_language_tasks() -> None:
    rng = np.random.default_rng(0)
    labels = [(rng.standard_normal((8, 5)).astype(np.float32), rng.integers(0, 2, (8, 7))) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(labels, test=0.25)
    result = ft.run(
        model=ft.models.softmax_regression(5, 7),
        data=data,
        algorithm=a.fedavg(lr=0.1, steps=2),
        rounds=1,
        loss="multilabel",
    )
    assert 0 <= result.scores.existing_after.summary("recall_at_5")["mean"] <= 1
    tokens = [(rng.integers(0, 6, (8, 5)), rng.integers(0, 6, (8, 5))) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(tokens, test=0.25)
    model = torch.nn.Sequential(torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6))
    result = ft.run(model=model, data=data, algorithm=a.fedavg(lr=0.1, steps=2), rounds=1)
    users = result.scores.existing_after
    assert users.values["perplexity"] == pytest.approx(np.exp(users.values["loss"]))
