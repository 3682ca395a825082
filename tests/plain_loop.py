"""FedAvg as a loop of plain torch, to compare with what users bring: their modules, losses and optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import fedtempo as ft

Rows = dict[str, Tensor]
STEPS, RATE, BATCH = 3, 0.1, 4


def random_clients(sizes: Sequence[int] = (5, 9, 3, 1), width: int = 6, classes: int = 3) -> list[Rows]:
    """Clients of very different sizes, so that batches have to be padded where clients run side by side."""
    drawn = torch.Generator().manual_seed(0)
    return [
        {
            "x": torch.randn(size, width, generator=drawn, dtype=torch.float64),
            "y": torch.randint(0, classes, (size,), generator=drawn),
        }
        for size in sizes
    ]


def federated(clients: Sequence[Rows]) -> ft.data.FederatedData:
    """The clients as data without validation and test rows."""
    return ft.data.FederatedData.from_clients([{n: c.numpy() for n, c in rows.items()} for rows in clients])


def averaged(
    model: nn.Module, clients: Sequence[Rows], loss: Callable[[nn.Module, Rows], Tensor], rounds: int = 3
) -> dict[str, Tensor]:
    """The parameters and buffers after some rounds; `loss` is a function of a module and a batch."""
    start = copy.deepcopy(model).double()
    for _ in range(rounds):
        ends = [_after_steps(start, rows, loss) for rows in clients]
        with torch.no_grad():
            for name, tensor in _tensors(start).items():
                if tensor.is_floating_point():
                    tensor.copy_(torch.stack([end[name] for end in ends]).mean(0))
    return {name: tensor.detach() for name, tensor in _tensors(start).items()}


def _after_steps(start: nn.Module, rows: Rows, loss: Callable[[nn.Module, Rows], Tensor]) -> dict[str, Tensor]:
    model = copy.deepcopy(start).train()
    descent = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for step in range(STEPS):
        first = step % -(-len(rows["y"]) // BATCH) * BATCH
        descent.zero_grad()
        loss(model, {name: column[first : first + BATCH] for name, column in rows.items()}).backward()  # type: ignore[no-untyped-call]
        descent.step()
    return _tensors(model)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def trained(model: nn.Module, clients: Sequence[Rows], rounds: int = 3, **settings: Any) -> dict[str, Tensor]:
    """The same by FedTempo."""
    result = ft.run(
        model=copy.deepcopy(model),
        data=federated(clients),
        rounds=rounds,
        batch_size=BATCH,
        batches="in_order",
        dtype=torch.float64,
        progress=False,
        **{"init": "model", "algorithm": ft.algorithms.fedavg(lr=RATE, steps=STEPS), "evaluation": None, **settings},
    )
    return {name: tensor.detach() for name, tensor in _tensors(result.model()).items()}
