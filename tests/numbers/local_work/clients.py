"""Numpy references for what clients do: step sizes, stops, perturbed gradients. Written from the papers' formulas.

A client is a function (round t, client i, received x) -> D_i; a closure holds what it keeps between rounds.
"""

from collections.abc import Callable

import numpy as np

from tests.numbers.single_model.reference import Client, Vector, at

Gradient = Callable[[int, Vector], Vector]


def unit(v: Vector) -> Vector:
    length = np.sqrt(v @ v)
    return v / length if length > 0 else np.zeros_like(v)


def delta_sgd(
    p, rate, steps, gamma=2.0, delta=0.1, theta=1.0, mu=0.0, first_grows=False, eps=0.0, inside=None, shape=None
) -> Client:
    """eta_0 anew each round; both gradients contain mu (y - x); `inside` are factors b_k, `shape` is FedNAR's."""

    def client(t: int, i: int, x: Vector) -> Vector:
        def g(y: Vector) -> Vector:
            return p.gradient(i, y) + mu * (y - x)

        y, old, eta, ratio = x, x, at(rate, t), theta
        for k in range(at(steps, t)):
            if k == 0 and first_grows:
                ratio = np.sqrt(1 + delta * ratio)
                eta = eta * ratio
            if k:
                moved, turned = np.linalg.norm(y - old), np.linalg.norm(g(y) - g(old))
                grown = np.sqrt(1 + delta * ratio) * eta
                new = min(gamma * moved / (2 * turned), grown) + eps if moved > 0 and turned > 0 else grown
                ratio, eta = new / eta, new
            d = g(y) if shape is None else shape(t, g(y), y)
            old, y = y, y - eta * (inside[k] if inside else 1.0) * d
        return y - x

    return client


def sps(p, bound, steps, c=0.5, lower=0.0, mu=0.0, bounded=True, eps=0.0, with_proximal=True) -> Client:
    def client(t: int, i: int, x: Vector) -> Vector:
        y = x
        for _ in range(at(steps, t)):
            g, f = p.gradient(i, y), p.loss(i, y)
            direction = g + mu * (y - x)
            if with_proximal:
                g, f = direction, f + mu / 2 * (y - x) @ (y - x)
            eta = (f - lower) / (c * g @ g + eps)
            eta = min(eta, at(bound, t)) if bounded else eta
            y = y - max(eta, 0.0) * direction
        return y - x

    return client


def decsps(p, bound, steps, c=0.5, counts="run", mu=0.0) -> Client:
    """c_n eta_n = min(P_n, c_{n-1} eta_{n-1}), c_n = c sqrt(n + 1), c_{-1} = c, eta_{-1} = gamma_b.

    A proximal term moves the client, and its rate follows the data alone.
    """
    last: dict[int, float] = {}
    own: dict[int, int] = {}

    def client(t: int, i: int, x: Vector) -> Vector:
        y, before = x, sum(at(steps, s) for s in range(t))
        if counts == "round":
            last.pop(i, None)
        for k in range(at(steps, t)):
            n = {"run": before + k, "own": own.get(i, 0), "round": k}[counts]
            g, f = p.gradient(i, y), p.loss(i, y)
            last[i] = min(f / (g @ g), last.get(i, c * bound))
            y = y - last[i] / (c * np.sqrt(n + 1)) * (g + mu * (y - x))
            own[i] = own.get(i, 0) + 1
        return y - x

    return client


def hyper_client(p, rate, steps, memory, s, eps=0.2) -> Client:
    """`memory` holds D_{t-1} under "last", or nothing before the second round."""

    def client(t: int, i: int, x: Vector) -> Vector:
        y, old, lr = x, None, rate
        for _ in range(at(steps, t)):
            g = p.gradient(i, y)
            if old is not None:
                sign = np.sign(g @ -memory["last"]) if "last" in memory else 0.0
                lr = np.clip(lr + s * (g @ old) * (1 + eps * sign), rate / 10, rate * 10)
            y, old = y - lr * g, g
        return y - x

    return client


def hyper_client_product(p, rate, steps, memory, cohorts, s=1.0, eps=0.1, grows=1.1) -> Client:
    """The authors' code: lr_{k+1} = lr_0 beta, moved after every batch but the first of an epoch of n_i batches."""

    def client(t: int, i: int, x: Vector) -> Vector:
        last = memory.get("last", np.zeros_like(x))
        y, before, beta = x, last, 1.0
        for k in range(steps):
            d = -rate * beta * p.gradient(i, y)
            y = y + d
            if k % p.sizes[i]:
                factor = 1 + s * (eps * (d @ last) / len(cohorts[t]) + d @ before)
                beta, before = np.clip(beta * min(grows, factor), 0.1, 10), d
        return y - x

    return client


def stopping(p, rate, steps, gradient=None, relative=None, patience=None, minimum=1) -> Client:
    def client(t: int, i: int, x: Vector) -> Vector:
        y, first, best, fruitless = x, None, np.inf, 0
        for k in range(steps):
            g, f = p.gradient(i, y), p.loss(i, y)
            size = np.linalg.norm(g)
            first = size if first is None else first
            fruitless = 0 if f < best else fruitless + 1
            best = min(best, f)
            over = (gradient is not None and size <= gradient) or (relative is not None and size <= relative * first)
            if k >= minimum and (over or (patience is not None and fruitless >= patience)):
                break
            y = y - rate * g
        return y - x

    return client


def sam(p, rate, steps, rho, eps=0.0, control=None) -> Client:
    def client(t: int, i: int, x: Vector) -> Vector:
        y = x
        for _ in range(at(steps, t)):
            g = p.gradient(i, y)
            y = y - at(rate, t) * p.gradient(i, y + rho * g / (np.linalg.norm(g) + eps))
        return y - x

    return client


def lesam(p, rate, steps, rho, everybody=False) -> Client:
    """x_old is the model the client received last, or the last round's for everybody."""
    received: dict[int, Vector] = {}
    models: list[Vector] = []

    def client(t: int, i: int, x: Vector) -> Vector:
        while len(models) <= t:
            models.append(x)
        old = (models[t - 1] if t else x) if everybody else received.get(i, x)
        received[i] = x
        kick, y = rho * unit(old - x), x
        for _ in range(steps):
            y = y - rate * p.gradient(i, y + kick)
        return y - x

    return client


def relaxed(p, rate, steps, beta, first=None, sends="models", most=None) -> Client:
    """y_0 = x + beta (x - z_i); `first` is z_i before the first round, None means y_0 = x then."""
    last: dict[int, Vector] = {}

    def client(t: int, i: int, x: Vector) -> Vector:
        z = last.get(i, first)
        offset = np.zeros_like(x) if z is None else beta * (x - z)
        if most is not None and np.linalg.norm(offset) > most:
            offset = offset * most / np.linalg.norm(offset)
        start = x + offset
        y = start
        for _ in range(steps):
            y = y - rate * p.gradient(i, y)
        last[i] = y
        return y - (x if sends == "models" else start)

    return client
