"""A backend: how clients run. It takes a block of clients and yields them after their local work.

A backend does not aggregate (`collect.py` does) and does not know where it runs (an `Engine` does, see `engine.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.client.program import ClientProgram
from fedtempo.federation.problem import Problem
from fedtempo.params import Params, Tree, tensors_in, tree_map
from fedtempo.schedules import Now
from fedtempo.tasks import Batch

T = TypeVar("T")


def side_by_side(fn: Callable[..., T]) -> Callable[..., T]:
    """`vmap` for passes without gradients.

    Torch has no batching rule for a whole recurrent layer, only for the small operations inside it. It uses those only
    where a gradient may be asked for. So this asks for the gradient of a number that nothing depends on.
    """

    def with_tape(*arguments: Any) -> Any:
        _, (_, result) = torch.func.grad_and_value(lambda zero: (zero, fn(*arguments)), has_aux=True)(torch.zeros(()))
        return result

    return vmap(with_tape)


class Trained(NamedTuple):
    """One client after its local work, or several side by side with a leading dimension on every tensor.

    Both forms are one type, so that everything after training is written once.
    """

    clients: np.ndarray
    carry: Carry
    loss: Tensor
    """Mean loss over the steps, one number per client."""
    samples: tuple[np.ndarray | Tensor, ...]
    """Samples that each stage processed, one number per client; a tensor where a device alone knows how many."""
    stacked: bool
    """Whether tensors have a leading dimension of clients."""
    shapes: list[dict[str, torch.Size]]
    """The personal tensors' true shapes, where they were padded to be stacked."""

    def each(self, fn: Callable[..., T], *arguments: Batch) -> T:
        """Apply a function of one client's (carry, *arguments) to all of them; the result is always stacked."""
        if self.stacked:
            return side_by_side(fn)(self.carry, *arguments)
        single = fn(self.carry, *(tree_map(lambda t: t[0], a) for a in arguments))
        return tree_map(lambda t: t.unsqueeze(0), single)

    def own(self, stacked: Params, lane: int) -> Params:
        """One client's tensors out of stacked ones, in their true shapes."""
        # The clone matters: a view would keep the whole stack of all clients alive as long as this client is stored.
        shapes = self.shapes[lane] if self.shapes else {}
        return {
            n: _cut(t[lane], shapes.get(n)).clone(memory_format=torch.contiguous_format) for n, t in stacked.items()
        }


TrainBlock = Callable[[Problem, ClientProgram, Received, Now, np.ndarray, list[Params]], Iterator[Trained]]
"""(problem, client program, what came down, position, clients, what each keeps) -> the clients after training."""


class Backend(NamedTuple):
    """How clients run: one by one, or side by side."""

    name: str
    train: TrainBlock
    stacks: bool = True
    """Whether the clients of a block are in memory together, so that a block may be too large for it."""


class Block(NamedTuple):
    """Clients that run together, in ascending order, with what each keeps for itself."""

    clients: np.ndarray
    kept: list[Params]
    """One entry per client. Empty where no client keeps anything: then a block travels as one array of numbers."""
    selected: Sequence[Params] = ()
    """What each client kept in the selected round, for engines whose clients keep their states themselves."""

    @property
    def personal(self) -> list[Params]:
        """What each client keeps."""
        return self.kept or [{} for _ in self.clients]

    def singly(self) -> list[Block]:
        """A block for each of the clients."""
        return [
            Block(self.clients[i : i + 1], self.kept[i : i + 1], self.selected[i : i + 1])
            for i in range(len(self.clients))
        ]


class Order(NamedTuple):
    """What all blocks of a round share: the model, where the round stands, and the largest norm admission allows."""

    received: Received
    now: Now
    limit: float = math.inf
    packed: Params | None = None
    """The shared model as it travels to real clients, where downloads are compressed; `received` then is what they
    read."""


def in_float64(values: Tensor) -> np.ndarray:
    """A vector as a numpy array in float64, the type of all sums."""
    return values.detach().to("cpu", torch.float64).numpy()


def in_float64_together(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Small tensors as arrays in float64, of their shapes; all that are on a device are read at once."""
    there = [t.detach().reshape(-1).to(torch.float64) for t in tensors if not t.is_cpu]
    read = iter(np.split(in_float64(torch.cat(there)), np.cumsum([t.numel() for t in there])[:-1]) if there else ())
    return [in_float64(t) if t.is_cpu else next(read).reshape(tuple(t.shape)) for t in tensors]


def on_host(tree: Tree) -> Tree:
    """The tensors of nested dicts and tuples on the CPU. A device is waited for once for each type of numbers."""
    there = [t.detach() for t in tensors_in(tree) if not t.is_cpu]
    read: dict[torch.dtype, Iterator[Tensor]] = {}
    for dtype in dict.fromkeys(t.dtype for t in there):
        alike = [t.reshape(-1) for t in there if t.dtype == dtype]
        read[dtype] = iter(torch.split(torch.cat(alike).cpu(), [t.numel() for t in alike]))
    return tree_map(lambda t: t if t.is_cpu else next(read[t.dtype]).reshape(t.shape), tree) if there else tree


def _cut(tensor: Tensor, shape: torch.Size | None) -> Tensor:
    return tensor if shape is None or tensor.shape == shape else tensor[: shape[0]]
