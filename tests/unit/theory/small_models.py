"""A small network and batches for it."""

import torch
from torch import nn


def random(seed):
    return torch.Generator().manual_seed(seed)


def small_network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def batches(clients=3, per_client=4, rows=5):
    draw = random(1)
    return [
        [
            {
                "x": torch.randn(rows, 4, generator=draw, dtype=torch.float64) * (1 + i),
                "y": torch.randint(0, 3, (rows,), generator=draw),
            }
            for _ in range(per_client)
        ]
        for i in range(clients)
    ]
