"""Losses: torch's own numbers, class and sample weights, losses that reduce, and guesses that are said."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.contracts import distance
from fedtempo.tasks import IGNORED, as_task, classification, mean_loss
from tests.slow import slow_but

SIZES = (7, 12, 5, 16, 9, 10)
WAYS: dict[str, dict[str, Any]] = {
    "vectorised": {"backend": "vectorised"},
    "blocks of two": {"backend": "vectorised", "block": 2},
    "processes": {"backend": "vectorised", "block": 2, "workers": 2},
}


def clients(kind: str = "classes", weights: bool = False) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    found = []
    for n in SIZES:
        x = rng.standard_normal((n, 6))
        y = {"classes": rng.integers(0, 3, n), "numbers": x[:, 0] + rng.standard_normal(n)}[kind]
        found.append({"x": x, "y": y, **({"sample_weight": rng.integers(0, 4, n) + 0.5} if weights else {})})
    return found


def run(loss: Any, kind: str = "classes", weights: bool = False, **settings: Any) -> ft.Result:
    usual = {
        "model": ft.models.mlp(6, [5], 3 if kind == "classes" else 1),
        "data": ft.data.FederatedData.from_clients(clients(kind, weights)),
        "algorithm": a.fedavg(lr=0.3, epochs=2),
        "rounds": 2,
        "batch_size": 4,
        "dtype": torch.float64,
        "backend": "serial",
    }
    return ft.run(**{**usual, "loss": loss, **settings})


def one_number(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) + 0.01 * outputs.square().mean().sqrt()


def by_rank(outputs: Tensor, targets: Tensor) -> Tensor:
    """One number per row that depends on all other rows."""
    losses = F.cross_entropy(outputs, targets, reduction="none")
    return losses * (1 + (losses - losses.mean()).detach().abs())


LOSSES: dict[str, tuple[Any, str]] = {
    "one number": (one_number, "classes"),
    "one number, in a task": (ft.tasks.Task("mine", one_number), "classes"),
    "rows that look at each other": (by_rank, "classes"),
    "summed": (nn.CrossEntropyLoss(reduction="sum"), "classes"),
    "weighted classes": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.5])), "classes"),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), "classes"),
    "focal": (
        lambda o, t: (
            (1 - o.softmax(1).gather(1, t[:, None])[:, 0]) ** 2 * F.cross_entropy(o, t, reduction="none")
        ).mean(),
        "classes",
    ),
    "Huber": (lambda o, t: F.huber_loss(o.squeeze(-1), t), "numbers"),
    "squares": (nn.MSELoss(), "numbers"),
}


@cache
def one_by_one(name: str) -> ft.Result:
    return run(*LOSSES[name])


PAIRS = [(name, way) for name in LOSSES for way in WAYS]
OFTEN = [(name, way) for name, way in PAIRS if way == "blocks of two" or name == "one number"]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("pair", slow_but(OFTEN, PAIRS, "every loss runs in blocks, and one loss in every way"))
def test_a_loss_gives_the_same_model_and_scores_however_clients_run(pair: tuple[str, str]) -> None:
    name, way = pair
    loss, kind = LOSSES[name]
    one, other = one_by_one(name), run(loss, kind, **WAYS[way])
    assert distance(one, other) < 1e-10
    for group, users in one.scores.groups().items():
        for metric, values in users.values.items():
            assert other.scores.groups()[group].values[metric] == pytest.approx(values, abs=1e-10)


@pytest.mark.parametrize(
    "algorithm", [a.scaffold(lr=0.1, steps=2, option="I"), a.pflego(head_lr=0.1, server_lr=0.1, steps=2)]
)
def test_so_it_is_where_an_algorithm_passes_over_all_rows(algorithm: ft.Algorithm) -> None:
    settings: dict[str, Any] = {"algorithm": algorithm}
    assert distance(run(one_number, **settings), run(one_number, **settings, backend="vectorised")) < 1e-10


def test_a_users_loss_never_sees_a_padding_row() -> None:
    lengths = set()

    def watched(outputs: Tensor, targets: Tensor) -> Tensor:
        lengths.add(len(targets))
        return F.cross_entropy(outputs, targets)

    run(watched, backend="vectorised")
    own = {4, *SIZES, *(n % 4 for n in SIZES)} - {0}
    assert lengths <= own


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 5.0, 0.0])])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_class_weights_and_smoothing_are_torchs(weight: Tensor | None, smoothing: float) -> None:
    """Also for rows without a label, and beside rows that only pad the batch."""
    outputs = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 1, IGNORED, 0, 2, 2, 1])
    double = None if weight is None else weight.double()
    expected = F.cross_entropy(outputs, targets, weight=double, label_smoothing=smoothing)
    task = classification(weight, smoothing)
    assert float(mean_loss(task, outputs, {"y": targets})) == pytest.approx(float(expected), abs=1e-12)
    padded = {"y": torch.cat([targets, targets[:2]]), "_rows": torch.arange(11) < 9}
    wide = torch.cat([outputs, outputs[:2] * 7])
    assert float(mean_loss(task, wide, padded)) == pytest.approx(float(expected), abs=1e-12)


def test_sample_weights_are_a_column_that_the_model_is_not_given() -> None:
    """sum w l / sum w; rows of weight 2 are rows that are there twice."""
    outputs = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([0, 2, 1])
    losses = F.cross_entropy(outputs, targets, reduction="none")
    batch = {"y": targets, "sample_weight": torch.tensor([2.0, 1.0, 0.0])}
    assert float(mean_loss(classification(), outputs, batch)) == pytest.approx(float((2 * losses[0] + losses[1]) / 3))
    one, other = run(None, weights=True), run(None, weights=True, backend="vectorised")
    assert distance(one, other) < 1e-10
    assert distance(one, run(None)) > 1e-3
    twice = [{"x": np.repeat(c["x"], 2, 0), "y": np.repeat(c["y"], 2)} for c in clients()]
    weighed = [{**c, "sample_weight": np.full(len(c["y"]), 2)} for c in clients()]
    full = {"batch_size": None, "algorithm": a.fedsgd(lr=0.1)}
    alike = [run(None, data=ft.data.FederatedData.from_clients(rows), **full) for rows in (twice, weighed)]
    assert distance(*alike) < 1e-12


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_the_reported_loss_of_a_weighted_task_is_torchs_on_the_users_rows(backend: str) -> None:
    weight = torch.tensor([1.0, 5.0, 0.5])
    result = run(nn.CrossEntropyLoss(weight=weight), backend=backend)
    problem, users = result.experiment.federation.problem, result.scores.existing_before
    for client, loss in zip(users.clients.tolist(), users.values["loss"].tolist(), strict=True):
        rows = problem.client_rows(client)
        expected = F.cross_entropy(problem.network.forward(result.params, rows), rows["y"], weight=weight.double())
        assert loss == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(weight=torch.ones(3)), one_number, by_rank, "classification"])
def test_the_metrics_stay_with_a_loss_of_your_own(loss: Any) -> None:
    result = run(loss)
    assert result.scores.metric == "accuracy"
    assert list(result.scores.existing_after.values) == ["loss", "accuracy"]


def test_one_output_is_not_guessed_to_be_a_logit() -> None:
    """A loss of your own may mean a probability by it."""
    rng = np.random.default_rng(0)
    data = ft.data.FederatedData.from_clients([(rng.standard_normal((6, 6)), rng.integers(0, 2, 6)) for _ in range(3)])
    model = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy(outputs.squeeze(-1), targets.to(outputs.dtype))

    result = run(loss, data=data, model=model)
    assert list(result.scores.existing_after.values) == ["loss"]


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("kind", [bool, int])
def test_one_logit_may_stand_in_a_column_of_its_own(kind: type, backend: str) -> None:
    """A last layer with one output, and one yes or no for each row: the usual binary network."""
    rng = np.random.default_rng(0)
    rows = [(x := rng.standard_normal((n, 6)), (x[:, 0] > 0).astype(kind)) for n in (5, 8, 3)]
    data = ft.data.FederatedData.from_clients(rows)
    column = nn.Linear(6, 1)
    flat = nn.Sequential(column, nn.Flatten(0))
    settings = {"data": data, "backend": backend, "metrics": ["accuracy", "auroc"]}
    one, other = run("multilabel", model=column, **settings), run("multilabel", model=flat, **settings)
    assert [t.tolist() for t in one.params.values()] == [t.tolist() for t in other.params.values()]
    assert one.scores.summary() == other.scores.summary()


# ------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("shape", "outputs", "hint"),
    [((9,), 1, True), ((9, 3), 3, True), ((9,), 2, False)],
)
def test_labels_as_integers_get_the_loss_that_is_meant(shape: tuple[int, ...], outputs: int, hint: bool) -> None:
    y = np.arange(np.prod(shape)).reshape(shape) % (2 if hint else 3)
    data = ft.data.FederatedData.from_clients([(np.ones((9, 6)), y)] * 2)
    with pytest.raises(ft.ModelError, match="one entry per class") as told:
        run(None, data=data, model=nn.Linear(6, outputs))
    assert ("Say loss='multilabel'" in str(told.value)) == hint


def test_classes_as_floats_are_told_what_they_were_taken_for() -> None:
    data = ft.data.FederatedData.from_clients([(np.ones((9, 6)), np.arange(9) % 3 * 1.0)] * 2)
    with pytest.raises(ft.ModelError, match=r"numbers need outputs of the targets' shape.*classes are integers"):
        run(None, data=data, model=nn.Linear(6, 3))
    with pytest.raises(ft.ModelError, match=r"'classification' needs targets that are integers, y\.astype\(int\)"):
        run("classification", data=data, model=nn.Linear(6, 3))


def test_a_class_of_torch_is_not_a_loss_yet() -> None:
    with pytest.raises(ft.ConfigError, match=r"loss must be .*Got the class CrossEntropyLoss: make one, .*Loss\(\)"):
        run(nn.CrossEntropyLoss)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.eye(3)[np.arange(9) % 3], r"y\.argmax\(1\).*loss='regression'.*single 1"),
        ((np.arange(27).reshape(9, 3) % 2).astype(float), "loss='multilabel'.*loss='regression'"),
        ((np.arange(9) % 2).astype(float), r"y\.astype\(int\).*loss='regression'"),
    ],
)
def test_an_ambiguous_target_is_refused_with_the_two_ways_to_say_it(y: np.ndarray, message: str) -> None:
    data = ft.data.FederatedData.from_clients([(np.ones((9, 6)), y)] * 2)
    model = ft.models.mlp(6, [4], 1 if y.ndim == 1 else 3)
    with pytest.raises(ft.ConfigError, match=message):
        run(None, data=data, model=model)
    assert run("regression", data=data, model=model).scores.metric == "loss"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 6 + [-1.0], "numbers >= 0"),
        ([0.0] * 7, "numbers >= 0, not all of them 0"),
        ([[1.0]] * 7, "one number per row"),
    ],
)
def test_sample_weights_that_are_none_are_refused(weights: list[Any], message: str) -> None:
    first, *others = clients()
    rows = [{**first, "sample_weight": np.array(weights)}]
    shape = np.array(weights).shape[1:]
    rows += [{**c, "sample_weight": np.ones((len(c["y"]), *shape))} for c in others]
    with pytest.raises(ft.DataError, match=message):
        run(None, data=ft.data.FederatedData.from_clients(rows))


def test_rows_cannot_be_weighed_in_a_loss_of_one_number() -> None:
    with pytest.raises(ft.ConfigError, match="one number per row where rows are weighed"):
        run(one_number, weights=True)
    with pytest.raises(ft.ConfigError, match="one number per row for a mixture"):
        run(one_number, algorithm=a.fedem(lr=0.1, steps=2, components=2))


class MakesItsLoss(nn.Module):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.line, self.reduction = nn.Linear(6, 4), reduction

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.line(x)
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": F.cross_entropy(logits, labels, reduction=self.reduction)}


@pytest.mark.parametrize(
    "settings", [{"weights": True}, {"augment": ft.data.augment.mixup()}], ids=["sample_weight", "mixup"]
)
def test_rows_cannot_be_weighed_in_a_loss_that_the_model_makes(settings: dict[str, Any]) -> None:
    with pytest.raises(ft.ModelError, match=r"one of ours where rows are weighed.*Got the model's"):
        run("own", model=MakesItsLoss, **settings)


def test_a_batch_passes_in_pieces_only_where_the_models_loss_is_their_mean() -> None:
    pieces = {"algorithm": a.fedavg(lr=0.1, steps=2, accumulate=2)}
    run("own", model=MakesItsLoss, **pieces)
    with pytest.raises(ft.ConfigError, match="accumulate must be 1 for the model's own loss, which is not the mean"):
        run("own", model=MakesItsLoss("sum"), **pieces)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"class_weights": [1.0, -1.0]}, "class_weights"), ({"label_smoothing": 1.0}, "label_smoothing")],
)
def test_settings_of_a_task_are_checked(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ft.ConfigError, match=field):
        classification(**arguments)


def test_a_score_without_a_direction_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match="which way is better"):
        ft.tasks.Task("mine", one_number, {"mine": lambda o, t: o[:, 0]})  # type: ignore[dict-item]


def test_nan_in_the_data_names_the_client() -> None:
    rows = [(c["x"], c["y"]) for c in clients()]
    rows[3][0][2, 1] = np.nan
    data = ft.data.FederatedData.from_clients(rows, names=list("abcdef"))
    with pytest.raises(
        ft.DataError,
        match=r"column 'x' must be finite\. Got NaN or infinity in row 2 of the train rows of client 3 \(d\)",
    ):
        run(None, data=data)
    parts = ft.data.FederatedData.from_clients(rows, validation=0.3, test=0.3)
    with pytest.raises(ft.DataError, match=r"of client 3\."):
        run(None, data=parts)


# ------------------------------------------------------------------ said


def test_the_task_that_was_chosen_is_said_and_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(None, out=tmp_path / "run", trackers=["progress"])
    told = "classification (guessed from targets that are integers), selected by accuracy (higher is better)"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["task"] == told
    assert told in (tmp_path / "run" / "report.html").read_text()
    assert f"task: {told}" in capsys.readouterr().err
    assert result.experiment.identity()["loss"] == "classification"
    assert str(as_task(None, torch.tensor([1.5]))).startswith("regression (guessed from targets that are floats)")
    assert str(as_task("regression", None)).startswith("regression (given)")


class Pixels(nn.Module):
    """A class for every pixel; classes second, as torch's cross-entropy has them, or last."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.layer, self.last = nn.Conv2d(1, 3, 1), last

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x)
        return outputs.movedim(1, -1) if self.last else outputs


@pytest.mark.parametrize(("last", "loss"), [(True, None), (False, F.cross_entropy), (False, nn.CrossEntropyLoss())])
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_pixels_are_classified_as_by_torch(last: bool, loss: Any, backend: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (6, 4, 5))
    labels[:, 0] = -100  # the same number in every image, so that the mean over images is the mean over pixels
    x = rng.standard_normal((6, 1, 4, 5))
    torch.manual_seed(0)
    model = Pixels(last)
    data = ft.data.FederatedData.from_clients([(x[:2], labels[:2]), (x[2:], labels[2:])])
    settings = {"algorithm": ft.algorithms.fedavg(lr=0.5, steps=1), "rounds": 1, "batch_size": None}
    result = ft.run(model=model, data=data, loss=loss, backend=backend, dtype=torch.float64, **settings, progress=False)
    weights = []
    for rows in (slice(0, 2), slice(2, 6)):
        weight = model.layer.weight.detach().double().requires_grad_()
        outputs = F.conv2d(torch.as_tensor(x[rows]), weight, model.layer.bias.detach().double())
        F.cross_entropy(outputs, torch.as_tensor(labels[rows])).backward()
        weights.append(weight.detach() - 0.5 * weight.grad)
    torch.testing.assert_close(result.params["layer.weight"], sum(weights) / 2, rtol=0, atol=1e-12)
    if last:
        outputs = result.predict(0, "train")
        correct = (outputs.argmax(-1) == torch.as_tensor(labels[:2]))[:, 1:].double().mean()
        assert result.scores.existing_before.values["accuracy"][0] == pytest.approx(float(correct), abs=1e-12)


def test_classes_of_pixels_in_the_second_place_are_told_to_come_last() -> None:
    data = ft.data.FederatedData.from_clients([(np.zeros((4, 1, 4, 5)), np.arange(80).reshape(4, 4, 5) % 3)])
    with pytest.raises(ft.ModelError, match=r"Classes come last: return outputs\.movedim\(1, -1\)"):
        ft.run(model=Pixels(False), data=data, algorithm=ft.algorithms.fedavg(lr=0.5, steps=1), rounds=1)
