"""FedBN: normalisation layers stay at the client."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.client.network import Network
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Hook
from fedtempo.params import Params, combine, of_type, select, subtract
from fedtempo.schedules import Rate
from fedtempo.server.sums import Groups
from fedtempo.tasks import Batch, Task

NORMALISATION = of_type(_BatchNorm, optional=True)


@named
def fedbn(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    newcomer: Literal["fresh", "averaged"] = "fresh",
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedAvg on everything but BatchNorm: its weights, biases and statistics are personal (Li et al., 2021).

    Layers are found by type, not by name as in the authors' code. A new client starts from fresh BatchNorm tensors and
    gets its own statistics by fine-tuning. With `newcomer="averaged"` clients also send their BatchNorm weights and
    biases, the server averages them, and a new client takes the averages, with the statistics of its own training
    rows in one pass; clients of the federation keep their own. Without BatchNorm this is FedAvg.
    """
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    if newcomer == "fresh":
        return replace(plain, personal=NORMALISATION)
    tuned = plain.phases[0].hooked(Hook(enter=_own_statistics))
    return replace(
        plain,
        memory=Memory(initial_state=select, of=NORMALISATION),
        uploads=Uploads(_all_displacements),
        serving=Serving(newcomer_phases=(tuned,), finetune_like=plain.phases[0]),
    )


def _all_displacements(received: Received, carry: Carry) -> Groups:
    return {"delta": subtract(select(combine(carry.shared, carry.personal), received.shared), received.shared)}


def _own_statistics(network: Network, task: Task, received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
    """Running means and variances become those of these rows."""
    found: Params = {n: torch.zeros_like(carry.personal[n]) for n in network.buffers if n in carry.personal}
    # Dropout is on, as it was when the layers after it learnt. One key for everybody: the statistics are of the rows.
    key = torch.zeros((), dtype=torch.int64, device=next(iter(carry.shared.values())).device)
    others = {n: carry.shared[n].clone() for n in network.buffers if n in carry.shared}
    given = {**carry.shared, **others, **carry.personal, **found}
    network.forward_updating(given, {**data, "_key": key}, train=True)
    found = {n: given[n] for n in found}
    # From zero, one pass leaves momentum times the rows' statistics. Without a momentum it leaves the statistics.
    momenta = {p: m.momentum or 1.0 for p, m in network.training.named_modules() if isinstance(m, _BatchNorm)}
    scaled = {n: t / momenta[n.rpartition(".")[0]] if t.is_floating_point() else t for n, t in found.items()}
    return carry._replace(personal={**carry.personal, **scaled}), data
