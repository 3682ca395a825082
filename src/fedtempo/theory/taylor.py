"""AvgGrad and AvgGradInner on real models, and a check of the Taylor claim that FedDecay's ratio rests on.

A client is a list of batches. A round's steps see different batches of the client in random order; a client with a
single batch sees it in every step (full-batch training). Clients count equally, as in the papers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from fedtempo.errors import require
from fedtempo.params import Params, add, scaled, subtract, zeros_like
from fedtempo.randomness import generator
from fedtempo.tasks import Batch
from fedtempo.theory.derivatives import Loss, gradient, hessian_vector
from fedtempo.theory.ratio import gradient_coefficients

MOST_ORDERS = 720
"""All orders of batches are enumerated up to this number, 6!; beyond it the caller says how many to draw."""


@dataclass(frozen=True)
class TaylorTerms:
    """The two directions that a round's expected change is made of, at one point."""

    avg_grad: Params
    """E_{i,k}[g_i^k]: its negative improves the shared model for everybody."""
    avg_grad_inner: Params
    """E_{i,k!=l}[H_i^k g_i^l]: moving along it aligns a client's gradients, so that fine-tuning is fast."""


def taylor_terms(loss: Loss, params: Params, clients: Sequence[Sequence[Batch]]) -> TaylorTerms:
    """AvgGrad and AvgGradInner at `params`, exactly over the given clients and batches.

        AvgGrad = E_{i,k}[grad F_i^k],    AvgGradInner = E_{i,k!=l}[(grad^2 F_i^k) grad F_i^l]

    FedDecay, section 3.2 (equation 9) after Nichol et al. (2018). The mean over ordered pairs of different batches
    costs one Hessian-vector product per batch: `sum_k H_k (sum_l g_l - g_k) / (m (m - 1))`. An only batch pairs with
    itself.
    """
    require(len(clients) > 0 and all(map(len, clients)), "clients", "one or more, each with batches", len(clients))
    average, aligned = zeros_like(params), zeros_like(params)
    for batches in clients:
        gradients = [gradient(loss, params, batch) for batch in batches]
        total = _total(gradients, params)
        average = add(average, total, 1 / (len(batches) * len(clients)))
        # The mean over pairs k != l of H_k g_l needs no loop over pairs: for each k the g_l are summed first.
        for batch, own in zip(batches, gradients, strict=True):
            others = subtract(total, own) if len(batches) > 1 else own
            pairs = len(batches) * max(len(batches) - 1, 1)
            aligned = add(aligned, hessian_vector(loss, params, batch, others), 1 / (pairs * len(clients)))
    return TaylorTerms(average, aligned)


def predicted_method_gradient(terms: TaylorTerms, factors: Sequence[float], lr: float) -> Params:
    """The expected method gradient up to O(lr^2): `B(K) AvgGrad - lr sum_j b_j B(j) AvgGradInner`.

    FedDecay, equation 10 in the general and corrected form of `gradient_coefficients`.
    """
    coefficients = gradient_coefficients(factors, lr)
    return add(scaled(terms.avg_grad, coefficients.avg_grad), terms.avg_grad_inner, -coefficients.avg_grad_inner)


def actual_method_gradient(
    loss: Loss,
    params: Params,
    clients: Sequence[Sequence[Batch]],
    factors: Sequence[float],
    lr: float,
    *,
    orders: int | None = None,
    seed: int = 0,
) -> Params:
    """The expected method gradient `E[sum_j b_j g_i^j] = E[x - y_K] / lr` by walking the local steps.

    FedDecay, equations 7 and 8. The mean is over clients and over all orders of K different batches of each, or over
    `orders` random ones; random orders add sampling noise that does not vanish with lr.
    """
    sums = zeros_like(params)
    for index, batches in enumerate(clients):
        walks = list(_orders(batches, len(factors), orders, seed, index))
        for walk in walks:
            sums = add(sums, _walk(loss, params, walk, factors, lr), 1 / (len(walks) * len(clients)))
    return sums


def _walk(loss: Loss, params: Params, batches: Sequence[Batch], factors: Sequence[float], lr: float) -> Params:
    current, sent = params, zeros_like(params)
    for batch, factor in zip(batches, factors, strict=True):
        step = gradient(loss, current, batch)
        sent = add(sent, step, float(factor))
        current = add(current, step, -lr * factor)
    return sent


def _orders(
    batches: Sequence[Batch], steps: int, orders: int | None, seed: int, client: int
) -> Iterable[Sequence[Batch]]:
    if len(batches) == 1:
        return [[batches[0]] * steps]
    require(steps <= len(batches), "factors", f"at most as many as batches ({len(batches)}), or one batch", steps)
    if orders is None:
        count = math.perm(len(batches), steps)
        require(count <= MOST_ORDERS, "orders", f"given, because {count} orders are more than {MOST_ORDERS}", None)
        return permutations(batches, steps)
    random = generator(seed, "theory", "orders", client)
    return [[batches[k] for k in random.permutation(len(batches))[:steps]] for _ in range(orders)]


def _total(parts: Sequence[Params], like: Params) -> Params:
    total = zeros_like(like)
    for part in parts:
        total = add(total, part)
    return total
