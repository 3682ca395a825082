"""Tasks: what a model's output means. One loss per sample, and one score per sample for each metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtempo.errors import ConfigError, unknown

Batch = dict[str, Tensor]
PerSample = Callable[[Tensor, Tensor], Tensor]
IGNORED = -100
"""The target of a token, or of a graph's node, that does not count: torch's own convention."""


@dataclass(frozen=True)
class Task:
    """A loss per sample, and the scores that evaluation reports; the first score is the main one."""

    name: str
    losses: PerSample
    scores: dict[str, PerSample] = field(default_factory=dict)
    classes: bool = False
    """Whether the targets are class indices, so that the model's outputs can be checked against them."""
    per_sample: bool = True
    """False for a user's loss that returns one number per batch; such batches are never padded."""
    mean: PerSample | None = None
    """The mean of the losses in one operation, where torch has one."""
    own: bool = False
    """Whether the model makes its training loss itself, of the targets as `labels`; scores are made as usual."""

    @property
    def metric(self) -> str:
        """The name of the main score; the loss where a task has none."""
        return next(iter(self.scores), "loss")


def _class_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    if _is_one_of_many(outputs, targets):
        return _by_logarithms(outputs, targets)
    return F.cross_entropy(outputs, targets, reduction="none")


def _mean_class_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    if _is_one_of_many(outputs, targets):
        return _by_logarithms(outputs, targets).sum() / (targets != IGNORED).sum()
    return F.cross_entropy(outputs, targets)


def _is_one_of_many(outputs: Tensor, targets: Tensor) -> bool:
    """Whether clients are trained side by side, each on rows of a few classes."""
    transformed: bool = torch._C._functorch.is_functorch_wrapped_tensor(outputs)
    return transformed and outputs.dim() == 2 and not targets.is_floating_point()


def _by_logarithms(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy from its parts: torch's own takes five times as long where there are many rows of few classes."""
    counted = targets != IGNORED
    shifted = outputs - outputs.detach().amax(1, keepdim=True)
    own = shifted.gather(1, torch.where(counted, targets, 0).unsqueeze(1)).squeeze(1)
    return torch.where(counted, shifted.exp().sum(1).log() - own, 0.0)


def _top(k: int) -> PerSample:
    def score(outputs: Tensor, targets: Tensor) -> Tensor:
        if k == 1:
            return (outputs.argmax(-1) == targets).to(torch.float64)
        best = outputs.topk(min(k, outputs.shape[-1]), dim=-1).indices
        return (best == targets.unsqueeze(-1)).any(-1).to(torch.float64)

    return score


def _recall_at_5(outputs: Tensor, targets: Tensor) -> Tensor:
    best = outputs.topk(min(5, outputs.shape[-1]), dim=-1).indices
    hits = targets.gather(-1, best).sum(-1)
    return (hits / targets.sum(-1).clamp(min=1)).to(torch.float64)


def _token_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = F.cross_entropy(outputs.transpose(-1, -2), targets, reduction="none", ignore_index=IGNORED)
    return _over_tokens(losses, targets)


def _token_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return _over_tokens((outputs.argmax(-1) == targets).to(torch.float64), targets)


def _over_tokens(values: Tensor, targets: Tensor) -> Tensor:
    """The mean over each row's tokens (or a graph's nodes), without the ignored ones."""
    counted = (targets != IGNORED).to(values.dtype)
    return (values * counted).sum(-1) / counted.sum(-1).clamp(min=1)


def _over_outputs(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(-1) if losses.dim() > 1 else losses


classification = Task(
    "classification", _class_losses, {"accuracy": _top(1), "top5": _top(5)}, classes=True, mean=_mean_class_loss
)
language = Task("language", _token_losses, {"accuracy": _token_accuracy}, classes=True)
multilabel = Task(
    "multilabel",
    lambda outputs, targets: _over_outputs(
        F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")
    ),
    {"recall_at_5": _recall_at_5},
)
regression = Task(
    "regression",
    lambda outputs, targets: _over_outputs((outputs.reshape(targets.shape) - targets.to(outputs.dtype)).square()),
)
direct = Task("direct", lambda outputs, targets: _over_outputs(outputs))
"""The model's output is already each sample's loss, as in the quadratic illustrations."""

TASKS: dict[str, Task] = {t.name: t for t in (classification, language, multilabel, regression, direct)}


OWN = "own"
"""The loss that a model makes itself, as those of `transformers` do."""
LOSSES = (*TASKS, OWN)


def as_task(loss: str | Task | PerSample | None, targets: Tensor | None) -> Task:
    """The task meant by a name, a task or a loss function; by default the one that fits the targets."""
    if loss is None:
        return _fitting(targets)
    if isinstance(loss, str):
        if loss == OWN:
            return _own(targets)
        if loss not in TASKS:
            raise unknown("loss", loss, LOSSES)
        return TASKS[loss]
    if isinstance(loss, Task):
        return loss
    if not callable(loss):
        raise ConfigError(f"loss must be a name, a Task or a function (outputs, targets). Got {loss!r}.")
    return _custom(loss)


def _fitting(targets: Tensor | None) -> Task:
    """Floats are regressed on, booleans are labels, rows of integers are sequences, single integers classes."""
    if targets is None:
        return direct
    if targets.is_floating_point():
        return regression
    if targets.dtype == torch.bool:
        return multilabel
    return language if targets.dim() > 1 else classification


def _own(targets: Tensor | None) -> Task:
    if targets is None:
        raise ConfigError("loss 'own' needs the targets in the column 'y', which the model gets as `labels`. Got none.")
    return replace(_fitting(targets), own=True, mean=None)


def _custom(loss: PerSample) -> Task:
    outputs, targets = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
    try:
        per_sample = loss(outputs, targets).shape == (3,)
    except (RuntimeError, IndexError, TypeError, ValueError):
        per_sample = False
    return Task(getattr(loss, "__name__", "custom"), loss, per_sample=per_sample)


def mean_loss(task: Task, outputs: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
    """The batch's mean loss; rows that only pad the batch do not count, `weights` weigh the others."""
    outputs, targets = hide_padded_outputs(outputs, batch), batch.get("y", outputs)
    if task.mean is not None and weights is None and "_rows" not in batch:
        return task.mean(outputs, targets)
    losses = task.losses(outputs, targets)
    if not task.per_sample:
        return losses if losses.dim() == 0 else losses.mean()
    if weights is not None:
        losses = losses * weights
    if "_rows" not in batch:
        return losses.mean()
    rows = batch["_rows"].to(losses.dtype)
    return (losses * rows).sum() / rows.sum()


def hide_padded_outputs(outputs: Tensor, batch: Batch) -> Tensor:
    """Classes a client does not have get probability 0 where heads of different sizes were padded."""
    if "_outputs" not in batch:
        return outputs
    missing = torch.arange(outputs.shape[-1], device=outputs.device) >= batch["_outputs"]
    return outputs.masked_fill(missing, torch.finfo(outputs.dtype).min)
