"""Personal full models and mixtures in plain numpy, written from the specification alone."""

from collections.abc import Callable

import numpy as np

from tests.numbers.personalised.reference import (
    Arrays,
    Rate,
    Rows,
    gradient,
    logits,
    losses,
    plus,
    probabilities,
    steps_on,
    weighted,
)

ALL = ("body.0.weight", "body.0.bias", "head.weight", "head.bias")
Models = dict[int, Arrays]


def fedavg(
    clients: list[Rows], x: Arrays, cohorts: list[list[int]], *, lr: Rate, steps: int, by_samples: bool = False
) -> Arrays:
    for t, cohort in enumerate(cohorts):
        copies = [steps_on(ALL, x, clients[i], lr, steps, t) for i in cohort]
        x = weighted(copies, [len(clients[i][1]) if by_samples else 1 for i in cohort])
    return x


def proximal_steps(v: Arrays, centre: Arrays, rows: Rows, lr: float, lam: float, count: int, l2: float = 0.0) -> Arrays:
    """v <- v - lr (grad f(v) + lam (v - centre) + l2 v)."""
    for _ in range(count):
        g = gradient(v, rows)
        v = {n: v[n] - lr * (g[n] + lam * (v[n] - centre[n]) + l2 * v[n]) for n in v}
    return v


def ditto(
    clients: list[Rows],
    x: Arrays,
    personal: Models,
    cohorts: list[list[int]],
    *,
    lr: float,
    steps: int,
    lam: float,
    personal_lr: float,
    personal_steps: int | Callable[[int], int],
) -> tuple[Arrays, Models]:
    personal = dict(personal)
    for t, cohort in enumerate(cohorts):
        count = personal_steps(t) if callable(personal_steps) else personal_steps
        for i in cohort:
            personal[i] = proximal_steps(personal[i], x, clients[i], personal_lr, lam, count)
        x = weighted([steps_on(ALL, x, clients[i], lr, steps) for i in cohort], [1] * len(cohort))
    return x, personal


def pfedme_client(
    x: Arrays,
    rows: Rows,
    *,
    lr: float,
    personal_lr: float,
    lam: float,
    inner_steps: int,
    local_rounds: int,
    warm_start: bool,
    l2: float,
) -> tuple[Arrays, Arrays]:
    """(w, theta) after R local rounds."""
    w = theta = x
    for _ in range(local_rounds):
        theta = proximal_steps(theta if warm_start else w, w, rows, personal_lr, lam, inner_steps, l2)
        w = {n: w[n] - lr * lam * (w[n] - theta[n]) for n in w}
    return w, theta


def pfedme(
    clients: list[Rows], x: Arrays, personal: Models, cohorts: list[list[int]], *, beta: float = 1.0, **local: float
) -> tuple[Arrays, Models]:
    personal = dict(personal)
    for cohort in cohorts:
        uploads = []
        for i in cohort:
            w, personal[i] = pfedme_client(x, clients[i], **local)
            uploads.append(w)
        mean = weighted(uploads, [1] * len(cohort))
        x = {n: (1 - beta) * x[n] + beta * mean[n] for n in x}
    return x, personal


def component(x: Arrays, m: int) -> Arrays:
    return {n: a[m] for n, a in x.items()}


def responsibilities(x: Arrays, pi: np.ndarray, rows: Rows) -> np.ndarray:
    """q_m(s) ~ pi_m exp(-loss_m(s)); shape (samples, components)."""
    q = np.stack([pi[m] * np.exp(-losses(component(x, m), rows)) for m in range(len(pi))], axis=1)
    return q / q.sum(axis=1, keepdims=True)


def mixture_probabilities(x: Arrays, pi: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    return sum(pi[m] * probabilities(logits(component(x, m), inputs)) for m in range(len(pi)))


def fedem(
    clients: list[Rows],
    x: Arrays,
    mixtures: dict[int, np.ndarray],
    cohorts: list[list[int]],
    *,
    lr: float,
    steps: int,
    over_all: bool = False,
) -> tuple[Arrays, dict[int, np.ndarray]]:
    mixtures = dict(mixtures)
    count = len(x["head.bias"])
    for cohort in cohorts:
        copies, sizes = [], [len(clients[i][1]) for i in cohort]
        for i in cohort:
            q = responsibilities(x, mixtures[i], clients[i])
            mixtures[i] = q.mean(axis=0)
            parts = []
            for m in range(count):
                y = component(x, m)
                for _ in range(steps):
                    y = plus(y, gradient(y, clients[i], q[:, m]), -lr)
                parts.append(y)
            copies.append({n: np.stack([y[n] for y in parts]) for n in x})
        if over_all:
            absent = sum(len(y) for _, y in clients) - sum(sizes)
            x = weighted([*copies, x], [*sizes, absent])
        else:
            x = weighted(copies, sizes)
    return x, mixtures


def local_only(
    clients: list[Rows], x: Arrays, personal: Models, cohorts: list[list[int]], *, lr: Rate, steps: int
) -> Models:
    personal = dict(personal)
    for t, cohort in enumerate(cohorts):
        for i in cohort:
            personal[i] = steps_on(ALL, personal[i], clients[i], lr, steps, t)
    return personal
