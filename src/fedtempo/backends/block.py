"""What every backend computes: the trained carries of a block of clients, and their sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedtempo.aggregation import BlockSum, Failure, Groups, finite, total
from fedtempo.exact import sum_of_rows
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
        return {
            n: _cut(t[lane], shapes.get(n)).clone(memory_format=torch.contiguous_format) for n, t in stacked.items()
        }


TrainBlock = Callable[[Federation, ClientProgram, Received, Now, np.ndarray, list[Params]], Iterator[Trained]]


class Backend(NamedTuple):
    """How clients run: one by one, or side by side."""

    name: str
    train: TrainBlock


class Block(NamedTuple):
    """Clients in ascending order, with what each keeps for itself."""

    clients: np.ndarray
    personal: list[Params]


class Order(NamedTuple):
    """What all blocks of a round share; `limit` is the largest norm that admission allows."""

    received: Received
    now: Now
    limit: float = math.inf


def run_blocks(federation: Federation, backend: Backend, order: Order, blocks: list[Block]) -> BlockSum:
    """Train blocks of clients and add up what they send."""
    return total(_run_block(federation, backend, order, block) for block in blocks)


def _run_block(federation: Federation, backend: Backend, order: Order, block: Block) -> BlockSum:
    from fedtempo.backends.each import collect_each

    result, (received, now, limit), scrutiny = BlockSum(), order, federation.scrutiny
    for trained in backend.train(federation, federation.program, received, now, block.clients, block.personal):
        if scrutiny is None:
            _collect(result, federation, received, trained)
        else:
            collect_each(result, federation, scrutiny, received, now, limit, trained)
    return result


def _collect(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    if trained.stacked:
        _collect_lanes(result, federation, received, trained)
    else:
        _collect_one(result, federation, received, trained)


def _collect_one(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    client, algorithm = int(trained.clients[0]), federation.algorithm
    groups, personal, measured = federation.program.finish(received, trained.carry)
    if not finite((*_tensors(groups), *personal.values())):
        result.failures.append(Failure(client, "not finite"))
        return
    weight = federation.weight(client, int(trained.shared_samples[0]))
    numbers = {name: in_float64(value.view(1)) for name, value in measured.items()}
    result.add_clients(np.array([weight]), in_float64(trained.loss), numbers)
    if personal and not algorithm.stateless:
        result.personal[client] = {n: t.clone(memory_format=torch.contiguous_format) for n, t in personal.items()}
    result.add_upload(groups, weight, algorithm.unweighted)


def _collect_lanes(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    """What several clients leave, added up at once."""
    groups, personal, measured = trained.each(lambda carry: federation.program.finish(received, carry))
    sound = _sound(groups, personal, len(trained.clients))
    if not sound.all():
        result.failures += [Failure(client, "not finite") for client in trained.clients[~sound].tolist()]
    lanes = np.flatnonzero(sound)
    weights = _weights(federation, trained.clients[lanes], trained.shared_samples[lanes])
    numbers = {name: in_float64(values)[lanes] for name, values in measured.items()}
    result.add_clients(weights, in_float64(trained.loss)[lanes], numbers)
    if personal and not federation.algorithm.stateless:
        for lane in lanes.tolist():
            result.personal[int(trained.clients[lane])] = trained.own(personal, lane)
    if len(lanes) and groups:
        picked = groups if sound.all() else tree_map(lambda t: t[torch.from_numpy(lanes)], groups)
        _add(result, picked, weights, federation.algorithm.unweighted)


def _weights(federation: Federation, clients: np.ndarray, processed: np.ndarray) -> np.ndarray:
    """How much each client's upload counts: `Federation.weight` for many at once."""
    kind = federation.algorithm.weighting
    if kind == "uniform":
        return np.ones(len(clients))
    return (federation.sizes[clients] if kind == "samples" else processed).astype(np.float64)


def _add(result: BlockSum, groups: Groups, weights: np.ndarray, unweighted: frozenset[str]) -> None:
    device = next(_tensors(groups)).device
    factors = torch.from_numpy(weights).to(device)
    result.add_sums(
        {
            group: {n: sum_of_rows(t, None if group in unweighted else factors) for n, t in tensors.items()}
            for group, tensors in groups.items()
        }
    )


def in_float64(values: Tensor) -> np.ndarray:
    """A vector's numbers for the sums."""
    return values.detach().to("cpu", torch.float64).numpy()


def _tensors(groups: Groups) -> Iterator[Tensor]:
    return (tensor for tensors in groups.values() for tensor in tensors.values())


def _sound(groups: Groups, personal: Params, lanes: int) -> np.ndarray:
    """Which lanes hold finite numbers only."""
    floats = [t.reshape(lanes, -1) for t in (*_tensors(groups), *personal.values()) if t.is_floating_point()]
    if not floats:
        return np.ones(lanes, dtype=bool)
    sums = torch.stack([t.sum(1, dtype=torch.float64) for t in floats]).sum(0)
    return torch.isfinite(sums).cpu().numpy()


def _cut(tensor: Tensor, shape: torch.Size | None) -> Tensor:
    return tensor if shape is None or tensor.shape == shape else tensor[: shape[0]]
