"""Uploads one by one: faults injected, admission checked, displacements bounded; then into the sum."""

from __future__ import annotations

import numpy as np
import torch

from fedtempo.backends.block import Order, Trained, in_float64
from fedtempo.federation.federation import Federation
from fedtempo.params import tree_map
from fedtempo.server.admission import length_of, refusal
from fedtempo.server.faults import corrupted
from fedtempo.server.policy import Scrutiny
from fedtempo.server.sums import BlockSum, Failure, Groups


def collect_each(result: BlockSum, federation: Federation, scrutiny: Scrutiny, order: Order, trained: Trained) -> None:
    """Add what clients send, in client order; a refused client leaves only its name and the reason."""
    stacked, personal, measured = trained.each(lambda carry: federation.program.finish(order.received, carry))
    losses, numbers = in_float64(trained.loss), {name: in_float64(values) for name, values in measured.items()}
    kinds = scrutiny.faults.assigned(federation.seed, order.now.round, trained.clients)
    for lane, (client, kind) in enumerate(zip(trained.clients.tolist(), kinds, strict=True)):
        groups = corrupted(tree_map(lambda t, i=lane: t[i], stacked), kind, scrutiny.faults.delay)
        weight = federation.weight(client, int(trained.shared_samples[lane]))
        own = trained.own(personal, lane)
        reason = None
        if scrutiny.admission.checks:
            reason = refusal(groups, weight, federation.expected, order.limit)
            sound = all(bool(torch.isfinite(t).all()) for t in own.values() if t.is_floating_point())
            reason = reason if sound or reason else "not finite"
        if reason is not None:
            result.failures.append(Failure(client, reason))
            continue
        result.add_clients(
            np.array([weight]), losses[lane : lane + 1], {n: v[lane : lane + 1] for n, v in numbers.items()}
        )
        if own and not federation.algorithm.stateless:
            result.personal[client] = own
        add_admitted(result, groups, weight, federation, scrutiny)


def add_admitted(result: BlockSum, groups: Groups, weight: float, federation: Federation, scrutiny: Scrutiny) -> None:
    """Add one upload that counts, bounded as the aggregator says, with what a look at each upload needs."""
    groups = scrutiny.aggregator.bounded(groups)
    if groups.get("delta"):
        result.norms.append(length_of(groups))
    if scrutiny.aggregator.combine is not None:
        result.each.append((weight, groups["delta"]))
    result.add_upload(groups, weight, federation.algorithm.unweighted)
