"""FedNAR's Lemma 1: what weight decay inside the local steps does to the global update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtempo.errors import is_count, is_number, require


@dataclass(frozen=True)
class Displacement:
    """A client's `x_0 - x_tau`, split in `shrinkage * x_0` (from weight decay) and `pull` (from gradients)."""

    shrinkage: float
    pull: Tensor

    def of(self, start: Tensor) -> Tensor:
        """`x_0 - x_tau` for this start."""
        return self.shrinkage * start + self.pull


def local_displacement(gradients: Tensor, rates: Sequence[float], decays: Sequence[float]) -> Displacement:
    """What tau local steps `x <- (1 - u_j) x - l_j g_j` moved a client by, in closed form.

        x_0 - x_tau = (1 - prod_j (1 - u_j)) x_0 + sum_j l_j prod_{r=j+1}^{tau-1} (1 - u_r) g_j

    FedNAR, Lemma 1 (equation 1) for one client, `gradients[j]` = g_j. The paper starts the inner product at r = j;
    step j's own decay does not touch its gradient, so it must start at r = j + 1. `decays` are the paper's
    mu_j, i.e. learning rate times torch's `weight_decay`, after FedNAR's clipping where there is any.

    >>> local_displacement(torch.tensor([[1.0], [1.0]]), rates=[0.1, 0.1], decays=[0.5, 0.5]).pull
    tensor([0.1500])
    """
    count = len(gradients)
    require(count > 0 and len(rates) == count, "rates", f"one number per gradient ({count})", list(rates))
    require(len(decays) == count, "decays", f"one number per gradient ({count})", list(decays))
    kept, pull = 1.0, torch.zeros_like(gradients[0])
    for gradient, rate, decay in zip(reversed(list(gradients)), reversed(rates), reversed(decays), strict=True):
        pull = pull + rate * kept * gradient
        kept *= 1 - decay
    return Displacement(1 - kept, pull)


def global_displacement(clients: Sequence[Displacement], server_lr: float = 1.0) -> Displacement:
    """Lemma 1 of FedNAR for the whole round: `x_t = (1 - mu_g) x_{t-1} - lambda_g h_t`.

    `shrinkage` is mu_g = lambda_g (1 - mean_i prod_j (1 - u_ij)) and `pull` is lambda_g h_t; clients count equally.
    """
    require(len(clients) > 0, "clients", "one or more displacements", len(clients))
    count = len(clients)
    shrinkage = server_lr * sum(client.shrinkage for client in clients) / count
    pull = server_lr * torch.stack([client.pull for client in clients]).sum(0) / count
    return Displacement(shrinkage, pull)


def round_shrinkage(weight_decay: float, lr: float, steps: int) -> float:
    """The share of the weights that a round's weight decay takes away: `1 - (1 - lr weight_decay)^K`.

    FedNAR, Lemma 1 with constant u = lr weight_decay and server rate 1: it grows with K towards 1.

    >>> round(round_shrinkage(0.1, lr=0.1, steps=20), 4)
    0.1821
    """
    require(is_number(weight_decay) and weight_decay >= 0, "weight_decay", "a number >= 0", weight_decay)
    require(is_number(lr) and lr > 0, "lr", "a number > 0", lr)
    require(is_count(steps), "steps", "an int >= 1", steps)
    return 1 - (1 - lr * weight_decay) ** steps


def weight_decay_for(shrinkage: float, lr: float, steps: int) -> float:
    """The weight decay whose `round_shrinkage` is this one: `(1 - (1 - shrinkage)^(1/K)) / lr`.

    >>> round(weight_decay_for(0.01, lr=0.1, steps=10), 6)
    0.010045
    """
    require(is_number(shrinkage) and 0 <= shrinkage < 1, "shrinkage", "a number in [0, 1)", shrinkage)
    require(is_number(lr) and lr > 0, "lr", "a number > 0", lr)
    require(is_count(steps), "steps", "an int >= 1", steps)
    return float((1 - (1 - shrinkage) ** (1 / steps)) / lr)
