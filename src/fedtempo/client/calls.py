"""Recorded operations as a list, and what may be left out of it, kept or put in another order without changing a bit.

Each operation reads and writes registers, which are numbers that stand for tensors and constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

NOWHERE = 0
"""The register of results that nobody reads."""
_ATEN = torch.ops.aten
_RELU, _RELU_BACKWARD = _ATEN.relu.default, _ATEN.threshold_backward.default
_POOL, _POOL_BACKWARD = _ATEN.max_pool2d_with_indices.default, _ATEN.max_pool2d_with_indices_backward.default


class Call(NamedTuple):
    """One operation: what to call, the registers of its arguments, and where its result or results go."""

    operation: Any
    """The operation of torch; None where the call only puts tensors together."""
    function: Callable[..., Any]
    arguments: tuple[int, ...]
    results: int | tuple[int, ...]
    writes: bool = False
    """Whether it changes an argument, so that it counts even if nobody reads its result."""
    fresh: bool = False
    """Whether its results share no memory with its arguments."""

    @property
    def written(self) -> tuple[int, ...]:
        """The registers of its results."""
        return (self.results,) if isinstance(self.results, int) else self.results


def needed(calls: Sequence[Call], outputs: Iterable[int]) -> list[Call]:
    """The calls whose results are read, or that write over something."""
    read = set(outputs)
    kept = []
    for call in reversed(calls):
        if call.writes or not read.isdisjoint(call.written):
            read.update(call.arguments)
            kept.append(call)
    return kept[::-1]


def unchanging(calls: Sequence[Call], shaped: dict[int, Tensor], outputs: Sequence[int]) -> dict[int, Tensor]:
    """Results that stay the same, by register: those that nobody returns, writes over or takes views of."""
    if any(call.writes for call in calls):
        return {}
    seen = {register for call in calls if not call.fresh for register in call.arguments}
    return {register: tensor for register, tensor in shaped.items() if register not in seen and register not in outputs}


def pooled_first(calls: Sequence[Call], outputs: Sequence[int], unused: int) -> list[Call]:
    """The calls with every ReLU after the max-pooling that follows it, and their derivatives likewise.

    max(relu(x)) = relu(max(x)) to the bit, and the gradients are equal too: where the largest number of a window is
    negative, none passes. After a 2x2 pooling there are a quarter as many numbers for the ReLU. `client/network.py`
    does the same to layers in a row; this finds the operations. `unused` is the first free register.
    """
    found, overwritten = list(calls), _overwritten(calls)
    reads = Counter([*outputs, *(register for call in found for register in call.arguments)])
    for place, relu in enumerate(calls):
        readers = [i for i, call in enumerate(found) if relu.results in call.arguments]
        expected = [_POOL, _POOL_BACKWARD, _RELU_BACKWARD]
        if relu.operation is not _RELU or [found[i].operation for i in readers] != expected:
            continue
        pool, pool_back, relu_back = (found[i] for i in readers)
        (start,), (pooled, chosen) = relu.arguments, pool.written
        # Nobody else may see what changes: the ReLU's result, where the largest numbers were, the gradient in between.
        seen_by = [reads[register] for register in (*relu.written, chosen, *pool_back.written)]
        if seen_by != [3, 1, 1] or relu_back.arguments[:2] != (pool_back.results, relu.results):
            continue
        if not overwritten.isdisjoint((start, *relu.written, pooled, *pool_back.written)):
            continue
        gradient, _, *window = pool_back.arguments
        largest, passed = unused, unused + 1
        unused += 2
        found[place] = pool._replace(arguments=(start, *pool.arguments[1:]), results=(largest, chosen))
        found[readers[0]] = relu._replace(arguments=(largest,), results=pooled)
        found[readers[1]] = relu_back._replace(arguments=(gradient, pooled, *relu_back.arguments[2:]), results=passed)
        found[readers[2]] = pool_back._replace(arguments=(passed, start, *window), results=relu_back.results)
    return found


def _overwritten(calls: Sequence[Call]) -> set[int]:
    """The registers whose memory some call writes over: its arguments, and what shares memory with them."""
    found = {register for call in calls if call.writes for register in call.arguments}
    views = [{*call.arguments, *call.written} - {NOWHERE} for call in calls if not call.fresh]
    while grown := [view for view in views if not (view <= found or view.isdisjoint(found))]:
        found.update(*grown)
    return found


def shared_registers(calls: Sequence[Call], kept: set[int]) -> dict[int, int]:
    """A place for every register.

    A result takes the place of a register that is not read again. That frees the old tensor at once, so a replay needs
    about as much memory as the original.
    """
    last = {register: index for index, call in enumerate(calls) for register in call.arguments}
    places = {NOWHERE: NOWHERE}
    for register in sorted(kept):
        places[register] = len(places)
    free, following = [], len(places)
    for index, call in enumerate(calls):
        free += [places[r] for r in sorted({*call.arguments} - kept) if last[r] == index]
        for register in call.written:
            if register not in last and register not in kept:
                places[register] = NOWHERE
            elif register not in places:
                places[register] = free.pop() if free else following
                following = max(following, places[register] + 1)
    return places
