"""What every backend computes: the sum of what blocks of clients send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from fedtempo.backends.block import Backend, Block, Order, Trained, in_float64
from fedtempo.backends.collect_each import collect_each
from fedtempo.federation.federation import Federation
from fedtempo.objectives import Received
from fedtempo.params import Params, all_finite, tree_map
from fedtempo.server.exact import sum_of_rows
from fedtempo.server.sums import BlockSum, Failure, Groups


def run_blocks(
    federation: Federation, backend: Backend, order: Order, blocks: Iterable[Block], into: BlockSum
) -> BlockSum:
    """Train blocks of clients and add what they send to a sum."""
    (received, now, _), scrutiny = order, federation.scrutiny
    for block in blocks:
        for trained in backend.train(federation, federation.program, received, now, block.clients, block.personal):
            if scrutiny is None:
                _collect(into, federation, received, trained)
            else:
                collect_each(into, federation, scrutiny, order, trained)
    return into


def _collect(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    if trained.stacked:
        _collect_lanes(result, federation, received, trained)
    else:
        _collect_one(result, federation, received, trained)


def _collect_one(result: BlockSum, federation: Federation, received: Received, trained: Trained) -> None:
    client, algorithm = int(trained.clients[0]), federation.algorithm
    groups, personal, measured = federation.program.finish(received, trained.carry)
    if not all_finite((*_tensors(groups), *personal.values())):
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


def _tensors(groups: Groups) -> Iterator[Tensor]:
    return (tensor for tensors in groups.values() for tensor in tensors.values())


def _sound(groups: Groups, personal: Params, lanes: int) -> np.ndarray:
    """Which lanes hold finite numbers only."""
    floats = [t.reshape(lanes, -1) for t in (*_tensors(groups), *personal.values()) if t.is_floating_point()]
    if not floats:
        return np.ones(lanes, dtype=bool)
    sums = torch.stack([t.sum(1, dtype=torch.float64) for t in floats]).sum(0)
    return torch.isfinite(sums).cpu().numpy()
