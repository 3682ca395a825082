"""Measuring a model and its clients before training, on a seeded sample of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from fedtempo.data.federated import FederatedData
from fedtempo.errors import is_count, require
from fedtempo.models.weights import build
from fedtempo.randomness import generator
from fedtempo.tasks import Batch, PerSample, Task
from fedtempo.theory.derivatives import gradient, largest_eigenvalue, model_loss
from fedtempo.theory.heterogeneity import disagreement, gradient_diversity, is_convex, optimality_gap, row_shares
from fedtempo.theory.measurements import Measurements

MOST_FOR_GAMMA = 100_000
"""Parameters of a model up to which Gamma is looked for without being asked: that takes seconds."""


def sample_clients(data: FederatedData, clients: int = 16, rows: int = 256, seed: int = 0) -> list[Batch]:
    """The training rows, at most `rows` each, of at most `clients` random training clients, in float64."""
    require(is_count(clients), "clients", "an int >= 1", clients)
    require(is_count(rows), "rows", "an int >= 1", rows)
    random = generator(seed, "theory", "clients")
    chosen = sorted(random.choice(data.clients, min(clients, len(data.clients)), replace=False))
    batches = []
    for client in chosen:
        positions = data.positions(int(client), "train")
        if len(positions) > rows:
            positions = positions[generator(seed, "theory", "rows", int(client)).permutation(len(positions))[:rows]]
        batches.append(data.take(positions, torch.float64))
    return batches


def measure(
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedData,
    *,
    lr: float,
    steps: int,
    rounds: int,
    loss: str | Task | PerSample | None = None,
    clients: int = 16,
    rows: int = 256,
    seed: int = 0,
    gamma: bool | None = None,
) -> Measurements:
    """Disagreement, gradient diversity, curvature and (for convex models) Gamma at the model's first weights.

    The weights are the ones a run with this seed would start from. Disagreement hardly changes over early training
    on label-skewed digits, which is why one look at the start is taken as enough. Only a seeded sample of the clients
    is looked at. Gamma needs a minimum for each of them, which takes minutes for a large model: it is looked for where
    the model is convex and has at most `MOST_FOR_GAMMA` parameters, or where `gamma` says so.

    >>> from fedtempo.data import dirichlet, load
    >>> from fedtempo.models import mlp
    >>> data = load("digits").split(dirichlet(clients=20, alpha=0.3), seed=0)
    >>> 0 < measure(mlp(64, [16], 10), data, lr=0.1, steps=10, rounds=100).disagreement < 1
    True
    """
    batches = sample_clients(data, clients, rows, seed)
    fresh, _ = build(model, seed)
    fn, params = model_loss(fresh, batches[0], loss)
    pooled = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    shares = row_shares(batches)
    gradients = [gradient(fn, params, batch) for batch in batches]
    size = sum(p.numel() for p in params.values())
    convex = gamma is not False and is_convex(fresh, batches[0], loss)
    sought = convex and (gamma is True or size <= MOST_FOR_GAMMA)
    return Measurements(
        disagreement=disagreement(fn, params, batches, seed),
        gradient_diversity=gradient_diversity(gradients, shares),
        smoothness=largest_eigenvalue(fn, params, pooled, seed=seed, tolerance=1e-3),
        lr=lr,
        steps=steps,
        rounds=rounds,
        gamma=optimality_gap(fn, params, batches) if sought else None,
        clients=len(batches),
        too_large_for_gamma=size if convex and not sought else 0,
    )
