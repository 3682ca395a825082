"""Measures of how much clients disagree: gradient diversity, and Gamma where the model is convex."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.client.network import Network, tensors_of
from fedtempo.errors import require
from fedtempo.params import Params, add, norm, scaled, squared_norm, zeros_like
from fedtempo.randomness import generator
from fedtempo.tasks import Batch, PerSample, Task, as_task
from fedtempo.theory.derivatives import Loss, gradient

CONVEX_TASKS = ("classification", "language", "multilabel", "regression")
"""Tasks whose loss is convex in the model's outputs."""


def row_shares(clients: Sequence[Batch]) -> list[float]:
    """Each client's share p_i of all rows."""
    sizes = [len(next(iter(batch.values()))) for batch in clients]
    return [size / sum(sizes) for size in sizes]


def gradient_diversity(gradients: Sequence[Params], weights: Sequence[float] | None = None) -> float:
    """How little clients' gradients agree: `sum_i p_i ||g_i||^2 / ||sum_i p_i g_i||^2`, never below 1.

    1 when all are equal, the number of clients when equally long and orthogonal, infinite when they cancel out. It is
    FedProx's dissimilarity B^2. The p_i are equal unless given.

    >>> gradient_diversity([{"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 1.0])}])
    2.0
    """
    count = len(gradients)
    shares = [1 / count] * count if weights is None else list(weights)
    require(count > 0 and len(shares) == count, "weights", f"one number per gradient ({count})", shares)
    mean, energy = zeros_like(gradients[0]), 0.0
    for share, own in zip(shares, gradients, strict=True):
        mean = add(mean, scaled(own, share))
        energy += share * float(squared_norm(own))
    common = float(squared_norm(mean)) / sum(shares)
    return energy / common if common > 0 else (1.0 if energy == 0 else float("inf"))


def dealt_at_random(clients: Sequence[Batch], seed: int = 0) -> list[Batch]:
    """The same rows dealt to as many clients of the same sizes, in random order: what no heterogeneity looks like."""
    pool = {name: torch.cat([batch[name] for batch in clients]) for name in clients[0]}
    sizes = [len(next(iter(batch.values()))) for batch in clients]
    order = torch.from_numpy(generator(seed, "theory", "deal").permutation(sum(sizes)))
    hands = torch.split(order, sizes)
    return [{name: column[hand] for name, column in pool.items()} for hand in hands]


def disagreement(loss: Loss, params: Params, clients: Sequence[Batch], seed: int = 0, deals: int = 4) -> float | None:
    """The share of the clients' squared gradients that is there because their data differ, in [0, 1].

        1 - diversity(rows dealt at random) / diversity(clients as they are)

    Gradient diversity alone is also large when clients are merely small, because few rows make noisy gradients. The
    same rows dealt at random have that noise and no heterogeneity. 0: the clients look like draws from one population.
    None where every client has one row, as with graphs: dealing only renames such clients.
    """
    if all(len(next(iter(batch.values()))) == 1 for batch in clients):
        return None
    shares = row_shares(clients)

    def diversity(batches: Sequence[Batch]) -> float:
        return gradient_diversity([gradient(loss, params, batch) for batch in batches], shares)

    by_chance = float(np.mean([diversity(dealt_at_random(clients, seed + deal)) for deal in range(deals)]))
    measured = diversity(clients)
    return min(1.0, max(0.0, 1 - by_chance / measured)) if np.isfinite(measured) else 1.0


def is_convex(model: nn.Module, example: Batch, loss: str | Task | PerSample | None = None) -> bool:
    """Whether the loss is convex in the parameters: the outputs are affine in them and the task's loss is convex.

    Affinity is tested, not proved: outputs halfway between two random points must be the mean of the outputs. A loss of
    your own counts as not convex, because nothing is known about it.
    """
    if as_task(loss, example.get("y")).name not in CONVEX_TASKS:
        return False
    network = Network(model)
    tensors = tensors_of(model, torch.float64, "cpu")

    def outputs(*points: int) -> Tensor:
        drawn = [_random_like(tensors, network.parameters, point) for point in points]
        mean = {name: torch.stack([d[name] for d in drawn]).mean(0) for name in network.parameters}
        return network.forward({**tensors, **mean}, example)

    return torch.allclose(outputs(0, 1), (outputs(0) + outputs(1)) / 2, rtol=1e-8, atol=1e-8)


def optimality_gap(
    loss: Loss, params: Params, clients: Sequence[Batch], *, iterations: int = 200, tolerance: float = 1e-4
) -> float | None:
    """Gamma = `F* - sum_i p_i F_i*`: how much worse one model does than each client's own. Convex losses only.

    FedDecay's Theorem 1, after Li et al. (2020). Every minimum is found by full-batch L-BFGS from `params`, until the
    gradient has shrunk by `tolerance`; None if one is not reached. For a loss that is not convex the number would mean
    nothing: ask `is_convex` first. Small clients make Gamma large even if alike, since they can be fitted exactly.
    """
    shares = row_shares(clients)

    def mean_loss(at: Params) -> Tensor:
        parts = [share * loss(at, batch) for share, batch in zip(shares, clients, strict=True)]
        return torch.stack(parts).sum()

    shared = _minimum(mean_loss, params, iterations, tolerance)
    own = [_minimum(_only(loss, batch), params, iterations, tolerance) for batch in clients]
    if shared is None or None in own:
        return None
    return max(0.0, shared - sum(share * low for share, low in zip(shares, own, strict=True) if low is not None))


def _only(loss: Loss, batch: Batch) -> Callable[[Params], Tensor]:
    return lambda at: loss(at, batch)


def _minimum(fn: Callable[[Params], Tensor], start: Params, iterations: int, tolerance: float) -> float | None:
    variables = {name: p.detach().clone().requires_grad_(True) for name, p in start.items()}
    leaves = list(variables.values())
    # Data that can be fitted exactly have their minimum at infinity: where the loss stands still, the search may end.
    still = 1e-10 * tolerance
    search = torch.optim.LBFGS(
        leaves, max_iter=iterations, tolerance_grad=0.0, tolerance_change=still, line_search_fn="strong_wolfe"
    )

    def slope() -> float:
        gradients = torch.autograd.grad(fn(variables), leaves)
        return float(norm(dict(zip(variables, gradients, strict=True))))

    def closure() -> float:
        search.zero_grad()
        value = fn(variables)
        torch.autograd.backward([value])
        return float(value.detach())

    first = slope()
    search.step(closure)  # type: ignore[no-untyped-call]
    value = float(fn(variables).detach())
    return value if np.isfinite(value) and slope() <= tolerance * max(first, 1e-12) else None


def _random_like(tensors: Params, names: Sequence[str], point: int) -> Params:
    random = generator(point, "theory", "affine")
    return {name: torch.from_numpy(random.standard_normal(tuple(tensors[name].shape))) for name in names}
