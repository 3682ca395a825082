"""The decaying-K paper's Theorem 2: schedules of K_t and eta_t, and how near the model then is to the true minimiser.

Our copy of the theorem is damaged. What is unreadable in it was filled in from the proof: b = 3 kappa^2 (the proof uses
kappa^2 < b), K_t = max(K_0 / (b + t), 1) (eq. 58), and C = 4 sigma_c^2 kappa^2 K_0^2 (eqs. 59 to 68). K is continuous
here, as in the paper; a run rounds it up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedtempo.errors import is_count, is_number, require
from fedtempo.schedules import Schedule
from fedtempo.theory.surrogate import Quadratics, surrogate_eigenvalue


@dataclass(frozen=True)
class DecayingSteps:
    """The theorem for one problem, client rate gamma = `lr` and first number of steps K_0 = `first_steps`."""

    strong_convexity: float
    smoothness: float
    centre_spread: float
    """sigma_c: the root mean squared distance of the clients' minimisers from their mean."""
    lr: float
    first_steps: float

    @classmethod
    def of(cls, problem: Quadratics, lr: float, first_steps: float) -> DecayingSteps:
        """The theorem for quadratic clients; gamma must be at most ln(2) / (K_0 mu) and 1 / L."""
        mu, smooth = problem.curvature_range()
        require(mu > 0, "curvatures", "positive definite", f"a smallest eigenvalue of {mu:g}")
        require(is_number(first_steps) and first_steps >= 1, "first_steps", "a number >= 1", first_steps)
        most = min(math.log(2) / (first_steps * mu), 1 / smooth)
        require(is_number(lr) and 0 < lr <= most, "lr", f"a number in (0, {most:g}]", lr)
        return cls(mu, smooth, problem.spread()[0], lr, first_steps)

    @property
    def offset(self) -> float:
        """b = 3 kappa^2."""
        return 3 * (self.smoothness / self.strong_convexity) ** 2

    def steps(self, round_number: int) -> float:
        """K_t = max(K_0 / (b + t), 1), t from 1; the first round of a run is round 0, which is t = 1."""
        return max(self.first_steps / (self.offset + round_number + 1), 1.0)

    def server_rate(self, round_number: int) -> float:
        """eta_t = 3 / (phi_mu(gamma, K_t) (b + t)), for the sum of a client's gradients."""
        curvature = surrogate_eigenvalue(self.strong_convexity, self.lr, self.steps(round_number))
        return 3 / (curvature * (self.offset + round_number + 1))

    def schedules(self) -> tuple[Schedule, Schedule]:
        """`steps` and `server_lr` for `fedavg`: it averages displacements, which are gamma times sums of gradients."""
        steps = Schedule("theorem_steps", {}, lambda now: self.steps(now.round))
        return steps, Schedule("theorem_server_lr", {}, lambda now: self.server_rate(now.round) / self.lr)

    def bound(self, rounds: int, *, distance: float, noise: float, cohort: int, batch: int) -> float:
        """An upper bound on E||x_t - x*||^2 after `rounds` rounds: `(2 nu + 16 sigma_c^2 kappa^2 K_0^2) / (b + t)`.

        nu = max(36 G^2 / (mu^2 K_0 M B), (b + 1) ||x_1 - x_1*||^2) (eqs. 12 and 13). `distance` is the first model's
        from the first surrogate's minimiser, `noise` G^2, `cohort` M, `batch` B.
        """
        require(is_count(rounds, 0), "rounds", "an int >= 0", rounds)
        kappa = self.smoothness / self.strong_convexity
        sampled = 36 * noise / (self.strong_convexity**2 * self.first_steps * cohort * batch)
        nu = max(sampled, (self.offset + 1) * distance**2)
        spread = 16 * (self.centre_spread * kappa * self.first_steps) ** 2
        return (2 * nu + spread) / (self.offset + rounds + 1)
