"""Metrics: scikit-learn's numbers for every client on every backend, the right direction, nobody left out silently."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.comparison import compare_runs
from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.metrics import METRICS, f1, top
from fedtempo.report.payload import payload
from fedtempo.training.round_report import from_json, to_json
from tests.later import Later
from tests.slow import slow_but

by_sklearn, sklearn_calibration = Later("sklearn.metrics"), Later("sklearn.calibration")
SIZES = (9, 14, 6, 21, 14, 11, 1, 8)
WAYS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "vectorised": {"backend": "vectorised"},
    "blocks of three": {"backend": "vectorised", "block": 3},
    "processes": {"backend": "vectorised", "block": 2, "workers": 2},
}
OUTPUTS = {"classes": 7, "two": 2, "labels": 12, "numbers": 1, "tokens": 6}


def problem(kind: str) -> dict[str, Any]:
    """Eight clients of unequal size, two of them new. One has a single row, one a single class or number."""
    rng = np.random.default_rng(3)
    clients = []
    for n in SIZES:
        x: np.ndarray = rng.standard_normal((n, 5))
        y = {
            "classes": rng.integers(0, 7, n),
            "two": rng.integers(0, 2, n),
            "labels": rng.random((n, 12)) < 0.4,
            "numbers": x[:, 0] - 0.5 * x[:, 1] + rng.standard_normal(n),
            "tokens": rng.integers(0, 6, (n, 4)),
        }[kind]
        if n == 6:
            y = np.ones_like(y)
        if kind == "tokens":
            x, y[0, 1:] = rng.integers(0, 6, (n, 4)), -100
        clients.append((x, y))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6))
    return {
        "model": model if kind == "tokens" else ft.models.mlp(5, [6], OUTPUTS[kind]),
        "data": ft.data.FederatedData.from_clients(clients, new_clients=2),
        "algorithm": a.fedavg(lr=0.2, steps=2),
        "rounds": 2,
        "batch_size": 4,
        "dtype": torch.float64,
    }


def own_r2(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if len(targets) < 2 or bool((targets == targets[0]).all()):
        return float("nan")
    found = outputs.squeeze(-1)
    return float(1 - (targets - found).square().sum() / (targets - targets.mean()).square().sum())


def own_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if outputs.shape[0] != targets.shape[0]:
        raise ValueError("rows do not fit")
    return (outputs.squeeze(-1) - targets).abs()


def own_kappa(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Looks at numbers, counts rows and calls NumPy: nothing that vmap could do."""
    said, y = outputs.argmax(1).numpy(), targets.numpy()
    if len(set(y.tolist())) < 2:
        return float("nan")
    return float(by_sklearn.cohen_kappa_score(y, said))


OWN = {
    "own_r2": ft.Metric(own_r2, higher_is_better=True, per="client"),
    "own_error": ft.Metric(own_error, higher_is_better=False),
    "own_kappa": ft.Metric(own_kappa, higher_is_better=True, per="client"),
}


def chances(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return softmax(z, -1) if z.ndim == y.ndim + 1 else expit(z)


def one_against_rest(z: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    p = chances(z, y)
    if z.ndim == y.ndim:
        return [(y[:, c], p[:, c]) for c in range(y.shape[1])]
    return [(y == c, p[:, c]) for c in ([1] if z.shape[1] == 2 else range(z.shape[1]))]


def said(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return z.argmax(-1) if z.ndim == y.ndim + 1 else z > 0


def mean_or_nan(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def calibration(z: np.ndarray, y: np.ndarray) -> float:
    p = chances(z, y)
    sure = p.max(-1) if z.ndim == y.ndim + 1 else np.maximum(p, 1 - p)
    sure, right = sure.ravel(), (said(z, y) == y).ravel()
    share, mean = sklearn_calibration.calibration_curve(right, sure, n_bins=15)
    rows = np.bincount(np.clip(np.searchsorted(np.linspace(0, 1, 16)[1:-1], sure), 0, 14), minlength=15)
    return float((rows[rows > 0] * np.abs(share - mean)).sum() / len(sure))


def perplexity(z: np.ndarray, y: np.ndarray) -> float:
    if y.ndim == 1:
        return math.exp(by_sklearn.log_loss(y, softmax(z, -1), labels=range(z.shape[-1])))
    rows = [
        -np.log(softmax(z[i][y[i] >= 0], -1)[range((y[i] >= 0).sum()), y[i][y[i] >= 0]]).mean() for i in range(len(y))
    ]
    return float(np.exp(np.mean(rows)))


def recall(k: int) -> Any:
    def of(z: np.ndarray, y: np.ndarray) -> float:
        best = np.argsort(-z, axis=1)[:, :k]
        picked = np.zeros_like(y, dtype=int)
        np.put_along_axis(picked, best, 1, axis=1)
        return float(by_sklearn.recall_score(y.astype(int), picked, average="samples", zero_division=0.0))

    return of


EXPECTED: dict[str, Any] = {
    "accuracy": lambda z, y: by_sklearn.accuracy_score(y, said(z, y)),
    "balanced_accuracy": lambda z, y: by_sklearn.balanced_accuracy_score(y, said(z, y)),
    "f1_macro": lambda z, y: by_sklearn.f1_score(y, said(z, y), average="macro", zero_division=math.nan),
    "f1_binary": lambda z, y: by_sklearn.f1_score(y, said(z, y), zero_division=math.nan),
    "auroc": lambda z, y: mean_or_nan(
        [by_sklearn.roc_auc_score(t, p) for t, p in one_against_rest(z, y) if 0 < t.sum() < len(t)]
    ),
    "average_precision": lambda z, y: mean_or_nan(
        [by_sklearn.average_precision_score(t, p) for t, p in one_against_rest(z, y) if t.any()]
    ),
    "brier": lambda z, y: (
        by_sklearn.brier_score_loss(y, chances(z, y)[:, 1], labels=[0, 1])
        if z.shape[1] == 2
        else by_sklearn.brier_score_loss(y, chances(z, y), labels=range(z.shape[1]))
    ),
    "calibration_error": calibration,
    "mae": lambda z, y: by_sklearn.mean_absolute_error(y, z[:, 0]),
    "rmse": lambda z, y: by_sklearn.root_mean_squared_error(y, z[:, 0]),
    "r2": lambda z, y: math.nan if len(y) < 2 or np.ptp(y) == 0 else by_sklearn.r2_score(y, z[:, 0]),
    "perplexity": perplexity,
    "top3": lambda z, y: by_sklearn.top_k_accuracy_score(y, z, k=3, labels=range(z.shape[1])),
    "top5": lambda z, y: by_sklearn.top_k_accuracy_score(y, z, k=5, labels=range(z.shape[1])),
    "recall_at_1": recall(1),
    "recall_at_5": recall(5),
    "recall_at_10": recall(10),
    "own_r2": lambda z, y: math.nan if len(y) < 2 or np.ptp(y) == 0 else by_sklearn.r2_score(y, z[:, 0]),
    "own_error": lambda z, y: by_sklearn.mean_absolute_error(y, z[:, 0]),
    "own_kappa": lambda z, y: math.nan if len(set(y.tolist())) < 2 else by_sklearn.cohen_kappa_score(y, z.argmax(1)),
}
BY_KIND = {
    "classes": (
        *("accuracy", "balanced_accuracy", "f1_macro", "auroc", "average_precision", "brier", "calibration_error"),
        *("perplexity", "top3", "top5", "own_kappa"),
    ),
    "two": (
        "accuracy",
        "balanced_accuracy",
        "f1_macro",
        "f1_binary",
        "auroc",
        "average_precision",
        "brier",
        "own_kappa",
    ),
    "labels": (
        "f1_macro",
        "auroc",
        "average_precision",
        "calibration_error",
        "recall_at_1",
        "recall_at_5",
        "recall_at_10",
    ),
    "numbers": ("mae", "rmse", "r2", "own_r2", "own_error"),
    "tokens": ("perplexity",),
}


def test_every_metric_is_among_those_that_are_compared() -> None:
    compared = {name for names in BY_KIND.values() for name in names}
    assert set(METRICS) - compared == {"top10"}  # like top3 and top5; there are not that many classes here


@cache
def measured(kind: str, way: str) -> ft.Result:
    wanted = [OWN.get(name) or name for name in BY_KIND[kind]]
    return ft.run(**{**problem(kind), "rounds": 1}, **WAYS[way], metrics=wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", BY_KIND)
def test_equal_to_scikit_learn_on_the_same_rows_client_by_client(kind: str) -> None:
    check_against_scikit_learn(measured(kind, "serial"), BY_KIND[kind])


CASES = [(kind, way) for kind in BY_KIND for way in WAYS if way != "serial"]
EVERY_TIME = [(kind, "vectorised") for kind in BY_KIND] + [("classes", "blocks of three"), ("two", "processes")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", slow_but(EVERY_TIME, CASES, "every kind and every way run every time in other pairs"))
def test_the_same_numbers_however_clients_run(case: tuple[str, str]) -> None:
    kind, way = case
    one, other = (measured(kind, how).history[-1].test for how in ("serial", way))
    assert one is not None and other is not None
    for name, users in one.groups().items():
        theirs = other.groups()[name]
        assert users.clients.tolist() == theirs.clients.tolist()
        for metric, values in users.values.items():
            assert theirs.values[metric] == pytest.approx(values, abs=1e-9, nan_ok=True), (name, metric)


def check_against_scikit_learn(result: ft.Result, names: tuple[str, ...]) -> None:
    network, data = result.experiment.federation.problem.network, result.experiment.federation.problem.data
    scores = result.history[-1].test
    assert scores is not None and scores.metric == names[0]
    for users in (scores.existing_before, scores.new_before):
        for place, client in enumerate(users.clients.tolist()):
            rows = data.client(client, "train", torch.float64)
            outputs, targets = network.forward(result.params, rows).numpy(), rows["y"].numpy()
            for name in names:
                expected = float(EXPECTED[name](outputs, targets))
                assert users.values[name][place] == pytest.approx(expected, abs=1e-9, nan_ok=True), (name, client)


def test_a_metric_of_your_own_is_not_run_with_padding_rows() -> None:
    """Hand-worked in the issue: R squared of a padded batch is another number. Here every call is checked."""
    seen: list[int] = []

    def watched(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(len(targets))
        assert outputs.shape[0] == targets.shape[0]
        return (outputs.argmax(1) == targets).double()

    metric = ft.Metric(watched, higher_is_better=True)
    result = ft.run(**problem("classes"), backend="vectorised", metrics=[metric])
    assert set(seen) == set(SIZES)
    for users in result.scores.groups().values():
        assert users.values["watched"] == pytest.approx(users.values["accuracy"], abs=1e-12)


# ------------------------------------------------------------------ direction


def scored(metric: str, values: list[float], lower: frozenset[str]) -> Scores:
    users = UserScores(np.arange(len(values)), np.ones(len(values), int), {metric: np.array(values)}, lower=lower)
    return Scores("validation", users, users, metric=metric)


def test_bottom_decile_is_of_the_users_served_worst() -> None:
    """Of twenty errors 0 ... 19 the bottom decile is 17 and the worst 19; of twenty scores it is 2 and 0."""
    errors = scored("mine", list(map(float, range(20))), frozenset({"mine"}))
    assert errors.existing_after.summary("mine")["bottom_decile"] == 17
    assert errors.existing_after.summary("mine")["worst"] == 19
    higher = scored("mine", list(map(float, range(20))), frozenset())
    assert higher.existing_after.summary("mine")["bottom_decile"] == 2
    assert errors.quality() == -9.5 and higher.quality() == 9.5
    interpolated = UserScores(np.arange(11), np.ones(11, int), {"loss": np.arange(11.0)}, interpolated=True)
    assert interpolated.summary("loss")["bottom_decile"] == pytest.approx(9.0)


def drifting(higher: bool) -> ft.Metric:
    return ft.Metric(lambda outputs, targets: (outputs[:, 0] - targets).abs(), higher_is_better=higher, name="drift")


@pytest.mark.parametrize("higher", [False, True])
def test_validation_selects_the_best_round_by_the_metrics_direction(higher: bool) -> None:
    given = problem("numbers")
    given["data"] = ft.data.FederatedData.from_clients(
        [(np.random.default_rng(i).standard_normal((12, 5)), np.arange(12.0)) for i in range(4)],
        validation=0.3,
        test=0.3,
    )
    result = ft.run(**{**given, "rounds": 5}, metrics=[drifting(higher)], evaluation=ft.Evaluation(every=1))
    means = [report.validation.existing_after.summary("drift")["mean"] for report in result.history]
    assert len(set(means)) == 5
    assert means[result.selected.round] == (max(means) if higher else min(means))


def test_a_quality_that_is_nan_never_wins() -> None:
    """A metric that is undefined for everybody in the last rounds leaves the selection as it was."""
    rounds = iter([0.5, 0.7, math.nan, 0.6] * 100)
    value = [0.0]

    def fading(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return value[0]

    given = problem("classes")
    given["data"] = ft.data.FederatedData.from_clients(
        [(np.random.default_rng(i).standard_normal((9, 5)), np.arange(9) % 7) for i in range(3)],
        validation=0.3,
        test=0.3,
    )
    metric = ft.Metric(fading, higher_is_better=True, per="client")
    steps = ft.train(**{**given, "rounds": 4}, metric=metric, evaluation=ft.Evaluation(every=1))
    selected = []
    for _ in range(4):
        value[0] = next(rounds)
        selected.append(next(steps).test is not None)
    assert selected == [True, True, False, False]


def test_the_direction_is_stored_and_known_to_comparison_and_report() -> None:
    results = [
        ft.run(**{**problem("numbers"), "algorithm": a.fedavg(lr=lr, steps=2)}, metric=drifting(False))
        for lr in (0.2, 0.01)
    ]
    report = results[0].history[-1]
    again = from_json(to_json(report))
    assert again.test.lower_is_better and again.test.summary() == report.test.summary()
    comparison = compare_runs([ft.Run.of(result, label) for result, label in zip(results, ("a", "b"), strict=True)])
    gap = comparison.lines[1].differences["existing_after"]["mean"]
    assert comparison.lower_is_better
    assert (gap.ahead > 0.5) == (gap.seeds.value < 0)
    page = payload([ft.Run.of(result) for result in results], "t")
    assert "drift" in page["lower"] and "drift" not in page["shares"]
    users = page["runs"][0]["users"]["existing"]["after"]["drift"]
    assert users == sorted(users, reverse=True)  # from worst to best
    assert "lower is better" in str(results[0].table())


# ------------------------------------------------------------------ undefined


def test_users_for_whom_a_metric_is_undefined_are_left_out_counted_and_shown(tmp_path: Path) -> None:
    """The client with one class and the one with one row have no AUROC: two of six existing users at the most."""
    result = ft.run(**problem("two"), metric="auroc", out=tmp_path / "run")
    users = result.scores.existing_after
    values = users.values["auroc"]
    assert users.undefined("auroc") == int(np.isnan(values).sum()) > 0
    summary = users.summary("auroc")
    assert summary["mean"] == pytest.approx(np.nanmean(values)) and summary["undefined"] == np.isnan(values).sum()
    assert "undefined" in str(result.table()) and "undefined" in result.table()._repr_html_()
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stored["scores"]["existing_after"]["auroc"]["undefined"] == summary["undefined"]
    assert stored["metric"] == "auroc" and "selected by auroc (higher is better)" in stored["task"]
    assert "auroc is undefined for some users" in (tmp_path / "run" / "report.html").read_text()
    notes = compare_runs([ft.Run.of(result, "a")]).notes
    assert any("auroc is undefined" in note for note in notes)


def test_a_metric_that_is_undefined_for_everybody_is_not_blamed_on_the_rate() -> None:
    never = ft.Metric(lambda outputs, targets: math.nan, higher_is_better=True, per="client", name="never")
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((9, 5)), rng.integers(0, 4, 9)) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(rows, validation=0.3, test=0.3)
    settings = {**problem("classes"), "data": data}
    notes = ft.run(**settings, metric=never).notes
    assert any("never is undefined for every user's validation rows" in note and "metric=" in note for note in notes)
    assert not any("smaller rate" in note for note in notes)
    high = ft.Metric(lambda outputs, targets: math.inf, higher_is_better=False, per="client", name="high")
    assert any("smaller rate" in note for note in ft.run(**settings, metric=high).notes)


def test_a_model_that_diverged_is_not_left_out() -> None:
    metric = METRICS["auroc"]
    broken = torch.full((4, 2), math.nan)
    assert metric.of_client(broken, torch.tensor([0, 1, 0, 1])) == -math.inf
    assert METRICS["rmse"].of_client(broken[:, 0], torch.arange(4.0)) == math.inf


# ------------------------------------------------------------------ how it is said


def test_metrics_are_named_in_experiment_files() -> None:
    from fedtempo.config import parse, settings_of

    base = {
        "rounds": 1,
        "data": {"name": "digits", "split": {"name": "dirichlet", "clients": 5, "alpha": 1.0}, "min_samples": 3},
        "model": {"name": "mlp", "inputs": 64, "hidden": [8], "outputs": 10},
        "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 1},
    }
    loss = {"name": "classification", "class_weights": [1.0] * 9 + [5.0], "label_smoothing": 0.1}
    result = ft.run(**settings_of(parse({**base, "metrics": ["f1_macro"], "metric": "brier", "loss": loss})))
    assert result.scores.metric == "brier" and result.scores.lower_is_better
    assert list(result.scores.existing_after.values) == ["loss", "f1_macro", "brier", "accuracy", "top5"]
    with pytest.raises(ft.ConfigError, match="Did you mean 'auroc'"):
        parse({**base, "metric": "aurok"})
    with pytest.raises(ft.ConfigError, match=r"metrics\[0\]"):
        parse({**base, "metrics": ["rsme"]})
    with pytest.raises(ft.ConfigError, match=r"loss\.label_smoothing"):
        parse({**base, "loss": {**loss, "label_smoothing": "much"}})


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([own_r2], "a bare function does not say which way is better"),
        (["acuracy"], "Did you mean 'accuracy'"),
        (["top10"], "more than 10 classes"),
        (["r2"], "outputs of the targets"),
        (["recall_at_5"], "rows of more than 5 labels"),
        ([top(2), top(2)], "different names"),
        ([ft.Metric(lambda o, t: o, higher_is_better=True, name="wide")], "must return one number per row"),
        (
            [ft.Metric(lambda o, t: {"a": 1.0}, higher_is_better=True, per="client", name="both")],
            r"metric 'both' must return one number\. Got \{'a': 1\.0\}: make a Metric for each number",
        ),
        ([ft.Metric(lambda o, t: None, higher_is_better=True, per="client", name="none")], "one number. Got None"),
        ([ft.Metric(lambda o, t: 1 / 0, higher_is_better=True, per="client", name="broken")], "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_a_metric_here_is_refused_in_one_line(metrics: list[Any], message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message) as error:
        ft.run(**problem("classes"), metrics=metrics)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["accuracy", "auroc", "brier", "f1_binary", "calibration_error", "average_precision"])
def test_a_metric_of_labels_is_refused_for_numbers(name: str) -> None:
    """Their shapes are those of one yes or no a row, so it was computed: an accuracy of 0, an AUROC of the signs."""
    rng = np.random.default_rng(0)
    rows = [(x := rng.standard_normal((9, 6)), x.sum(1)) for _ in range(3)]
    settings = {"model": ft.models.mlp(6, [4], 1), "algorithm": ft.algorithms.fedavg(lr=0.1, steps=1), "rounds": 1}
    words = f"metric '{name}' must have targets that are classes or labels. Got numbers such as "
    with pytest.raises(ft.ConfigError) as error:
        ft.run(**settings, data=ft.data.FederatedData.from_clients(rows), metrics=[name])
    assert words in str(error.value)
    # Zeros and ones are labels in whichever type they come.
    signs = [(x, (y > 0).astype(float)) for x, y in rows]
    ft.run(**settings, data=ft.data.FederatedData.from_clients(signs), metrics=[name], loss="multilabel")


def test_a_metric_must_say_its_direction_and_have_a_name() -> None:
    with pytest.raises(TypeError):
        ft.Metric(own_r2)  # type: ignore[call-arg]
    with pytest.raises(ft.ConfigError, match="name"):
        ft.Metric(lambda o, t: o, higher_is_better=True)
    with pytest.raises(ft.ConfigError, match="average"):
        f1("micro")  # type: ignore[arg-type]


def test_metrics_that_are_always_the_same_are_left_out() -> None:
    """Recall at 5 of three labels, and top-5 of four classes, are 1 whatever the model says."""
    rng = np.random.default_rng(0)
    labels = [(rng.standard_normal((8, 5)), rng.random((8, 3)) < 0.5) for _ in range(3)]
    settings = {"algorithm": a.fedavg(lr=0.1, steps=1), "rounds": 1}
    data = ft.data.FederatedData.from_clients(labels)
    three = ft.run(model=ft.models.softmax_regression(5, 3), data=data, **settings)
    assert list(three.scores.existing_after.values) == ["loss", "recall_at_1"]
    classes = [(rng.standard_normal((8, 5)), rng.integers(0, 4, 8)) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(classes)
    four = ft.run(model=ft.models.softmax_regression(5, 4), data=data, **settings)
    assert list(four.scores.existing_after.values) == ["loss", "accuracy"]


@pytest.mark.slow("new actors load torch, for seconds; scores on Ray are those of serial in test_ray_actors every time")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_so_it_is_on_ray(kind: str) -> None:
    pytest.importorskip("ray")
    wanted = [OWN.get(name) or name for name in BY_KIND[kind]]
    settings = {"backend": "ray", "workers": 1, "ray_address": "local"}
    check_against_scikit_learn(ft.run(**problem(kind), **settings, metrics=wanted), BY_KIND[kind])


def test_ranks_are_those_of_logits_where_probabilities_are_one_to_the_last_digit() -> None:
    outputs, targets = torch.tensor([40.0, 50.0, 45.0]), torch.tensor([0, 1, 0])
    two = torch.stack([torch.zeros(3), outputs], 1)
    three = torch.stack([torch.full((3,), -9.0), torch.zeros(3), outputs], 1)
    for name in ("auroc", "average_precision"):
        assert ft.metrics.METRICS[name].of_client(outputs, targets) == 1.0
        assert ft.metrics.METRICS[name].of_client(two, targets) == 1.0
    assert ft.metrics.METRICS["auroc"].of_client(three, targets * 2) == 1.0


@pytest.mark.parametrize("name", ["mae", "rmse", "r2"])
def test_numbers_in_another_layout_are_refused(name: str) -> None:
    metric, targets = ft.metrics.METRICS[name], torch.arange(12.0).reshape(2, 3, 2)
    assert metric.fits is not None
    assert metric.fits(torch.Size([2, 2, 3]), targets.shape) == "outputs of the targets' shape"
    with pytest.raises(ft.ModelError, match=r"Got outputs \(2, 2, 3\), targets \(2, 3, 2\)"):
        metric.of_client(targets.reshape(2, 2, 3), targets)
    assert not metric.fits(torch.Size([4, 1]), torch.Size([4])) and not metric.fits(torch.Size([4]), torch.Size([4, 1]))
