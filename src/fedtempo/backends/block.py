"""What every backend computes: the trained carries of a block of clients, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedtempo.aggregation import BlockSum, ClientReport, Failure, squared_length
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


def run_block(
    backend: Backend, federation: Federation, received: Received, now: Now, clients: np.ndarray, personal: list[Params]
) -> BlockSum:
    """Train a block of clients and add up what they send, in client order and in float64."""
    result = BlockSum()
    for trained in backend.train(federation, federation.program, received, now, clients, personal):
        _collect(result, federation, received, trained)
    return result


def _collect(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    groups, personal, measured = trained.each(lambda carry: federation.program.finish(received, carry))
    loss = trained.loss.to(torch.float64).cpu()
    lengths = vmap(squared_length)(groups) if groups else torch.zeros(len(trained.clients))
    sound = (torch.isfinite(lengths.cpu()) & torch.isfinite(_finiteness(personal, lengths))).tolist()
    measured = {name: values.cpu() for name, values in measured.items()}
    weights = []
    for lane, client in enumerate(trained.clients.tolist()):
        if not sound[lane]:
            result.failures.append(Failure(client, "not finite"))
            weights.append(0.0)
            continue
        weights.append(federation.weight(client, int(trained.shared_samples[lane])))
        numbers = {name: float(values[lane]) for name, values in measured.items()}
        result.reports.append(
            ClientReport(
                client, weights[-1], float(loss[lane]), int(trained.steps[lane]), int(trained.samples[lane]), numbers
            )
        )
        if personal and not federation.algorithm.stateless:
            result.personal[client] = trained.own(personal, lane)
    _add(result, federation, groups, weights, sound)


def _add(
    result: BlockSum, federation: Federation, groups: dict[str, Params], weights: list[float], sound: list[bool]
) -> None:
    """Lanes are summed at once, single clients one after the other; both in float64 and in client order."""
    lanes = [lane for lane, good in enumerate(sound) if good]
    if not lanes or not groups:
        result.weight += sum(weights)
        return
    if len(sound) == 1:
        result.add(tree_map(lambda t: t[0], groups), weights[0], federation.algorithm.unweighted)
        return
    device = next(iter(next(iter(groups.values())).values())).device
    factors = torch.tensor([weights[lane] for lane in lanes], dtype=torch.float64, device=device)
    picked = groups if len(lanes) == len(sound) else tree_map(lambda t: t[lanes], groups)
    summed = {
        group: {
            n: _weighted(t, None if group in federation.algorithm.unweighted else factors) for n, t in tensors.items()
        }
        for group, tensors in picked.items()
    }
    before = result.weight
    result.add(summed, 1.0, ())
    result.weight = before + float(factors.sum())


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
