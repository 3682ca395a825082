"""The loss that rounds of many local steps minimise: the decaying-K paper's surrogate, exact for quadratic clients.

Client i has `f_i(x) = (x - c_i)^T A_i (x - c_i) / 2`. K local steps of rate gamma move it, on average, by
`gamma Q_i A_i (c_i - x)`, so rounds converge to the minimiser of a surrogate, not to that of the mean loss. With
stochastic gradients from independent samples, A_i is the client's mean Hessian and c_i its own minimiser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedtempo.errors import is_count, is_number, require

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratics:
    """Quadratic clients: Hessians A_i (clients, d, d), minimisers c_i (clients, d), probabilities (clients,)."""

    curvatures: Array
    minimisers: Array
    weights: Array

    @classmethod
    def of(cls, curvatures: ArrayLike, minimisers: ArrayLike, weights: ArrayLike | None = None) -> Quadratics:
        """Checked and normalised; clients count equally unless weights are given."""
        hessians = np.asarray(curvatures, dtype=np.float64)
        centres = np.asarray(minimisers, dtype=np.float64)
        count = len(hessians)
        shares = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=np.float64)
        rule = "(clients, d, d) with minimisers (clients, d)"
        fits = hessians.ndim == 3 and hessians.shape == (*centres.shape, centres.shape[-1])
        require(fits, "curvatures", rule, hessians.shape)
        require(np.allclose(hessians, hessians.swapaxes(1, 2)), "curvatures", "symmetric", "asymmetric matrices")
        fair = shares.shape == (count,) and bool((shares >= 0).all()) and shares.sum() > 0
        require(fair, "weights", f"{count} numbers >= 0, not all 0", weights)
        return cls(hessians, centres, shares / shares.sum())

    def curvature_range(self) -> tuple[float, float]:
        """(mu, L): the smallest and the largest eigenvalue of any client's Hessian."""
        eigenvalues = np.linalg.eigvalsh(self.curvatures)
        return float(eigenvalues.min()), float(eigenvalues.max())

    def spread(self) -> tuple[float, float]:
        """(sigma_c, sigma_A): root mean squared distance of minimisers and Hessians (spectral norm) from the mean."""
        centre = np.einsum("i,ia->a", self.weights, self.minimisers)
        hessian = np.einsum("i,iab->ab", self.weights, self.curvatures)
        from_centre = np.linalg.norm(self.minimisers - centre, axis=1)
        from_hessian = np.abs(np.linalg.eigvalsh(self.curvatures - hessian)).max(axis=1)
        return math.sqrt(self.weights @ from_centre**2), math.sqrt(self.weights @ from_hessian**2)


def surrogate_eigenvalue(curvature: float, lr: float, steps: float) -> float:
    """phi_lambda(gamma, K) = `(1 - (1 - gamma lambda)^K) / gamma`: what K steps make of an eigenvalue lambda.

    Decaying-K paper, equation 6: the eigenvalues of Q_i A_i. One step leaves lambda as it is.

    >>> surrogate_eigenvalue(2.0, lr=0.25, steps=2), surrogate_eigenvalue(2.0, lr=0.25, steps=1)
    (3.0, 2.0)
    """
    require(is_number(lr) and lr > 0, "lr", "a number > 0", lr)
    require(is_number(steps) and steps >= 1, "steps", "a number >= 1", steps)
    return float((1 - (1 - lr * curvature) ** steps) / lr)


def distortion(curvature: ArrayLike, lr: float, steps: int) -> Array:
    """Q_i(gamma, K) = `sum_{j<K} (I - gamma A_i)^j`, for one Hessian or a stack of them.

    Decaying-K paper, equation 4 (after Charles and Konecny, 2020). K = 1 gives the identity: no distortion.

    >>> distortion([[2.0]], lr=0.25, steps=3)
    array([[1.75]])
    """
    require(is_number(lr) and lr > 0, "lr", "a number > 0", lr)
    require(is_count(steps), "steps", "an int >= 1", steps)
    hessian = np.asarray(curvature, dtype=np.float64)
    identity = np.broadcast_to(np.eye(hessian.shape[-1]), hessian.shape)
    # Horner's scheme: sum_{j<K} M^j = I + M (I + M (...)).
    total = identity.copy()
    for _ in range(steps - 1):
        total = identity + (identity - lr * hessian) @ total
    return total


def surrogate_gradient(problem: Quadratics, point: ArrayLike, lr: float, steps: int) -> Array:
    """`E_i[Q_i A_i (x - c_i)]`: the mean displacement x - y over gamma, i.e. the gradient of equation 5's surrogate."""
    offsets = np.asarray(point, dtype=np.float64) - problem.minimisers
    distorted = distortion(problem.curvatures, lr, steps) @ problem.curvatures
    return np.asarray(np.einsum("i,iab,ib->a", problem.weights, distorted, offsets))


def surrogate_minimiser(problem: Quadratics, lr: float, steps: int) -> Array:
    """x*(gamma, K): where rounds of K local steps come to rest, the minimiser of the decaying-K paper's equation 5.

        x*(gamma, K) = E[Q_i A_i]^{-1} E[Q_i A_i c_i]

    >>> toy = illustration()
    >>> [round(float(surrogate_minimiser(toy, 0.1, k)[0]), 6) for k in (1, 10)]
    [0.523373, 0.557033]
    """
    distorted = distortion(problem.curvatures, lr, steps) @ problem.curvatures
    matrix = np.einsum("i,iab->ab", problem.weights, distorted)
    vector = np.einsum("i,iab,ib->a", problem.weights, distorted, problem.minimisers)
    return np.asarray(np.linalg.solve(matrix, vector))


def true_minimiser(problem: Quadratics) -> Array:
    """x* = `E[A_i]^{-1} E[A_i c_i]`: the minimiser of the mean loss, which K = 1 reaches for any learning rate."""
    return surrogate_minimiser(problem, 1.0, 1)


def minimiser_gap_bound(problem: Quadratics, lr: float, steps: float) -> float:
    """An upper bound on ||x*(gamma, K) - x*||: equation 7 of the decaying-K paper.

        sigma_c (1 + sigma_A / mu) (L K - phi_L(gamma, K)) / phi_mu(gamma, K)

    Zero for K = 1. The equation is damaged in our copy and its source (Charles and Konecny, 2020) was not at hand, so
    this is proved afresh; every symbol legible in the copy agrees. With B_i = Q_i A_i, C_i = K A_i, c = E[c_i] and
    v_B = E[B_i (c_i - c)], the gap is `B^-1 (v_B - v_C) + (B^-1 - C^-1) v_C`, where ||B^-1|| <= 1 / phi_mu,
    ||B_i - C_i|| <= L K - phi_L and ||v_C|| <= K sigma_A sigma_c.
    """
    mu, smooth = _curvatures(problem, lr)
    centre_spread, hessian_spread = problem.spread()
    lost = smooth * steps - surrogate_eigenvalue(smooth, lr, steps)
    return centre_spread * (1 + hessian_spread / mu) * lost / surrogate_eigenvalue(mu, lr, steps)


def minimiser_shift_bound(problem: Quadratics, lr: float, fewer: float, more: float) -> float:
    """An upper bound on ||x*(gamma, K_1) - x*(gamma, K_2)|| for K_1 <= K_2.

    Decaying-K paper, Theorem 1 (equation 8), whose proof holds:

        sigma_c (1 + phi_L(K_2) / phi_mu(K_2)) (phi_L(K_1) - K_1/K_2 phi_L(K_2)) / phi_mu(K_1)
    """
    mu, smooth = _curvatures(problem, lr)
    require(1 <= fewer <= more, "fewer", f"in [1, more = {more}]", fewer)
    low_fewer, low_more = (surrogate_eigenvalue(mu, lr, k) for k in (fewer, more))
    high_fewer, high_more = (surrogate_eigenvalue(smooth, lr, k) for k in (fewer, more))
    return problem.spread()[0] * (1 + high_more / low_more) * (high_fewer - fewer / more * high_more) / low_fewer


def simple_shift_bound(problem: Quadratics, lr: float, fewer: float, more: float) -> float:
    """A looser `minimiser_shift_bound` that shows how it depends on K: `2 sigma_c (L / mu)^2 (K_2 - K_1) / K_2`.

    Decaying-K paper, Corollary 1 (equation 9). Its K_2 in the denominator may be dropped (equation 10).
    """
    mu, smooth = _curvatures(problem, lr)
    require(1 <= fewer <= more, "fewer", f"in [1, more = {more}]", fewer)
    return 2 * problem.spread()[0] * (smooth / mu) ** 2 * (more - fewer) / more


def illustration(nodes: int = 32) -> Quadratics:
    """The decaying-K paper's toy (section 3): `f_z(x) = z x^2 / 2 - x` with z in [1, 3] of density ~ z^(-1/2).

    Substituting z = u^2 makes u uniform on [1, sqrt 3]; Gauss-Legendre nodes then give expectations over the continuous
    clients to machine precision. The true minimiser is 3 (sqrt 3 - 1) / (3 sqrt 3 - 1) = 0.523373.

    >>> round(float(true_minimiser(illustration())[0]), 6)
    0.523373
    """
    abscissae, weights = np.polynomial.legendre.leggauss(nodes)
    z = (1 + (math.sqrt(3) - 1) * (abscissae + 1) / 2) ** 2
    return Quadratics.of(z[:, None, None], (1 / z)[:, None], weights)


def _curvatures(problem: Quadratics, lr: float) -> tuple[float, float]:
    mu, smooth = problem.curvature_range()
    require(mu > 0, "curvatures", "positive definite", f"a smallest eigenvalue of {mu:g}")
    require(is_number(lr) and 0 < lr <= 1 / smooth, "lr", f"a number in (0, 1/L] = (0, {1 / smooth:g}]", lr)
    return mu, smooth
