"""Asynchrony: the server does not wait for a cohort but takes uploads as they come, stale ones with less weight.

With version v of the model, v_0 the version that a client started from, and tau = v - v_0 its staleness, an upload has
the weight s(tau) = (1 + tau)^-a.

FedBuff (Nguyen et al., 2022): when B uploads are there, x <- x + eta_g / B * sum s(tau_i) Delta_i, and v grows by one.
With B = 1 and a = 0 this is plain asynchronous FedAvg: every upload is added as it comes.

FedAsync (Xie et al., 2019): every upload moves the model towards the client's, x <- x + alpha s(tau) (y_i - x), with
y_i = x_{v_0} + Delta_i. The displacement is the one from the *newest* model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from fedtempo.errors import is_count, is_number, require, takes_numbers
from fedtempo.params import Params
from fedtempo.server.sums import Aggregate, BlockSum, Groups

DivideBy = Literal["size", "weights", "nothing"]
"""What the sum of a buffer is divided by: the uploads in it, the sum of their staleness weights, or nothing."""
Event = tuple[str, int]
"""A client that starts or finishes: ("start", 3), ("finish", 3)."""


@dataclass(frozen=True)
class Asynchrony:
    """When the server steps, and how much a stale upload counts."""

    name: str
    buffer: int = 1
    staleness: float = 0.5
    """The exponent a of the weight (1 + tau)^-a; 0 ignores staleness."""
    max_staleness: int | None = None
    """Uploads that are staler than this are refused."""
    divide_by: DivideBy = "size"
    mixing: float | None = None
    """FedAsync's alpha; None for FedBuff."""
    events: tuple[Event, ...] | None = None
    """Who starts and finishes in which order; None leaves that to the devices."""

    def __post_init__(self) -> None:
        require(is_count(self.buffer), "buffer", "an int >= 1", self.buffer)
        require(is_number(self.staleness) and self.staleness >= 0, "staleness", "a number >= 0", self.staleness)
        bound = self.max_staleness is None or is_count(self.max_staleness, 0)
        require(bound, "max_staleness", "an int >= 0", self.max_staleness)
        known = get_args(DivideBy)
        require(self.divide_by in known, "divide_by", " or ".join(map(repr, known)), self.divide_by)
        share = self.mixing is None or (is_number(self.mixing) and 0 < self.mixing <= 1)
        require(share, "mixing", "a number in (0, 1]", self.mixing)
        _check_events(self.events)

    def weight(self, staleness: int) -> float:
        """How much an upload counts that started so many versions ago.

        >>> fedbuff(buffer=2).weight(3)
        0.5
        """
        return float((1 + staleness) ** -self.staleness)

    def refuses(self, staleness: int) -> bool:
        """Whether an upload is too stale to count."""
        return self.max_staleness is not None and staleness > self.max_staleness

    def aggregate(
        self,
        groups: Mapping[int, BlockSum],
        version: int,
        models: Mapping[int, Params],
        newest: Params,
        dtype: torch.dtype,
    ) -> Aggregate:
        """The buffer as one upload.

        `groups` are sums of uploads by the version they started from, `models` those versions as clients read them,
        `newest` is the server's model.
        """
        scales = {start: self.weight(version - start) for start in sorted(groups)}
        weight = sum(groups[start].weight for start in scales)
        divisor = {
            "size": weight,
            "weights": sum(scale * groups[start].weight for start, scale in scales.items()),
            "nothing": 1.0,
        }[self.divide_by]
        names = {group: list(tensors) for block in groups.values() for group, tensors in block.sums.items()}
        means: Groups = {group: {} for group in names}
        for group, tensors in names.items():
            for name in tensors:
                # Each version's sum is exact, so the order in which uploads came leaves no trace but their staleness.
                parts = [groups[start].sums[group][name].value * scale for start, scale in scales.items()]
                # A server's rate may stand for the division of displacements. Statistics are averaged in any case.
                by = weight if group == "buffers" and self.divide_by == "nothing" else divisor
                means[group][name] = (sum(parts[1:], parts[0]) / (by or 1.0)).to(dtype)
        if self.mixing is not None:
            means = self._towards(groups, version, models, newest, dtype)
        return Aggregate(means, weight, sum(block.clients for block in groups.values()))

    def _towards(
        self,
        groups: Mapping[int, BlockSum],
        version: int,
        models: Mapping[int, Params],
        newest: Params,
        dtype: torch.dtype,
    ) -> Groups:
        """FedAsync's displacement: a share of the way from the newest model to the client's."""
        ((start, block),) = groups.items()
        assert self.mixing is not None
        share = self.mixing * self.weight(version - start)
        means: Groups = {}
        for group, tensors in block.sums.items():
            means[group] = {}
            for name, total in tensors.items():
                here, began = newest[name].to(torch.float64), models[start][name].to(torch.float64)
                means[group][name] = (share * (began - here + total.value / (block.weight or 1.0))).to(dtype)
        return means

    def __repr__(self) -> str:
        kept = {"buffer": self.buffer, "staleness": self.staleness, "max_staleness": self.max_staleness}
        own = {"divide_by": self.divide_by} if self.mixing is None else {"mixing": self.mixing}
        given = {**kept, **own, **({"events": self.events} if self.events is not None else {})}
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


@takes_numbers
def fedbuff(
    buffer: int = 10,
    staleness: float = 0.5,
    max_staleness: int | None = None,
    divide_by: DivideBy = "size",
    events: Sequence[Event] | None = None,
) -> Asynchrony:
    """FedBuff: the server steps with every `buffer` uploads. The algorithm's server rate is eta_g.

    `divide_by` is "size" in the paper. FLSim's reference code adds without dividing: "nothing", with 1 / B in the rate.
    A run's `cohort` is how many clients work at the same time. An upload counts (1 + its staleness)^-`staleness`.

    >>> [round(fedbuff().weight(tau), 2) for tau in (0, 1, 3)]
    [1.0, 0.71, 0.5]
    """
    return Asynchrony("fedbuff", buffer, staleness, max_staleness, divide_by, None, _as_events(events))


@takes_numbers
def fedasync(
    mixing: float = 0.6,
    staleness: float = 0.5,
    max_staleness: int | None = None,
    events: Sequence[Event] | None = None,
) -> Asynchrony:
    """FedAsync with polynomial staleness: every upload moves the model by `mixing * s(tau)` towards the client's.

    The client program is the algorithm's; for the paper's proximal term use `fedprox`.
    """
    return Asynchrony("fedasync", 1, staleness, max_staleness, "size", mixing, _as_events(events))


ASYNCHRONY = {"fedbuff": fedbuff, "fedasync": fedasync}
"""The rules that an experiment file may name."""


def _as_events(events: Sequence[Event] | None) -> tuple[Event, ...] | None:
    if events is None:
        return None
    pairs = isinstance(events, (list, tuple)) and all(isinstance(e, (list, tuple)) and len(e) == 2 for e in events)
    require(pairs, "events", 'a list of ("start", client) and ("finish", client)', events)
    return tuple((kind, client) for kind, client in events)


def _check_events(events: tuple[Event, ...] | None) -> None:
    working: set[int] = set()
    for place, (kind, client) in enumerate(events or ()):
        here = f"events[{place}]"
        require(kind in ("start", "finish") and is_count(client, 0), here, '("start" or "finish", client)', kind)
        if kind == "start":
            require(client not in working, here, "the start of a client that is not at work", client)
            working.add(client)
        else:
            require(client in working, here, "the finish of a client that has started", client)
            working.discard(client)
