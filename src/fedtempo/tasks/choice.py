"""Which task is meant: by name, by a loss of torch or of a user, or by the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.errors import ConfigError, unknown
from fedtempo.metrics import IGNORED, Metric
from fedtempo.tasks.known import TASKS, classification, language, multilabel, regression
from fedtempo.tasks.task import PerSample, Task

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
        if TASKS[loss].targets is not None:
            _need_tokens(loss, targets)
        return TASKS[loss]
    given: object = loss
    if given is classification:
        return classification()
    if isinstance(loss, Task):
        return loss
    if not callable(loss):
        raise ConfigError(f"loss must be a name, a Task or a function (outputs, targets). Got {loss!r}.")
    if isinstance(given, type) and issubclass(given, nn.Module):
        name = given.__name__
        rule = "a name, a Task or a function (outputs, targets)"
        raise ConfigError(f"loss must be {rule}. Got the class {name}: make one, {name}().")
    _refuse_other_ignored(loss, targets)
    known = _of_torch(loss)
    return known if known is not None and _fits(known, targets) else _custom(loss, targets)


def _need_tokens(loss: str, targets: Tensor | None) -> None:
    """The targets of a causal language model are made of rows of tokens."""
    rule = "rows of two or more tokens in the column 'y', such as y = input_ids: the loss shifts them by one"
    integers = targets is not None and not targets.is_floating_point() and targets.dtype != torch.bool
    if targets is None or not integers or targets.dim() != 2 or targets.shape[1] < 2:
        got = "no column 'y'" if targets is None else f"{targets.dtype} of shape {tuple(targets.shape[1:])} a row"
        raise ConfigError(f"loss {loss!r} needs {rule}. Got {got}.")


def _refuse_other_ignored(loss: PerSample, targets: Tensor | None) -> None:
    """Metrics and the weights of batches leave out targets of -100 alone, so a loss must not leave out others."""
    ignored = getattr(loss, "ignore_index", IGNORED)
    if _is_torch(loss) and ignored != IGNORED and targets is not None and not targets.is_floating_point():
        way = f"write y[y == {ignored}] = {IGNORED} into the targets"
        raise ConfigError(f"ignore_index of the loss must be {IGNORED}, as for the metrics. Got {ignored}: {way}.")


def _fits(known: Task, targets: Tensor | None) -> bool:
    """Whether our task computes what torch's loss does of such targets."""
    if targets is None or targets.dim() < 2 or targets.dtype == torch.bool:
        return True
    # For tokens and pixels torch's cross-entropy has the classes second, and one mean over all rows: it stays as it is.
    # So does that of fractions beside each other, which are a share of every class.
    return targets.is_floating_point() and not known.classes


def _fitting(targets: Tensor | None) -> Task:
    """Floats are regressed on, booleans are labels, rows of integers are sequences, single integers classes."""
    if targets is None:  # a model that is given `labels` would have its logits taken for losses, and lowered
        ways = "name the column of targets 'y'; loss='direct' if the model's outputs are the losses themselves"
        raise ConfigError(f"loss must be said where there are no targets: {ways}. Got no column 'y'.")
    if targets.is_floating_point():
        _refuse_ambiguous(targets)
        return replace(regression, reason="guessed from targets that are floats")
    if targets.dtype == torch.bool:
        return replace(multilabel, reason="guessed from targets that are booleans")
    if targets.dim() > 1:
        return replace(language, reason="guessed from targets that are rows of integers")
    return replace(classification(), reason="guessed from targets that are integers")


def _own(targets: Tensor | None) -> Task:
    if targets is None:
        raise ConfigError("loss 'own' needs the targets in the column 'y', which the model gets as `labels`. Got none.")
    # The model's loss is one number per batch, so padding would be felt.
    return replace(_fitting(targets), own=True, mean=None, rows_apart=False, reason="the model's own loss")


def _refuse_ambiguous(targets: Tensor) -> None:
    """Zeros and ones as floats are classes to one reader and numbers to another."""
    ones = targets == 1
    if not bool((ones | (targets == 0)).all()) or not bool(ones.any()):
        return
    number = "loss='regression' if they are numbers"
    if targets.dim() == 1:
        ways, what = f"integers, y.astype(int), if they are classes; {number}", "floats that are all 0 or 1"
    elif bool((ones.flatten(1).sum(1) == 1).all()):
        ways, what = f"class numbers, y.argmax(1), if rows are one-hot; {number}", "rows of floats with a single 1"
    else:
        ways, what = f"loss='multilabel' if they are labels; {number}", "rows of floats that are all 0 or 1"
    raise ConfigError(f"loss must be said where targets can be read in two ways: {ways}. Got {what}.")


def _of_torch(loss: Any) -> Task | None:
    """A loss of torch that is a mean over rows, as a task whose rows stand for themselves; None for any other."""
    if loss is F.cross_entropy:
        return replace(classification(), reason="given as cross_entropy")
    if loss is F.mse_loss:
        return replace(regression, reason="given as mse_loss")
    if loss is F.binary_cross_entropy_with_logits:
        return replace(multilabel, reason="given as binary_cross_entropy_with_logits")
    reason = f"given as {type(loss).__name__}"
    if getattr(loss, "reduction", None) != "mean":
        return None
    if type(loss) is nn.CrossEntropyLoss and loss.ignore_index == IGNORED:
        return replace(classification(loss.weight, loss.label_smoothing), reason=reason)
    return replace(regression, reason=reason) if type(loss) is nn.MSELoss else None


def _custom(loss: PerSample, targets: Tensor | None) -> Task:
    """A user's loss, with the metrics that fit the targets."""
    scores: Mapping[str, Metric] = {}
    if targets is not None and not targets.is_floating_point():
        scores = _fitting(targets).scores
    name = getattr(loss, "__name__", type(loss).__name__)
    losses = loss
    if targets is not None and targets.dtype == torch.bool and _is_torch(loss):
        losses = _of_numbers(loss)
    return Task(name, losses, scores, reason="a loss of your own")


def _is_torch(loss: object) -> bool:
    """Whether torch itself has written the loss."""
    source = type(loss).__module__ if isinstance(loss, nn.Module) else getattr(loss, "__module__", None)
    return (source or "").startswith("torch.nn.")


def _of_numbers(loss: PerSample) -> PerSample:
    """The loss of labels that come as truth values: torch's losses take them as numbers only."""

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(outputs, targets.to(outputs.dtype))

    return losses
