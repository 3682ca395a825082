"""Tasks: what a model's output means. A loss, what each row counts in it, and the metrics that evaluation reports."""

from __future__ import annotations

from fedtempo.metrics import IGNORED
from fedtempo.tasks.batch_loss import SHARE, hide_padded_outputs, mean_loss, row_counts, weighed
from fedtempo.tasks.choice import LOSSES, as_task
from fedtempo.tasks.known import (
    TASKS,
    classification,
    direct,
    is_known,
    language,
    multilabel,
    next_token,
    next_tokens,
    regression,
    scored_on_next_tokens,
)
from fedtempo.tasks.task import (
    SAMPLE_WEIGHT,
    Batch,
    Meaning,
    PerSample,
    Task,
    meaning_of,
    with_fitting_metrics,
    with_metrics,
)

__all__ = [
    "Batch",
    "IGNORED",
    "LOSSES",
    "Meaning",
    "PerSample",
    "SAMPLE_WEIGHT",
    "SHARE",
    "TASKS",
    "Task",
    "as_task",
    "classification",
    "direct",
    "hide_padded_outputs",
    "is_known",
    "language",
    "mean_loss",
    "meaning_of",
    "multilabel",
    "next_token",
    "next_tokens",
    "regression",
    "row_counts",
    "scored_on_next_tokens",
    "weighed",
    "with_fitting_metrics",
    "with_metrics",
]
