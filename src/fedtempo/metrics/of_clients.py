"""Metrics that are one number of all rows of a client, by scikit-learn where it has them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedtempo.errors import is_count, require
from fedtempo.metrics.metric import SHARE, Fits, Metric
from fedtempo.metrics.outputs import (
    counted_tokens,
    has_classes,
    like_targets,
    of_labels,
    of_numbers,
    of_one_label,
    of_yes_or_no,
    predicted,
    probabilities,
)
from fedtempo.support.extras import library


@contextmanager
def _scikit_learn() -> Iterator[Any]:
    """Its metrics, silent: what is undefined is returned as NaN here, not warned of."""
    found = library("sklearn.metrics", "metrics", "this metric")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield found


def _per_client(
    fn: Callable[[Tensor, Tensor], float],
    higher: bool,
    name: str,
    fits: Fits,
    bounds: tuple[float, float] = SHARE,
) -> Metric:
    """The metric of what counts among a client's rows; undefined where nothing does."""

    def score(outputs: Tensor, targets: Tensor) -> float:
        outputs, targets = counted_tokens(outputs, targets)
        return fn(outputs, targets) if len(targets) else math.nan

    return Metric(score, higher_is_better=higher, per="client", name=name, fits=fits, bounds=bounds)


def _balanced_accuracy(outputs: Tensor, targets: Tensor) -> float:
    with _scikit_learn() as metrics:
        return float(metrics.balanced_accuracy_score(targets.numpy(), predicted(outputs, targets).numpy()))


def f1(average: Literal["macro", "binary"] = "macro") -> Metric:
    """F1 of a client: the mean over the classes that occur, or that of class 1; undefined where nothing is positive."""
    require(average in ("macro", "binary"), "average", "'macro' or 'binary'", average)

    def score(outputs: Tensor, targets: Tensor) -> float:
        found = predicted(outputs, targets).numpy()
        with _scikit_learn() as metrics:
            return float(metrics.f1_score(targets.numpy(), found, average=average, zero_division=math.nan))

    fits = of_labels if average == "macro" else of_yes_or_no
    return _per_client(score, True, f"f1_{average}", fits)


def _columns(outputs: Tensor, targets: Tensor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each class or label against the rest: (whether it is the row's, its log-odds).

    They rank rows as probabilities do, and still do where probabilities are 1 to the last digit.
    """
    found = outputs.double()
    if has_classes(outputs.shape, targets.shape):
        classes = [1] if outputs.shape[-1] == 2 else range(outputs.shape[-1])
        odds = _log_odds(found)
        yield from ((targets.eq(c).numpy(), odds[:, c].numpy()) for c in classes)
    else:
        labels = (targets > 0).reshape(len(targets), -1).numpy()
        yield from zip(labels.T, found.reshape(len(targets), -1).numpy().T, strict=True)


def _log_odds(outputs: Tensor) -> Tensor:
    """log p_c - log (1 - p_c) of each class, from logits: what is before and what is behind it, added up once."""
    nothing = outputs.new_full((len(outputs), 1), -math.inf)
    before = torch.cat([nothing, outputs[:, :-1].logcumsumexp(1)], dim=1)
    behind = torch.cat([outputs[:, 1:].flip(1).logcumsumexp(1).flip(1), nothing], dim=1)
    return outputs - torch.logaddexp(before, behind)


def _hits(own: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Above each distinct score, the highest first: how many rows of the class, and how many rows in all."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    return np.append(0, np.cumsum(own[order])[last]), np.append(0, last + 1)


def _area(own: np.ndarray, scores: np.ndarray) -> float:
    """The area under the curve of hits against false alarms, by trapezoids."""
    hits, rows = _hits(own, scores)
    alarms = rows - hits
    return float(np.sum(np.diff(alarms) * (hits[1:] + hits[:-1])) / (2 * hits[-1] * alarms[-1]))


def _precision(own: np.ndarray, scores: np.ndarray) -> float:
    """The sum over scores of the gain in recall times the precision there."""
    hits, rows = _hits(own, scores)
    return float(np.sum(np.diff(hits) * hits[1:] / rows[1:]) / hits[-1])


def _auroc(outputs: Tensor, targets: Tensor) -> float:
    """The mean over classes that some of the client's rows are of and others are not; two classes count once."""
    found = [_area(y, p) for y, p in _columns(outputs, targets) if y.any() and not y.all()]
    return float(np.mean(found)) if found else math.nan


def _average_precision(outputs: Tensor, targets: Tensor) -> float:
    """The mean over classes that the client has rows of; for two classes, of class 1."""
    found = [_precision(y, p) for y, p in _columns(outputs, targets) if y.any()]
    return float(np.mean(found)) if found else math.nan


def calibration_error(bins: int = 15) -> Metric:
    """sum_b |rows in b| / n * |accuracy of b - confidence of b| over equal bins b of the confidence: ECE.

    Guo et al. (2017). Of several labels or one logit, the confidence is that of the answer given.

    >>> sure = torch.tensor([[100.0, 0.0], [100.0, 0.0]])  # certain twice, right once
    >>> calibration_error().of_client(sure, torch.tensor([0, 1]))
    0.5
    """
    require(is_count(bins), "bins", "an int >= 1", bins)

    def score(outputs: Tensor, targets: Tensor) -> float:
        chances = probabilities(outputs, targets)
        correct = (predicted(outputs, targets) == targets).reshape(-1).numpy()
        single = not has_classes(outputs.shape, targets.shape)
        sure = (torch.maximum(chances, 1 - chances) if single else chances.amax(-1)).reshape(-1).numpy()
        # Bins are closed above, (0, 1/bins] first, as in the paper.
        place = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
        gaps = np.bincount(place, weights=correct - sure, minlength=bins)
        return float(np.abs(gaps).sum() / len(sure))

    return _per_client(score, False, "calibration_error", of_labels)


def _rmse(outputs: Tensor, targets: Tensor) -> float:
    found = like_targets(outputs, targets).double()
    if not bool(found.isfinite().all()):
        return math.inf
    with _scikit_learn() as metrics:
        return float(metrics.root_mean_squared_error(_table(targets), _table(found)))


def _r2(outputs: Tensor, targets: Tensor) -> float:
    """1 - sum (y - f)^2 / sum (y - mean y)^2; undefined for one row, and where all targets are equal."""
    found = like_targets(outputs, targets).double()
    if not bool(found.isfinite().all()):
        return -math.inf
    if len(targets) < 2:
        return math.nan
    with _scikit_learn() as metrics:
        value = float(metrics.r2_score(_table(targets), _table(found), force_finite=False))
    return value if math.isfinite(value) else math.nan


def _table(values: Tensor) -> np.ndarray:
    return values.double().reshape(len(values), -1).numpy()


balanced_accuracy = _per_client(_balanced_accuracy, True, "balanced_accuracy", of_one_label)
auroc = _per_client(_auroc, True, "auroc", of_labels)
average_precision = _per_client(_average_precision, True, "average_precision", of_labels)
rmse = _per_client(_rmse, False, "rmse", of_numbers, (0, math.inf))
r2 = _per_client(_r2, True, "r2", of_numbers, (-math.inf, 1))
