"""The tasks that the library knows, and their losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtempo.errors import is_number, require
from fedtempo.metrics import IGNORED, METRICS, accuracy, cross_entropy, perplexity
from fedtempo.metrics.outputs import like_targets
from fedtempo.tasks.task import Batch, PerSample, Task


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


def _labelled(targets: Tensor) -> Tensor:
    return targets != IGNORED


def _with_tokens(targets: Tensor) -> Tensor:
    """Whether some token of a row counts."""
    return (targets != IGNORED).reshape(len(targets), -1).any(-1)


def _weighted_losses(class_weights: Tensor | None, label_smoothing: float) -> PerSample:
    """torch's cross-entropy with class weights w and smoothing e: (1 - e) w_y l_y + e / C sum_c w_c l_c."""

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        counted = targets != IGNORED
        each = -outputs.log_softmax(-1)
        # A class that only pads this client's head has probability 0 and must not count in the smoothing.
        own = outputs > torch.finfo(outputs.dtype).min
        if class_weights is not None:
            # One weight alone would count for every class in this product, and for none but the first elsewhere.
            number, wanted = len(class_weights), outputs.shape[-1]
            require(number == wanted, "class_weights", f"{wanted} numbers, one for each of the model's outputs", number)
            each = each * class_weights.to(outputs)
        picked = each.gather(-1, torch.where(counted, targets, 0).unsqueeze(-1)).squeeze(-1)
        spread = torch.where(own, each, 0.0).sum(-1) / own.sum(-1)
        return torch.where(counted, (1 - label_smoothing) * picked + label_smoothing * spread, 0.0)

    return losses


def _over_outputs(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(-1) if losses.dim() > 1 else losses


def _label_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    logits = like_targets(outputs, targets, "labels")
    return _over_outputs(F.binary_cross_entropy_with_logits(logits, targets.to(outputs.dtype), reduction="none"))


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return _over_outputs((like_targets(outputs, targets) - targets.to(outputs.dtype)).square())


def _outputs(outputs: Tensor, targets: Tensor) -> Tensor:
    return _over_outputs(outputs)


_CLASS_SCORES = {"accuracy": accuracy, "top5": METRICS["top5"]}
_LABEL_SCORES = {"recall_at_5": METRICS["recall_at_5"], "recall_at_1": METRICS["recall_at_1"]}
_PLAIN = Task(
    "classification",
    _class_losses,
    _CLASS_SCORES,
    classes=True,
    mean=_mean_class_loss,
    weights=_labelled,
    rows_apart=True,
    least_loss=0.0,
)


def classification(
    class_weights: Sequence[float] | Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Task:
    """Cross-entropy of class numbers. A batch's loss is sum_i w_{y_i} l_i / sum_i w_{y_i}, as in torch.

    >>> classification(class_weights=[1.0, 5.0]).metric
    'accuracy'
    """
    smooth = is_number(label_smoothing) and 0 <= label_smoothing < 1
    require(smooth, "label_smoothing", "a number in [0, 1)", label_smoothing)
    if class_weights is None and not label_smoothing:
        return _PLAIN
    if class_weights is None:
        return replace(_PLAIN, losses=_weighted_losses(None, label_smoothing), mean=None)
    weights = torch.as_tensor(class_weights, dtype=torch.float64).detach().cpu()
    holds = weights.dim() == 1 and bool((weights >= 0).all() and weights.isfinite().all() and weights.any())
    require(holds, "class_weights", "a finite number >= 0 for each class", class_weights)

    def of_rows(targets: Tensor) -> Tensor:
        return torch.where(targets != IGNORED, weights.to(targets.device)[targets.clamp(min=0)], 0.0)

    return replace(_PLAIN, losses=_weighted_losses(weights, label_smoothing), mean=None, weights=of_rows)


language = Task(
    "language",
    cross_entropy,
    {"accuracy": accuracy, "perplexity": perplexity},
    classes=True,
    weights=_with_tokens,
    rows_apart=True,
    least_loss=0.0,
)


def next_tokens(batch: Batch) -> Tensor:
    """At each place the token after it; the last place and padding do not count.

    >>> next_tokens({"y": torch.tensor([[5, 6, 7]])}).tolist()
    [[6, 7, -100]]
    """
    tokens = batch["y"]
    after = torch.cat([tokens[..., 1:], torch.full_like(tokens[..., :1], IGNORED)], -1)
    mask = batch.get("attention_mask")
    if mask is None or mask.shape != tokens.shape:
        return after
    there = torch.cat([mask[..., 1:], torch.zeros_like(mask[..., :1])], -1)
    return torch.where(there != 0, after, IGNORED)


def _tokens(targets: Tensor) -> Tensor:
    """How many tokens of each row count."""
    return (targets != IGNORED).flatten(1).sum(1)


def _token_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum of each row's token losses."""
    losses = F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none", ignore_index=IGNORED)
    return losses.flatten(1).sum(1)


def _token_hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many of each row's tokens are the most likely ones."""
    return (outputs.argmax(-1) == targets).flatten(1).sum(1).to(torch.float64)


next_token = Task(
    "next_token",
    _token_losses,
    {
        "perplexity": replace(perplexity, fn=_token_losses, weights=_tokens),
        "accuracy": replace(accuracy, fn=_token_hits, weights=_tokens),
    },
    classes=True,
    weights=_tokens,
    rows_apart=True,
    least_loss=0.0,
    targets=next_tokens,
)
"""The loss of a causal language model: the mean over all tokens of a batch, as `transformers` computes it."""


def scored_on_next_tokens(task: Task) -> Task:
    """The task of a model that makes the loss of next tokens itself: its scores compare the same tokens."""
    scores = {name: next_token.scores.get(name, metric) for name, metric in task.scores.items()}
    own = replace(next_token, own=True, rows_apart=False, main=task.main, asked=task.asked)
    return replace(own, scores=scores, reason=f"{task.reason}, of the next token")


multilabel = Task("multilabel", _label_losses, _LABEL_SCORES, rows_apart=True, least_loss=0.0)
regression = Task("regression", _squares, rows_apart=True, least_loss=0.0)
direct = Task("direct", _outputs, rows_apart=True)
"""The model's output is already each sample's loss, as in the quadratic illustrations."""

TASKS: dict[str, Task] = {t.name: t for t in (_PLAIN, language, next_token, multilabel, regression, direct)}


def is_known(task: Task) -> bool:
    """Whether the loss is one of ours as it is, whatever the metrics."""
    return any(task.losses is one.losses and task.mean is one.mean for one in TASKS.values())
