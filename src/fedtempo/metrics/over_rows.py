"""Metrics that are means over rows. Rows do not influence each other, so many clients are scored at once."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedtempo.errors import is_count, require
from fedtempo.metrics.metric import SHARE, Metric
from fedtempo.metrics.outputs import (
    cross_entropy,
    has_classes,
    like_targets,
    of_classes,
    of_labels,
    of_numbers,
    of_one_label,
    over_tokens,
    predicted,
    probabilities,
)


def _correct(outputs: Tensor, targets: Tensor) -> Tensor:
    return over_tokens((predicted(outputs, targets) == targets).to(torch.float64), targets)


def top(k: int) -> Metric:
    """The share of rows whose class is among the k largest outputs: `top5`.

    >>> outputs = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    >>> top(2).of_client(outputs, torch.tensor([1, 2]))
    0.5
    """
    require(is_count(k), "k", "an int >= 1", k)

    def score(outputs: Tensor, targets: Tensor) -> Tensor:
        best = outputs.topk(min(k, outputs.shape[-1]), dim=-1).indices
        return over_tokens((best == targets.unsqueeze(-1)).any(-1).to(torch.float64), targets)

    def fits(outputs: torch.Size, targets: torch.Size) -> str:
        enough = has_classes(outputs, targets) and outputs[-1] > k
        return "" if enough else f"more than {k} classes; with fewer it is always the same"

    return Metric(score, higher_is_better=True, name=f"top{k}", fits=fits, vectorised=True, bounds=SHARE)


def recall_at(k: int) -> Metric:
    """The share of a row's labels that are among the k largest outputs: `recall_at_5`.

    >>> recall_at(1).of_client(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[True, True, False]]))
    0.5
    """
    require(is_count(k), "k", "an int >= 1", k)

    def score(outputs: Tensor, targets: Tensor) -> Tensor:
        best = outputs.topk(min(k, outputs.shape[-1]), dim=-1).indices
        hits = targets.gather(-1, best).sum(-1).to(torch.float64)
        return hits / targets.sum(-1).clamp(min=1)

    def fits(outputs: torch.Size, targets: torch.Size) -> str:
        enough = outputs == targets and len(outputs) == 2 and outputs[-1] > k
        return "" if enough else f"rows of more than {k} labels; with fewer it is always the same"

    return Metric(score, higher_is_better=True, name=f"recall_at_{k}", fits=fits, vectorised=True, bounds=SHARE)


def _squared_gap(outputs: Tensor, targets: Tensor) -> Tensor:
    """Brier: sum_c (p_c - [y = c])^2, halved for two classes, as scikit-learn has it."""
    chances = probabilities(outputs, targets)
    if not has_classes(outputs.shape, targets.shape):
        gaps = (chances - targets.double()).square()
        return gaps.flatten(1).mean(-1) if gaps.dim() > 1 else gaps
    hit = targets.unsqueeze(-1) == torch.arange(chances.shape[-1], device=targets.device)
    gaps = (chances - hit.double()).square().sum(-1) * (0.5 if chances.shape[-1] == 2 else 1.0)
    return over_tokens(gaps, targets)


def _gap(outputs: Tensor, targets: Tensor) -> Tensor:
    gaps = (like_targets(outputs, targets).double() - targets.double()).abs()
    return gaps.flatten(1).mean(-1) if gaps.dim() > 1 else gaps


accuracy = Metric(_correct, higher_is_better=True, name="accuracy", fits=of_one_label, vectorised=True, bounds=SHARE)
perplexity = Metric(
    cross_entropy,
    higher_is_better=False,
    name="perplexity",
    finish=np.exp,
    fits=of_classes,
    vectorised=True,
    bounds=(1, math.inf),
)
brier = Metric(_squared_gap, higher_is_better=False, name="brier", fits=of_labels, vectorised=True, bounds=(0, 2))
mae = Metric(_gap, higher_is_better=False, name="mae", fits=of_numbers, vectorised=True, bounds=(0, math.inf))
