"""What outputs and targets mean: classes, labels or numbers, by their shapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtempo.errors import ModelError

IGNORED = -100
"""The target of a row, of a token, or of a graph's node, that does not count: torch's own convention."""


def has_classes(outputs: torch.Size, targets: torch.Size) -> bool:
    """Whether the last dimension of the outputs runs over classes."""
    return len(outputs) == len(targets) + 1 and outputs[-1] > 1 and outputs[:-1] == targets


def predicted(outputs: Tensor, targets: Tensor) -> Tensor:
    """The class, or yes and no, that the outputs say."""
    if has_classes(outputs.shape, targets.shape):
        return outputs.argmax(-1)
    return (outputs.reshape(targets.shape) > 0).to(torch.int64)


def probabilities(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of every class; or of yes, where there is one output."""
    if has_classes(outputs.shape, targets.shape):
        return outputs.double().softmax(-1)
    return outputs.reshape(targets.shape).double().sigmoid()


def counted_tokens(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (or nodes) of all rows one below the other, without the ignored ones; other rows as they are."""
    if has_classes(outputs.shape, targets.shape):
        outputs, targets = outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
        counts = targets != IGNORED
        return outputs[counts], targets[counts]
    return outputs, targets


def over_tokens(values: Tensor, targets: Tensor) -> Tensor:
    """The mean over each row's tokens (a graph's nodes, an image's pixels), without the ignored ones."""
    if targets.dim() < 2:
        return values
    counted = (targets != IGNORED).to(values.dtype).flatten(1)
    return (values.flatten(1) * counted).sum(-1) / counted.sum(-1).clamp(min=1)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each row; of a sequence the mean over its tokens, of an image over its pixels. Classes come last."""
    if targets.dim() < 2:
        return F.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORED)
    losses = F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none", ignore_index=IGNORED)
    return over_tokens(losses, targets)


def of_classes(outputs: torch.Size, targets: torch.Size) -> str:
    """For one class per row."""
    return "" if has_classes(outputs, targets) else "one output per class"


def of_labels(outputs: torch.Size, targets: torch.Size) -> str:
    """For classes, one yes or no, or several labels per row."""
    fits = has_classes(outputs, targets) or outputs in (targets, (*targets, 1))
    return "" if fits else "one output per class, or one logit per label"


def of_yes_or_no(outputs: torch.Size, targets: torch.Size) -> str:
    """For two classes or one yes or no."""
    two = has_classes(outputs, targets) and outputs[-1] == 2
    one = len(targets) == 1 and (outputs in (targets, (*targets, 1)))
    return "" if two or one else "two classes, or one logit"


def of_one_label(outputs: torch.Size, targets: torch.Size) -> str:
    """For classes, or one yes or no; not for several labels per row."""
    return of_labels(outputs, targets) if len(targets) == 1 or has_classes(outputs, targets) else "one class per row"


def of_numbers(outputs: torch.Size, targets: torch.Size) -> str:
    """For numbers."""
    return "" if outputs in (targets, (*targets, 1)) or targets == (*outputs, 1) else "outputs of the targets' shape"


def like_targets(outputs: Tensor, targets: Tensor, what: str = "numbers") -> Tensor:
    """The outputs in the shape of the targets: a last dimension of one number may be there or not."""
    wrong = of_numbers(outputs.shape, targets.shape)
    if wrong:
        hint = "; classes are integers, y.astype(int)" if outputs.shape[:-1] == targets.shape else ""
        shapes = f"outputs {tuple(outputs.shape)}, targets {tuple(targets.shape)}"
        raise ModelError(f"{what} need {wrong}{hint}. Got {shapes}.")
    return outputs.reshape(targets.shape)
