"""A task as a value: a loss, what each row counts in it, and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fedtempo.errors import ConfigError, require
from fedtempo.metrics import Metric, accuracy, as_metric, has_classes, needs_labels

Batch = dict[str, Tensor]
Meaning = Literal["classes", "classes second", "labels", "numbers"]
"""What outputs are: logits of classes in the last or the second dimension, logits of a yes, or numbers."""
PerSample = Callable[[Tensor, Tensor], Tensor]
SAMPLE_WEIGHT = "sample_weight"
"""The column that says what each row counts in the loss. The model is not given it."""


@dataclass(frozen=True)
class Task:
    """A loss, and the metrics that evaluation reports; the first one is the main one.

    `losses` returns one number per row, or one number for the whole batch. A loss of your own never sees a row that
    only pads a batch, whichever it returns.
    """

    name: str
    losses: PerSample
    scores: Mapping[str, Metric] = field(default_factory=dict)
    classes: bool = False
    """Whether the targets are class indices, so that the model's outputs can be checked against them."""
    mean: PerSample | None = None
    """The mean of the losses in one operation, where torch has one."""
    weights: Callable[[Tensor], Tensor] | None = None
    """What each row counts, given its target: the loss of rows is sum(losses) / sum(weights)."""
    rows_apart: bool = False
    """A promise: one number per row, which no other row influences. Then batches may be padded."""
    own: bool = False
    """Whether the model makes its training loss itself, of the targets as `labels`; scores are made as usual."""
    targets: Callable[[Batch], Tensor] | None = None
    """What the loss and the metrics compare outputs with, where that is not the column y itself."""
    least_loss: float = -math.inf
    """No loss is below this: 0 for ours, but for `direct`."""
    main: str = ""
    """The metric that selects a round; by default the first."""
    asked: tuple[str, ...] = ()
    """The metrics that a user asked for: they are never left out silently."""
    reason: str = field(default="given", compare=False)
    """How this task was chosen."""

    def __post_init__(self) -> None:
        for name, metric in self.scores.items():
            as_metric(metric, f"scores[{name!r}]")

    @property
    def metric(self) -> str:
        """The name of the main metric; the loss where a task has none."""
        return self.main or next(iter(self.scores), "loss")

    @property
    def lower_is_better(self) -> frozenset[str]:
        """The names of all that is better when it is low."""
        return frozenset({"loss", *(name for name, metric in self.scores.items() if not metric.higher_is_better)})

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The least and the largest value of the loss and of each metric, in the order of `scores`."""
        return [(self.least_loss, math.inf), *(metric.bounds for metric in self.scores.values())]

    def __str__(self) -> str:
        direction = "lower" if self.metric in self.lower_is_better else "higher"
        others = [name for name in self.scores if name != self.metric]
        also = f"; also {', '.join(others)}" if others else ""
        return f"{self.name} ({self.reason}), selected by {self.metric} ({direction} is better){also}"


def meaning_of(task: Task, outputs: torch.Size, targets: Tensor | None) -> Meaning:
    """What the model's outputs are, by the task, by their shape and by the targets that they are compared with."""
    if task.name == "multilabel" or (targets is not None and targets.dtype == torch.bool):
        return "labels"
    if targets is None or targets.is_floating_point():
        return "numbers"
    if has_classes(outputs, targets.shape):
        return "classes"
    # For tokens and pixels torch has the classes second; a single output is the logit of a yes.
    second = len(outputs) > 2 and outputs[:1] + outputs[2:] == targets.shape
    return "classes second" if second else "labels"


def with_metrics(task: Task, metrics: Sequence[str | Metric] | None, metric: str | Metric | None) -> Task:
    """The task with these metrics before its own; `metric` is the main one, or else the first of them."""
    listed = metrics is None or (isinstance(metrics, Sequence) and not isinstance(metrics, str))
    require(listed, "metrics", "a list of names and ft.Metric", metrics)

    def found(one: str | Metric, field: str) -> Metric:
        """A task's own metric goes before ours of the same name: it may weigh rows as the task does."""
        own = task.scores.get(one) if isinstance(one, str) else None
        return own or as_metric(one, field)

    given = [found(one, f"metrics[{place}]") for place, one in enumerate(metrics or ())]
    main = "loss" if isinstance(metric, str) and metric == "loss" else ""
    if metric is not None and not main:
        chosen = next((one for one in given if one.name == metric), None) or found(metric, "metric")
        given = given if chosen in given else [*given, chosen]
        main = chosen.name
    names = [one.name for one in given]
    require(len(set(names)) == len(names), "metrics", "metrics of different names", names)
    scores = {**{one.name: one for one in given}, **{n: m for n, m in task.scores.items() if n not in names}}
    return replace(task, scores=scores, main=main, asked=tuple(names)) if given or main else task


def with_fitting_metrics(task: Task, outputs: torch.Size, targets: torch.Size, number: float | None = None) -> Task:
    """The task without metrics that say nothing about such outputs; one that was asked for is refused instead.

    `number` is one of the targets where these are numbers, and neither classes nor labels.
    """
    kept: dict[str, Metric] = {}
    for name, metric in task.scores.items():
        rule = _misfit(metric, outputs, targets, number)
        if rule and name in task.asked:
            raise ConfigError(f"metric {name!r} must have {rule}.")
        # One output may be a logit or a probability: we do not guess which for a user's own loss.
        guessed = name not in task.asked and not task.rows_apart and name == accuracy.name
        if not rule and not (guessed and not has_classes(outputs, targets)):
            kept[name] = metric
    if "recall_at_5" in kept and "recall_at_1" not in task.asked:
        kept.pop("recall_at_1", None)
    return task if kept == task.scores else replace(task, scores=kept)


def _misfit(metric: Metric, outputs: torch.Size, targets: torch.Size, number: float | None) -> str:
    """What the metric needs, and what there is instead; empty where it fits."""
    # By its shape a number is like one yes or no: an accuracy of it would be 0, and mean nothing.
    if number is not None and needs_labels(metric):
        return f"targets that are classes or labels. Got numbers such as {number:g}"
    rule = metric.fits(outputs, targets) if metric.fits is not None else ""
    return f"{rule}. Got outputs of shape {tuple(outputs)} for targets of shape {tuple(targets)}" if rule else ""
