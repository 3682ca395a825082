"""q-FedAvg, q-FedSGD, AFL and weights by loss in numpy, written from the specification alone."""

import numpy as np

from tests.numbers.personal_and_fair.network import (
    Arrays,
    Rows,
    average,
    descend,
    distance,
    gradient,
    loss,
    loss_of,
    plus,
)


def q_fedavg(clients: list[Rows], x: Arrays, cohorts, *, lr, steps, q, static=False, rate_decay=1.0) -> Arrays:
    for t, cohort in enumerate(cohorts):
        rate, total, height = lr * rate_decay**t, {n: np.zeros_like(a) for n, a in x.items()}, 0.0
        for i in cohort:
            F = float(loss(x, clients[i])) + 1e-10
            y = descend(loss_of(clients[i]), x, rate, steps)
            u = {n: (x[n] - y[n]) / rate for n in x}
            total = plus(total, u, F**q)
            h = q * F ** (q - 1) * distance(u, {n: 0 * a for n, a in u.items()}) + F**q / rate
            height += 1 / rate if static else h
        x = plus(x, total, -1 / height)
    return x


def projected(z: np.ndarray) -> np.ndarray:
    """On the simplex, by bisection for the theta with sum max(z - theta, 0) = 1."""
    low, high = z.min() - 1, z.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(z - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(z - low, 0)


def afl(clients: list[Rows], x: Arrays, cohorts, *, lr, weights_lr) -> tuple[Arrays, np.ndarray, Arrays]:
    count = len(clients)
    weights, seen = np.full(count, 1 / count), []
    for cohort in cohorts:
        scale, losses = count / len(cohort), np.zeros(count)
        direction = {n: np.zeros_like(a) for n, a in x.items()}
        for i in cohort:
            losses[i] = scale * float(loss(x, clients[i]))
            direction = plus(direction, gradient(loss_of(clients[i]), x), scale * weights[i])
        x = plus(x, direction, -lr)
        weights = projected(weights + weights_lr * losses)
        seen.append(x)
    return x, weights, average(seen, [1] * len(seen))


def loss_weighted(clients: list[Rows], x: Arrays, cohorts, *, lr, steps, phi) -> Arrays:
    for cohort in cohorts:
        weights = [phi(float(loss(x, clients[i]))) for i in cohort]
        x = average([descend(loss_of(clients[i]), x, lr, steps) for i in cohort], weights)
    return x
