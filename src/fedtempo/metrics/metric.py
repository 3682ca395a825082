"""A metric as a value: a function, which way is better, and whether it is a mean over rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedtempo.errors import ConfigError, require, shown

SHARE = (0.0, 1.0)
Fits = Callable[[torch.Size, torch.Size], str]
"""(shape of outputs, shape of targets) -> what it needs instead; empty where it fits."""


@dataclass(frozen=True, repr=False)
class Metric:
    """A function of (outputs, targets), which way is better, and what it returns: a number per row, or per client.

    A client's score is the mean over its rows (`per="sample"`) or what the function returns for all of them
    (`per="client"`). NaN says that it is undefined for this client, which is then left out of statistics and counted.

    >>> def error(outputs, targets): return (outputs.squeeze(-1) - targets).abs()
    >>> Metric(error, higher_is_better=False)
    Metric('error', lower is better, per sample)
    """

    fn: Callable[[Tensor, Tensor], Any]
    _: KW_ONLY
    higher_is_better: bool
    per: Literal["sample", "client"] = "sample"
    name: str = ""
    finish: Callable[[Any], Any] | None = None
    """Applied to the mean over rows, such as the root of RMSE."""
    fits: Fits | None = None
    """What outputs and targets it is for; by default any."""
    weights: Callable[[Tensor], Tensor] | None = None
    """What each row counts in the mean, given its target; the function then returns each row's value times that."""
    vectorised: bool = False
    """A promise: rows do not influence each other and `torch.vmap` can run it. Then many clients are scored at once."""

    bounds: tuple[float, float] = (-math.inf, math.inf)
    """The least and the largest value it can have: (0, 1) for a share. A node's score outside is refused."""

    def __post_init__(self) -> None:
        require(callable(self.fn), "metric", "a function of (outputs, targets)", self.fn)
        require(isinstance(self.higher_is_better, bool), "higher_is_better", "True or False", self.higher_is_better)
        require(self.per in ("sample", "client"), "per", "'sample' or 'client'", self.per)
        name = self.name or getattr(self.fn, "__name__", "")
        good = isinstance(name, str) and name.isidentifier()
        require(good, "name", "given (name=...) in letters, digits and underscores for the metric", name)
        require(name not in RESERVED, "name", "another name: this one is the library's", name)
        require(not (self.vectorised and self.per == "client"), "vectorised", "False for a metric per client", True)
        pair = isinstance(self.bounds, tuple) and len(self.bounds) == 2
        numbers = pair and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in self.bounds)
        require(numbers and self.bounds[0] < self.bounds[1], "bounds", "(least, largest)", self.bounds)
        object.__setattr__(self, "name", name)

    def __repr__(self) -> str:
        return f"Metric({self.name!r}, {'higher' if self.higher_is_better else 'lower'} is better, per {self.per})"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Any:
        """What the function returns."""
        return self.fn(outputs, targets)

    @property
    def worst(self) -> float:
        """The score of a model that has diverged."""
        return -math.inf if self.higher_is_better else math.inf

    def of_client(self, outputs: Tensor, targets: Tensor) -> float:
        """The score of a client with exactly these rows; NaN where it is undefined."""
        if not len(targets):
            return math.nan
        # A model that has diverged is no user without a score: leaving it out would flatter the others.
        if bool((outputs.isnan() | (outputs == math.inf)).any()):
            return self.worst
        found = self.fn(outputs, targets)
        wanted = (len(targets),) if self.per == "sample" else ()
        rule = f"one number per row, shape {wanted}" if self.per == "sample" else "one number"
        try:
            values = torch.as_tensor(found, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            several = ": make a Metric for each number" if isinstance(found, Mapping) else ""
            raise ConfigError(f"metric {self.name!r} must return {rule}. Got {shown(found)}{several}.") from None
        if tuple(values.shape) != wanted:
            raise ConfigError(f"metric {self.name!r} must return {rule}. Got shape {tuple(values.shape)}.")
        value = values.mean() if self.per == "sample" else values
        if self.weights is not None:
            value = values.sum() / self.weights(targets).sum()
        return float(value if self.finish is None else self.finish(float(value)))


RESERVED = ("loss", "part", "metric", "answered")
