"""Admission: which uploads and scores count. What is refused is refused with a reason, and nothing of it is added.

`refusal` is asked of every upload, wherever it was made: in this process, in a worker, on a node. `refused_scores` is
asked of nodes' scores.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedtempo.errors import is_number, require
from fedtempo.params import norm, tensors_in
from fedtempo.server.sums import Groups, unaddable

Expected = Mapping[str, Mapping[str, tuple[torch.Size, torch.dtype]]]
"""Shape and type of every tensor of an upload, by group and name."""
MOST_WEIGHT = 1e15
"""No client has this many samples; with a larger weight the other clients would no longer matter."""
MOST_SCORE = 1e150
"""The square of a larger score is not finite, and neither is the deviation over users."""
SLACK = 1e-6
"""How far rounding may carry a share above 1."""


@dataclass(frozen=True)
class Admission:
    """The rules. An upload that breaks one is refused with a reason; the other uploads are not affected."""

    max_norm: float | None = None
    """The largest norm of an upload's displacement."""
    max_ratio: float | None = None
    """The largest norm as a multiple of the running median of accepted ones, from the second round on."""
    checks: bool = True
    """False accepts every upload, to show what the checks prevent."""

    def __post_init__(self) -> None:
        for name in ("max_norm", "max_ratio"):
            value = getattr(self, name)
            require(value is None or (is_number(value) and value > 0), f"admission.{name}", "a number > 0", value)

    def limit(self, median: float) -> float:
        """The largest norm allowed when accepted norms had this running median (NaN before any)."""
        limits = [self.max_norm] if self.max_norm is not None else []
        if self.max_ratio is not None and math.isfinite(median):
            limits.append(self.max_ratio * median)
        return min(limits, default=math.inf)


def refusal(
    groups: Groups,
    weight: float,
    expected: Expected | None = None,
    limit: float = math.inf,
    kept: Iterable[Tensor] = (),
) -> str | None:
    """Why an upload does not count, or None if it does: it can be added up, and has the form and the norm wanted.

    This is asked of every upload, by the process, worker or node that made it and by a deployment's server. `expected`
    is its form, where one is wanted. `kept` is what the client keeps, where that is known: it has to be finite too.
    """
    reason = None if expected is None else _wrong_form(groups, weight, expected)
    reason = reason or unaddable((*tensors_in(groups), *kept))
    return reason or ("too large" if limit < math.inf and delta_norm(groups) > limit else None)


def _wrong_form(groups: Groups, weight: float, expected: Expected) -> str | None:
    # Names, shapes and types come first: later checks would fail on, or broadcast over, an upload of another form.
    for group in (*expected, *(g for g in groups if g not in expected)):
        if group not in groups or group not in expected or set(groups[group]) != set(expected[group]):
            return "wrong names"
        for name, (shape, dtype) in expected[group].items():
            tensor = groups[group][name]
            if not isinstance(tensor, torch.Tensor) or tensor.shape != shape:
                return "wrong shape"
            if tensor.dtype != dtype:
                return "wrong type"
    known = is_number(weight) and not isinstance(weight, bool) and 0 <= weight < MOST_WEIGHT
    return None if known else "wrong weight"


def delta_norm(groups: Groups) -> float:
    """The norm of an upload's displacement, in float64."""
    return float(norm({n: t.to(torch.float64) for n, t in groups.get("delta", {}).items()}))


def refused_scores(
    scores: Mapping[int, np.ndarray], bounds: Sequence[tuple[float, float]], rules: Admission
) -> dict[int, str]:
    """Which users' scores do not count, and why: one user's must not decide the mean over all.

    Each array ends in a dimension of metrics, whose least and largest value are `bounds`. A share above 1 is refused.
    A metric without bounds has the rule of uploads: with `max_ratio`, at most that multiple of the users' median.
    """
    if not rules.checks:
        return {}
    refused: dict[int, str] = {}
    for client, values in scores.items():
        for place, (least, most) in enumerate(bounds):
            wrong = [value for value in values[..., place].ravel().tolist() if not _within(value, least, most)]
            if wrong:
                refused[client] = f"score {wrong[0]:g} outside [{least:g}, {most:g}]"
    counted = {client: values for client, values in scores.items() if client not in refused}
    if rules.max_ratio is None or not counted:
        return refused
    sizes = np.abs(np.stack(list(counted.values())))
    open_ended = np.isinf(np.asarray(bounds)).any(-1)
    for *at, place in np.ndindex(sizes.shape[1:]):
        found = sizes[(slice(None), *at, place)]
        if open_ended[place] and not np.isnan(found).all():
            limit = rules.max_ratio * statistics.median_low(found[~np.isnan(found)].tolist())
            for client, size in zip(counted, found.tolist(), strict=True):
                if size > limit:
                    refused.setdefault(client, f"score {size:g} above {rules.max_ratio:g} times the median")
    return refused


def _within(value: float, least: float, most: float) -> bool:
    """Whether a score lies in its bounds; NaN stands for undefined."""
    return math.isnan(value) or (least - SLACK <= value <= most + SLACK and abs(value) <= MOST_SCORE)


@dataclass
class Inbox:
    """Who may still send something this round: every chosen client once, for this round only."""

    round: int
    cohort: Collection[int]
    seen: set[int] = field(default_factory=set)

    def refusal(self, client: int, round_number: int) -> str | None:
        """Why a message does not count, or None. An accepted message uses up the client's turn."""
        if client not in self.cohort:
            return "unknown client"
        if round_number != self.round:
            return "another round"
        if client in self.seen:
            return "sent twice"
        self.seen.add(client)
        return None
