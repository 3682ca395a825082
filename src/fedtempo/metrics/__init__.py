"""Metrics: how well a user is served. Each says which way is better, and whether it is a mean over rows.

A metric sees the outputs and the targets of one user's own rows, never a row that only pads a batch. Outputs are what
the model returns: logits of classes along the last dimension, one logit for a yes or no, or numbers.
"""

from __future__ import annotations

from fedtempo.errors import ConfigError, unknown
from fedtempo.metrics.metric import Metric
from fedtempo.metrics.of_clients import auroc, average_precision, balanced_accuracy, calibration_error, f1, r2, rmse
from fedtempo.metrics.outputs import IGNORED, cross_entropy, has_classes, of_numbers
from fedtempo.metrics.over_rows import accuracy, brier, mae, perplexity, recall_at, top

__all__ = [
    "IGNORED",
    "LOWER_IS_BETTER",
    "METRICS",
    "Metric",
    "accuracy",
    "as_metric",
    "auroc",
    "average_precision",
    "balanced_accuracy",
    "brier",
    "calibration_error",
    "cross_entropy",
    "f1",
    "has_classes",
    "mae",
    "needs_labels",
    "perplexity",
    "r2",
    "recall_at",
    "rmse",
    "top",
]

_KNOWN = (
    *(accuracy, balanced_accuracy, top(3), top(5), top(10), f1("macro"), f1("binary"), auroc, average_precision),
    *(brier, calibration_error(), perplexity, mae, rmse, r2, recall_at(1), recall_at(5), recall_at(10)),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _KNOWN}
"""Every metric that experiment files know by name; your own may be added."""
LOWER_IS_BETTER = frozenset({"loss", *(name for name, metric in METRICS.items() if not metric.higher_is_better)})
"""What is better when it is low, among the names the library knows."""


def as_metric(given: str | Metric, field: str = "metric") -> Metric:
    """The metric that a name stands for, or the metric itself."""
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        if given not in METRICS:
            raise unknown(field, given, (*METRICS, "loss"))
        return METRICS[given]
    rule = "a name or ft.Metric(fn, higher_is_better=..., per=...): a bare function does not say which way is better"
    raise ConfigError(f"{field} must be {rule}. Got {getattr(given, '__name__', type(given).__name__)}.")


def needs_labels(metric: Metric) -> bool:
    """Whether it is one of ours for classes or labels; about a user's own metric nothing is known."""
    ours = metric.fits is not None and metric.fits.__module__.startswith(__name__)
    return ours and metric.fits is not of_numbers
