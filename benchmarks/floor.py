"""The floor of a round: its matrix products and convolutions alone, with nothing between them.

The products of one local step are noted while the hand-written loop takes it, and then repeated on the same tensors:
the same shapes, layouts and threads, with everything in the cache. No loop that computes these products with these
kernels can be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.handwritten import Client
from benchmarks.workloads import Workload

ATEN = torch.ops.aten
PRODUCTS = {
    ATEN.mm.default,
    ATEN.addmm.default,
    ATEN.bmm.default,
    ATEN.baddbmm.default,
    ATEN.convolution.default,
    ATEN.convolution_backward.default,
}
Product = tuple[Any, tuple[Any, ...], dict[str, Any]]


class _Noted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps every product with copies of its arguments, in their layout."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS:
            self.products.append((func._op, tuple(_copied(a) for a in args), dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def _copied(argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype).copy_(argument)


def products(workload: Workload, rows: int) -> list[Product]:
    """The products of one step on this many rows."""
    client = Client(workload, *_some_rows(workload, rows))
    with _Noted() as noted:
        client.step(client.inputs, client.labels)
    return noted.products


def floor(workload: Workload) -> Iterator[None]:
    """Rounds without end, in one process."""
    lengths = [_length(workload, step) for step in range(workload.steps)]
    known = {length: products(workload, length) for length in set(lengths)}
    while True:
        for _ in range(workload.cohort):
            for length in lengths:
                for function, arguments, named in known[length]:
                    function(*arguments, **named)
        yield


def _length(workload: Workload, step: int) -> int:
    """Rows of the batch of this step: epochs end with a short one."""
    place = step * workload.batch % (-(-workload.samples // workload.batch) * workload.batch)
    return min(workload.batch, workload.samples - place)


def _some_rows(workload: Workload, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((rows, *workload.shape), dtype=np.float32)
    return inputs, rng.integers(0, workload.classes, rows)
