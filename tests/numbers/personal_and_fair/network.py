"""A small network in numpy whose gradients are taken by complex steps: f'(p) = Im f(p + ih) / h, exact to rounding.

Nothing of the library is used, and no derivative is written down: a reference only has to state its loss.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

Arrays = dict[str, np.ndarray]
Rows = tuple[np.ndarray, np.ndarray]
BODY = ("body.0.weight", "body.0.bias")
HEAD = ("head.weight", "head.bias")
ALL = BODY + HEAD
STEP = 1e-30


def features(p: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ p["body.0.weight"].T + p["body.0.bias"])


def head(p: Mapping[str, np.ndarray], z: np.ndarray) -> np.ndarray:
    return z @ p["head.weight"].T + p["head.bias"]


def logits(p: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    return head(p, features(p, x))


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """Over the last axis. The shift is real, so that the function stays analytic."""
    top = scores.real.max(axis=-1, keepdims=True)
    return np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0]


def cross_entropy(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean over rows."""
    return (log_sum_exp(scores) - scores[np.arange(len(y)), y]).mean()


def loss(p: Mapping[str, np.ndarray], rows: Rows) -> np.ndarray:
    return cross_entropy(logits(p, rows[0]), rows[1])


def loss_of(rows: Rows) -> Callable[[Arrays], np.ndarray]:
    return lambda p: loss(p, rows)


def gradient(f: Callable[[Arrays], np.ndarray], p: Arrays, names: Iterable[str] = ALL) -> Arrays:
    """df / dp for the named arrays."""
    found = {}
    for name in names:
        slopes = np.zeros(np.shape(p[name]))
        for index in np.ndindex(np.shape(p[name])):
            moved = np.array(p[name], dtype=complex)
            moved[index] += 1j * STEP
            slopes[index] = f({**p, name: moved}).imag / STEP
        found[name] = slopes
    return found


def plus(p: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], factor: float = 1.0) -> Arrays:
    """p + factor * other, over the names that both have."""
    return {n: a + factor * other[n] if n in other else a for n, a in p.items()}


def descend(f: Callable[[Arrays], np.ndarray], p: Arrays, lr: float, steps: int, names: Iterable[str] = ALL) -> Arrays:
    for _ in range(steps):
        p = plus(p, gradient(f, p, names), -lr)
    return p


def average(models: list[Arrays], weights: Iterable[float]) -> Arrays:
    shares = np.array(list(weights), dtype=float)
    return {n: sum(w * m[n] for w, m in zip(shares / shares.sum(), models, strict=True)) for n in models[0]}


def distance(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> float:
    """The squared Euclidean distance."""
    return float(sum(((a[n] - b[n]) ** 2).sum() for n in a))
