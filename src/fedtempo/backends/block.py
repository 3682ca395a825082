"""What every backend computes: the trained carries of a block of clients, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedtempo.aggregation import BlockSum, Failure, Groups, squared_length, total
from fedtempo.federation import Federation
from fedtempo.local import Carry, ClientProgram
from fedtempo.objectives import Received
from fedtempo.params import Params, tree_map
from fedtempo.schedules import Now


def side_by_side(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` for passes without gradients.

    Recurrent layers have a batching rule only in the small operations they are made of, and torch takes them apart
    only where a gradient could be asked for. So ask for one, of a number that nothing depends on.
    """

    def with_tape(*arguments: Any) -> Any:
        _, (_, result) = torch.func.grad_and_value(lambda zero: (zero, fn(*arguments)), has_aux=True)(torch.zeros(()))
        return result

    return vmap(with_tape)


class Trained(NamedTuple):
    """One client after its local work, or several side by side with a leading dimension on every tensor."""

    clients: np.ndarray
    carry: Carry
    loss: Tensor
    """Mean loss over the steps, one number per client."""
    steps: np.ndarray
    samples: np.ndarray
    """Samples processed in all phases, and below in the phases that move shared parameters."""
    shared_samples: np.ndarray
    stacked: bool
    shapes: list[dict[str, torch.Size]]
    """The personal tensors' true shapes, where they were padded to be stacked."""

    def each(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Apply a function of one client's (carry, *arguments) to all of them; the result is always stacked."""
        if self.stacked:
            return side_by_side(fn)(self.carry, *arguments)
        single = fn(self.carry, *(tree_map(lambda t: t[0], a) for a in arguments))
        return tree_map(lambda t: t.unsqueeze(0), single)

    def own(self, stacked: Params, lane: int) -> Params:
        """One client's tensors out of stacked ones, in their true shapes."""
        shapes = self.shapes[lane] if self.shapes else {}
        return {n: _cut(t[lane], shapes.get(n)).clone() for n, t in stacked.items()}


TrainBlock = Callable[[Federation, ClientProgram, Received, Now, np.ndarray, list[Params]], Iterator[Trained]]


class Backend(NamedTuple):
    """How clients run: one by one, or side by side."""

    name: str
    train: TrainBlock


class Block(NamedTuple):
    """Clients in ascending order, with what each keeps for itself."""

    clients: np.ndarray
    personal: list[Params]


def run_blocks(federation: Federation, backend: Backend, common: tuple[Received, Now], blocks: list[Block]) -> BlockSum:
    """Train blocks of clients and add up what they send, in client order and in float64."""
    received, now = common
    return total(_run_block(federation, backend, received, now, block) for block in blocks)


def _run_block(federation: Federation, backend: Backend, received: Received, now: Now, block: Block) -> BlockSum:
    result = BlockSum()
    for trained in backend.train(federation, federation.program, received, now, block.clients, block.personal):
        _collect(result, federation, received, trained)
    return result


def _collect(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    groups, personal, measured = trained.each(lambda carry: federation.program.finish(received, carry))
    losses = trained.loss.to(torch.float64).tolist()
    lengths = vmap(squared_length)(groups).cpu() if groups else torch.zeros(len(trained.clients))
    sound = (torch.isfinite(lengths) & torch.isfinite(_finiteness(personal, lengths))).tolist()
    measured = {name: values.tolist() for name, values in measured.items()}
    weights = []
    for lane, client in enumerate(trained.clients.tolist()):
        if not sound[lane]:
            result.failures.append(Failure(client, "not finite"))
            continue
        weights.append(federation.weight(client, int(trained.shared_samples[lane])))
        result.add_client(weights[-1], losses[lane], {name: values[lane] for name, values in measured.items()})
        if personal and not federation.algorithm.stateless:
            result.personal[client] = trained.own(personal, lane)
    lanes = [lane for lane, good in enumerate(sound) if good]
    if lanes and groups:
        picked = groups if len(lanes) == len(sound) else tree_map(lambda t: t[lanes], groups)
        _add(result, picked, weights, federation.algorithm.unweighted)


def _add(result: BlockSum, groups: Groups, weights: list[float], unweighted: frozenset[str]) -> None:
    """Lanes are summed at once, single clients one after the other; both in float64 and in client order."""
    if len(weights) == 1:
        result.add_groups(tree_map(lambda t: t[0], groups), weights[0], unweighted)
        return
    device = next(iter(next(iter(groups.values())).values())).device
    factors = torch.tensor(weights, dtype=torch.float64, device=device)
    summed = {
        group: {n: _weighted(t, None if group in unweighted else factors) for n, t in tensors.items()}
        for group, tensors in groups.items()
    }
    result.add_groups(summed)


def _weighted(tensor: Tensor, factors: Tensor | None) -> Tensor:
    values = tensor.to(torch.float64)
    if factors is None:
        return values.sum(0)
    total: Tensor = torch.tensordot(factors, values, dims=1)
    return total


def _finiteness(personal: Params, like: Tensor) -> Tensor:
    """A number per client that is finite exactly when its personal tensors are."""
    floats = [t.flatten(1).to(torch.float64).square().sum(1) for t in personal.values() if t.is_floating_point()]
    return torch.stack(floats).sum(0).cpu() if floats else torch.zeros(like.shape)


def _cut(tensor: Tensor, shape: torch.Size | None) -> Tensor:
    return tensor if shape is None or tensor.shape == shape else tensor[: shape[0]]
