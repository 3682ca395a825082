"""Admission: which uploads count. `refusal` checks an upload against the server's own model before it is added."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch

from fedtempo.errors import is_number, require
from fedtempo.params import norm
from fedtempo.server.sums import Groups

Expected = Mapping[str, Mapping[str, tuple[torch.Size, torch.dtype]]]
"""Shape and type of every tensor of an upload, by group and name."""
MOST_WEIGHT = 1e15
"""No client has this many samples; with a larger weight the other clients would no longer matter."""


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


def refusal(groups: Groups, weight: float, expected: Expected, limit: float = math.inf) -> str | None:
    """Why an upload does not count, or None if it does.

    Names, shapes and types come first: the later checks would fail on, or broadcast over, an upload of another form.
    """
    for group in (*expected, *(g for g in groups if g not in expected)):
        if group not in groups or group not in expected or set(groups[group]) != set(expected[group]):
            return "wrong names"
        for name, (shape, dtype) in expected[group].items():
            tensor = groups[group][name]
            if not isinstance(tensor, torch.Tensor) or tensor.shape != shape:
                return "wrong shape"
            if tensor.dtype != dtype:
                return "wrong type"
    if isinstance(weight, bool) or not is_number(weight) or not 0 <= weight < MOST_WEIGHT:
        return "wrong weight"
    if not all(bool(torch.isfinite(t).all()) for g in groups.values() for t in g.values() if t.is_floating_point()):
        return "not finite"
    return "too large" if delta_norm(groups) > limit else None


def delta_norm(groups: Groups) -> float:
    """The norm of an upload's displacement, in float64."""
    return float(norm({n: t.to(torch.float64) for n, t in groups.get("delta", {}).items()}))


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
