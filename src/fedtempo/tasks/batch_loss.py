"""The loss of a batch, in which some rows may only pad it."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.errors import require
from fedtempo.metrics import IGNORED
from fedtempo.tasks.task import SAMPLE_WEIGHT, Batch, Task

SHARE, OTHER_TARGET = "_share", "_other_y"
"""Left by mixup: how much of each row is its own, and the target of the rest."""


def mean_loss(task: Task, outputs: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
    """The batch's loss; rows that only pad the batch do not count, `weights` multiply the others' losses."""
    outputs, targets = hide_padded_outputs(outputs, batch), batch.get("y", outputs)
    plain = weights is None and not any(name in batch for name in ("_rows", SAMPLE_WEIGHT, SHARE))
    if task.mean is not None and plain:
        return task.mean(outputs, targets)
    losses = task.losses(outputs, targets)
    if losses.dim() == 0:
        rule = "one number per row where rows are weighed (sample_weight, mixtures, mixup)"
        require(plain, f"the loss {task.name!r}", rule, "one number for the whole batch")
        return losses
    if SHARE in batch:
        losses = _mixed(losses, task.losses(outputs, batch[OTHER_TARGET]), batch)
    if weights is not None:
        losses = losses * weights
    if task.weights is None and "_rows" not in batch and SAMPLE_WEIGHT not in batch:
        return losses.mean()
    total, count = weighed(task, losses, targets, batch)
    return total / count


def weighed(task: Task, losses: Tensor, targets: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sum of the losses of rows that count, and of what they count."""
    counts = torch.ones_like(losses) if task.weights is None else task.weights(targets)
    if SHARE in batch and task.weights is not None:
        counts = _mixed(counts.to(losses.dtype), task.weights(batch[OTHER_TARGET]).to(losses.dtype), batch)
    for name in (SAMPLE_WEIGHT, "_rows"):
        if name in batch:
            given = batch[name].to(losses.dtype)
            losses, counts = losses * given, counts * given
    count = counts.sum().to(losses.dtype)
    if SAMPLE_WEIGHT in batch or (task.weights is not None and task.mean is None):
        # Rows of weight 0 alone say nothing: their loss is 0, and so is its gradient.
        count = torch.where(count > 0, count, torch.ones_like(count))
    return losses.sum(), count


def row_counts(task: Task, batch: Batch) -> Tensor:
    """What each row of a batch counts in its loss, as `weighed` has it; pieces of a batch are weighed by their sums."""
    targets = batch.get("y")
    rows = len(next(t for name, t in batch.items() if name not in ("_key", "_outputs")))
    counts = torch.ones(rows, dtype=torch.float64, device=next(iter(batch.values())).device)
    if task.own and targets is not None and not targets.is_floating_point():
        counts = (targets != IGNORED).reshape(rows, -1).sum(1).to(torch.float64)
    elif task.weights is not None and targets is not None:
        counts = task.weights(targets).to(torch.float64)
        counts = (
            _mixed(counts, task.weights(batch[OTHER_TARGET]).to(torch.float64), batch) if SHARE in batch else counts
        )
    for name in (SAMPLE_WEIGHT, "_rows"):
        counts = counts * batch[name] if name in batch else counts
    return counts


def _mixed(mine: Tensor, other: Tensor, batch: Batch) -> Tensor:
    """What belongs to a row that is a mixture of two, by their shares."""
    share = batch[SHARE].to(mine.dtype)
    return share * mine + (1 - share) * other


def hide_padded_outputs(outputs: Tensor, batch: Batch) -> Tensor:
    """Classes a client does not have get probability 0 where heads of different sizes were padded."""
    if "_outputs" not in batch:
        return outputs
    missing = torch.arange(outputs.shape[-1], device=outputs.device) >= batch["_outputs"]
    return outputs.masked_fill(missing, torch.finfo(outputs.dtype).min)
