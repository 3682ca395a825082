"""Split algorithms (shared body, personal head) in plain numpy, written from the specification alone.

The network is tanh features and softmax outputs, `f_i` the mean cross-entropy of client i. Parameters are dicts of
arrays; nothing of the library is used.
"""

from collections.abc import Callable, Mapping

import numpy as np

Arrays = dict[str, np.ndarray]
Rows = tuple[np.ndarray, np.ndarray]
Heads = dict[int, Arrays]
Rate = float | Callable[[int, int], float]

BODY = ("body.0.weight", "body.0.bias")
HEAD = ("head.weight", "head.bias")


def logits(p: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    hidden = np.tanh(x @ p["body.0.weight"].T + p["body.0.bias"])
    return hidden @ p["head.weight"].T + p["head.bias"]


def probabilities(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def losses(p: Mapping[str, np.ndarray], rows: Rows) -> np.ndarray:
    """Cross-entropy of every sample."""
    x, y = rows
    return -np.log(probabilities(logits(p, x))[np.arange(len(y)), y])


def gradient(p: Mapping[str, np.ndarray], rows: Rows, weights: np.ndarray | float = 1.0) -> Arrays:
    """Gradient of mean_s weights(s) loss(s): d loss / d logits = softmax - one-hot, and back through tanh."""
    x, y = rows
    hidden = np.tanh(x @ p["body.0.weight"].T + p["body.0.bias"])
    error = probabilities(hidden @ p["head.weight"].T + p["head.bias"])
    error[np.arange(len(y)), y] -= 1.0
    error *= (np.broadcast_to(weights, len(y)) / len(y))[:, None]
    below = (error @ p["head.weight"]) * (1.0 - hidden**2)
    return {
        "body.0.weight": below.T @ x,
        "body.0.bias": below.sum(axis=0),
        "head.weight": error.T @ hidden,
        "head.bias": error.sum(axis=0),
    }


def only(p: Mapping[str, np.ndarray], names: tuple[str, ...]) -> Arrays:
    return {name: p[name] for name in names}


def plus(p: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], factor: float = 1.0) -> Arrays:
    """p + factor * other, over the names of p."""
    return {name: value + factor * other[name] for name, value in p.items()}


def weighted(parts: list[Arrays], weights: list[float]) -> Arrays:
    """Weighted mean."""
    total = sum(weights)
    return {n: sum(w * p[n] for p, w in zip(parts, weights, strict=True)) / total for n in parts[0]}


def at(rate: Rate, t: int, j: int = 0) -> float:
    return rate(t, j) if callable(rate) else rate


def steps_on(names: tuple[str, ...], p: Arrays, rows: Rows, lr: Rate, count: int, t: int = 0) -> Arrays:
    """`count` gradient steps on some of the parameters; the others stay."""
    for j in range(count):
        g = gradient(p, rows)
        p = {**p, **plus(only(p, names), g, -at(lr, t, j))}
    return p


class Adam:
    """torch's Adam: both moments corrected for their start at zero, eps outside the root."""

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 0
        self.m: Arrays = {}
        self.v: Arrays = {}

    def step(self, p: Arrays, g: Arrays) -> Arrays:
        (b1, b2), self.t = self.betas, self.t + 1
        self.m = {n: b1 * self.m.get(n, 0.0) + (1 - b1) * g[n] for n in p}
        self.v = {n: b2 * self.v.get(n, 0.0) + (1 - b2) * g[n] ** 2 for n in p}
        m = {n: self.m[n] / (1 - b1**self.t) for n in p}
        v = {n: self.v[n] / (1 - b2**self.t) for n in p}
        return {n: p[n] - self.lr * m[n] / (np.sqrt(v[n]) + self.eps) for n in p}


def pflego(
    clients: list[Rows],
    theta: Arrays,
    heads: Heads,
    cohorts: list[list[int]],
    *,
    head_lr: Rate,
    server_lr: float,
    steps: int,
    alpha_in_head_step: bool = False,
    alpha_over: str = "all",
    expected: float | None = None,
    adam: bool = False,
) -> tuple[Arrays, Heads]:
    """Paper, Algorithm 1: `expected` is r, else the size of the cohort."""
    heads, optimizer = dict(heads), Adam(server_lr)
    sizes = [len(y) for _, y in clients]
    for t, cohort in enumerate(cohorts):
        if not cohort:
            continue
        factor = len(clients) / (expected or len(cohort))
        everybody = range(len(clients)) if alpha_over == "all" else cohort
        total = {n: np.zeros_like(a) for n, a in theta.items()}
        for i in cohort:
            alpha = sizes[i] / sum(sizes[j] for j in everybody)
            p = steps_on(HEAD, {**theta, **heads[i]}, clients[i], head_lr, steps - 1, t)
            g = gradient(p, clients[i])
            last = server_lr * factor * (alpha if alpha_in_head_step else 1.0)
            heads[i] = plus(only(p, HEAD), g, -last)
            total = plus(total, g, factor * alpha)
        theta = optimizer.step(theta, total) if adam else plus(theta, total, -server_lr)
    return theta, heads


def fedper(
    clients: list[Rows], theta: Arrays, heads: Heads, cohorts: list[list[int]], *, lr: Rate, steps: int
) -> tuple[Arrays, Heads]:
    """Joint steps; the body is averaged by samples, the head stays."""
    heads = dict(heads)
    for t, cohort in enumerate(cohorts):
        bodies, sizes = [], []
        for i in cohort:
            p = steps_on(BODY + HEAD, {**theta, **heads[i]}, clients[i], lr, steps, t)
            heads[i] = only(p, HEAD)
            bodies.append(only(p, BODY))
            sizes.append(len(clients[i][1]))
        theta = weighted(bodies, sizes)
    return theta, heads


def fedrep(
    clients: list[Rows],
    theta: Arrays,
    heads: Heads,
    cohorts: list[list[int]],
    *,
    lr: Rate,
    head_steps: int,
    body_steps: int,
    head_lr: Rate | None = None,
    by_samples: bool = False,
    local_steps: Callable[..., Arrays] = steps_on,
) -> tuple[Arrays, Heads]:
    """Head steps on the received body, then body steps under the new head; uniform mean of bodies."""
    heads = dict(heads)
    for t, cohort in enumerate(cohorts):
        bodies, weights = [], []
        for i in cohort:
            p = local_steps(HEAD, {**theta, **heads[i]}, clients[i], lr if head_lr is None else head_lr, head_steps, t)
            p = local_steps(BODY, p, clients[i], lr, body_steps, t)
            heads[i] = only(p, HEAD)
            bodies.append(only(p, BODY))
            weights.append(len(clients[i][1]) if by_samples else 1)
        theta = weighted(bodies, weights)
    return theta, heads


def fedbabu(
    clients: list[Rows], theta: Arrays, head: Arrays, cohorts: list[list[int]], *, lr: Rate, steps: int
) -> Arrays:
    """Body steps under one frozen head; averaged by samples."""
    for t, cohort in enumerate(cohorts):
        bodies = [only(steps_on(BODY, {**theta, **head}, clients[i], lr, steps, t), BODY) for i in cohort]
        theta = weighted(bodies, [len(clients[i][1]) for i in cohort])
    return theta


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Support: the first half, rounded up. Query: the rest."""
    x, y = rows
    cut = (len(y) + 1) // 2
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def fedrecon(
    clients: list[Rows],
    theta: Arrays,
    heads: Heads,
    cohorts: list[list[int]],
    *,
    lr: float,
    head_lr: float,
    head_steps: int,
    body_steps: int,
    same_data: bool = False,
    server_lr: float = 1.0,
    adam: bool = False,
) -> Arrays:
    """Stateless: a fresh head is fitted on the support rows, then the body moves on the query rows."""
    optimizer = Adam(server_lr)
    for t, cohort in enumerate(cohorts):
        deltas, processed = [], []
        for i in cohort:
            support, query = (clients[i], clients[i]) if same_data else halves(clients[i])
            p = steps_on(HEAD, {**theta, **heads[i]}, support, head_lr, head_steps, t)
            p = steps_on(BODY, p, query, lr, body_steps, t)
            deltas.append(plus(only(p, BODY), theta, -1.0))
            processed.append(body_steps * len(query[1]))
        mean = weighted(deltas, processed)
        theta = optimizer.step(theta, {n: -d for n, d in mean.items()}) if adam else plus(theta, mean, server_lr)
    return theta


def fedrecon_stateful(
    clients: list[Rows],
    theta: Arrays,
    heads: Heads,
    cohorts: list[list[int]],
    *,
    head_lr: float,
    server_lr: float,
    head_steps: int,
    adam: bool = False,
) -> tuple[Arrays, Heads]:
    """PFLEGO's version: kept heads, tau head steps on all rows, then ONE body gradient at the new head."""
    heads, optimizer = dict(heads), Adam(server_lr)
    for t, cohort in enumerate(cohorts):
        gradients = []
        for i in cohort:
            p = steps_on(HEAD, {**theta, **heads[i]}, clients[i], head_lr, head_steps, t)
            heads[i] = only(p, HEAD)
            gradients.append(only(gradient(p, clients[i]), BODY))
        g = weighted(gradients, [len(clients[i][1]) for i in cohort])
        theta = optimizer.step(theta, g) if adam else plus(theta, g, -server_lr)
    return theta, heads
