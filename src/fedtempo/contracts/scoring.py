"""What every metric and every loss must keep: the same numbers however clients run, and none from padding.

>>> from fedtempo.metrics import METRICS
>>> check_metric(METRICS["balanced_accuracy"])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedtempo.algorithms.fedavg import fedavg
from fedtempo.contracts.algorithms import ContractError, distance, require_kept
from fedtempo.data.federated import FederatedData
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.metrics import Metric, as_metric
from fedtempo.models.mlp import mlp
from fedtempo.tasks import PerSample, Task, mean_loss
from fedtempo.training.checks.scoring import UnrepeatableError
from fedtempo.training.result import Result
from fedtempo.training.run import run

CLOSE = 1e-9
"""Scores of the same outputs, computed in another order."""
SIZES = (7, 12, 5, 16, 9, 10)
CLASSES = 3
WAYS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "vectorised": {"backend": "vectorised"},
    "in processes": {"backend": "vectorised", "workers": 2, "block": 2},
}
Kind = Literal["classes", "labels", "numbers"]


def check_metric(metric: str | Metric, kind: Kind | None = None, **settings: Any) -> None:
    """Raise `ContractError` unless the metric is right for every user, on every backend.

    It is tried on small data of its kind, by default the first that it takes: class numbers, rows of labels or
    numbers. `settings` replace those of the small run, such as `model=` and `data=` of your own.
    """
    given = as_metric(metric)
    if kind is None and "data" not in settings:
        kind = _kind(given)
    seen: list[Tensor] = []
    watched = replace(given, fn=_watched(given, seen), vectorised=False, name=given.name)
    problem = {**_problem(kind or "classes"), **settings}
    with _repeating(given):
        results = {way: run(**problem, **how, metrics=[given], metric=given) for way, how in WAYS.items()}
    first, *others = results.values()
    for way, other in zip(list(WAYS)[1:], others, strict=True):
        _check_same(given, first, other, way)
    again = run(**problem, **WAYS["serial"], metrics=[given], metric=given)
    require_kept(_values(first, given) == _values(again, given), given, "is the same when it is computed again")
    run(**problem, **WAYS["vectorised"], metrics=[watched], metric=watched)
    _check_rows(given, first, seen)
    _check_selection(given, first)
    if "data" not in settings:
        _check_direction(given, kind or "classes")


@contextmanager
def _repeating(what: object) -> Iterator[None]:
    """A run refuses what does not repeat before it starts; here that is a broken promise."""
    try:
        yield
    except UnrepeatableError as error:
        raise ContractError(f"{what!r} must keep its promise: it is the same when it is computed again.") from error


def check_loss(loss: str | Task | PerSample, kind: Kind = "classes", **settings: Any) -> None:
    """Raise `ContractError` unless training on the loss gives the same model on every backend, and padding none of it.

    `kind` says what it is tried on: class numbers, rows of labels, or numbers. `settings` replace those of the small
    run, such as `model=` and `data=` of your own.
    """
    problem: dict[str, Any] = {**_problem(kind), **settings}
    with _repeating(loss):
        results = {way: run(**problem, **how, loss=loss) for way, how in WAYS.items()}
    first, *others = results.values()
    name = first.experiment.federation.problem.task.name
    for way, other in zip(list(WAYS)[1:], others, strict=True):
        gap = distance(first, other)
        require_kept(gap <= CLOSE, name, f"trains the same model {way} as serially (differs by {gap:.1e})")
    again = run(**problem, **WAYS["serial"], loss=loss)
    require_kept(again.digest() == first.digest(), name, "gives the same bits for the same seed")
    lengths: set[int] = set()
    task = first.experiment.federation.problem.task
    if not task.rows_apart:
        run(**problem, **WAYS["vectorised"], loss=replace(task, losses=_counted(task.losses, lengths)))
        allowed = _lengths(first)
        strange = sorted(lengths - allowed)
        require_kept(not strange, name, f"sees batches of its clients' own rows (saw {strange}, not {sorted(allowed)})")
    _check_descent(name, first)
    _check_scored_loss(name, first)


# ---------------------------------------------------------------------- what is tried


def _kind(metric: Metric) -> Kind:
    """The first kind of data that the metric takes."""
    shapes: dict[Kind, tuple[torch.Size, torch.Size]] = {
        "classes": (torch.Size([4, CLASSES]), torch.Size([4])),
        "labels": (torch.Size([4, 12]), torch.Size([4, 12])),
        "numbers": (torch.Size([4, 1]), torch.Size([4])),
    }
    for kind, (outputs, targets) in shapes.items():
        if metric.fits is None:
            with suppress(Exception):  # it may be for another kind of data
                metric.of_client(*_predictions(kind, good=True))
                return kind
        elif not metric.fits(outputs, targets):
            return kind
    raise ContractError(f"{metric!r} must fit class numbers, rows of labels or numbers; else give model= and data=.")


def _problem(kind: Kind) -> dict[str, Any]:
    """A small run on which every client has other rows, and some two equally many."""
    rng = np.random.default_rng(0)
    outputs = {"classes": CLASSES, "labels": 12, "numbers": 1}[kind]
    clients = []
    for n in SIZES:
        x = rng.standard_normal((n, 6))
        towards = x[:, :3] @ np.array([[1.0, -0.5, 0.2], [0.3, 1.0, -1.0], [-0.8, 0.1, 1.0]])
        y = towards.argmax(1) if kind == "classes" else towards[:, 0] + 0.1 * rng.standard_normal(n)
        clients.append((x, rng.random((n, outputs)) < 0.3 if kind == "labels" else y))
    return {
        "model": mlp(6, [5], outputs),
        "data": FederatedData.from_clients(clients, validation=0.4),
        "algorithm": fedavg(lr=0.3, steps=3),
        "rounds": 4,
        "batch_size": 4,
        "seed": 7,
        "dtype": torch.float64,
        "evaluation": Evaluation(every=1),
        "progress": False,
    }


def _predictions(kind: Kind, good: bool) -> tuple[Tensor, Tensor]:
    """Outputs that are nearly right, or wrong, and their targets."""
    draw = torch.Generator().manual_seed(0)
    noise = torch.rand(40, 12, generator=draw, dtype=torch.float64)
    if kind == "numbers":
        targets = 3 * noise[:, 0]
        return (targets + 0.01 * noise[:, 1] if good else 3 - targets).unsqueeze(1), targets
    if kind == "labels":
        labels = noise < 0.3
        return (4.0 if good else -4.0) * (2 * labels.double() - 1) + 0.1 * noise.flip(0), labels
    targets = torch.arange(40) % CLASSES
    said = targets if good else (targets + 1) % CLASSES
    return 4.0 * torch.nn.functional.one_hot(said, CLASSES).double() + 0.1 * noise[:, :CLASSES], targets


# ---------------------------------------------------------------------- what must hold


def _values(result: Result, metric: Metric) -> dict[str, list[str]]:
    """Every user's score in every round; as text, since NaN equals nothing."""
    found = {}
    for report in result.history:
        for group, users in report.scores.groups().items() if report.scores else ():
            found[f"{report.round} {group}"] = [repr(value) for value in users.values[metric.name].tolist()]
    return found


def _check_same(metric: Metric, first: Result, other: Result, way: str) -> None:
    for mine, theirs in zip(first.history, other.history, strict=True):
        for group, users in mine.scores.groups().items() if mine.scores else ():
            ours, others = users.values[metric.name], theirs.scores.groups()[group].values[metric.name]  # type: ignore[union-attr]
            same = np.allclose(ours, others, rtol=CLOSE, atol=CLOSE, equal_nan=True)
            gap = float(np.nanmax(np.abs(ours - others), initial=0.0))
            require_kept(same, metric, f"is the same {way} as serially (differs by {gap:.1e} in round {mine.round})")


def _watched(metric: Metric, seen: list[Tensor]) -> Any:
    def fn(outputs: Tensor, targets: Tensor) -> Any:
        seen.append(targets.clone())
        return metric.fn(outputs, targets)

    return fn


def _check_rows(metric: Metric, result: Result, seen: list[Tensor]) -> None:
    """Every call had the targets of one client, all of them, and nothing else."""
    data = result.experiment.federation.problem.data
    known = [data.client(c, p, torch.float64)["y"] for c in range(len(data)) for p in ("train", "validation", "test")]
    strange = [one for one in seen if not any(torch.equal(one, rows) for rows in known)]
    require_kept(bool(seen) and not strange, metric, "sees exactly one client's own rows")


def _check_selection(metric: Metric, result: Result) -> None:
    """Validation selects the round with the best mean."""
    means = [r.validation.existing_after.summary(metric.name)["mean"] for r in result.history if r.validation]
    finite = [mean for mean in means if math.isfinite(mean)]
    if result.selected is None or not finite:
        return
    best = max(finite) if metric.higher_is_better else min(finite)
    require_kept(means[result.selected.round] == best, metric, "selects the round in which it is best")


def _check_direction(metric: Metric, kind: Kind) -> None:
    good, bad = (metric.of_client(*_predictions(kind, good)) for good in (True, False))
    better = good > bad if metric.higher_is_better else good < bad
    way = "higher" if metric.higher_is_better else "lower"
    require_kept(
        better, metric, f"has {way} numbers for right predictions ({good:.3g}) than for wrong ones ({bad:.3g})"
    )


def _counted(loss: PerSample, lengths: set[int]) -> PerSample:
    def counted(outputs: Tensor, targets: Tensor) -> Tensor:
        lengths.add(len(targets))
        return loss(outputs, targets)

    return counted


def _lengths(result: Result) -> set[int]:
    """The lengths of all batches there may be: those of every client's own rows."""
    problem = result.experiment.federation.problem
    batching = problem.batching
    sizes = {int(size) for part in ("train", "validation", "test") for size in problem.data.sizes(part)}
    drawn = {batching.length(n, draw) for n in problem.sizes.tolist() for draw in range(batching.per_epoch(n))}
    return sizes | drawn | {min(4, int(problem.sizes[problem.data.clients[0]])), 2}


def _check_descent(name: str, result: Result) -> None:
    losses = [report.loss for report in result.history]
    require_kept(all(map(math.isfinite, losses)), name, f"is finite in every round (was {losses})")
    require_kept(len(set(losses)) > 1, name, "changes as the model is trained on it")


def _check_scored_loss(name: str, result: Result) -> None:
    """The reported loss of a user is the loss of exactly that user's rows."""
    problem, scores = result.experiment.federation.problem, result.scores
    if scores is None or result.experiment.federation.personal_names:
        return
    users = scores.existing_before
    for client, reported in zip(users.clients.tolist(), users.values["loss"].tolist(), strict=True):
        rows = problem.client_rows(client, scores.part)
        if not len(rows["y"]):
            continue
        expected = float(mean_loss(problem.task, problem.network.forward(result.model_params, rows), rows))
        same = math.isclose(expected, reported, rel_tol=1e-6, abs_tol=1e-9)
        require_kept(same, name, f"is reported as it is ({expected:.6g} for client {client}, not {reported:.6g})")
