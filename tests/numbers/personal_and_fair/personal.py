"""MOON, APFL, LG-FedAvg, FedALA and FedRoD in numpy, written from the specification alone.

Every function returns the shared model and what each client keeps, after the given cohorts.
"""

from collections.abc import Callable

import numpy as np

from tests.numbers.personal_and_fair.network import (
    ALL,
    BODY,
    HEAD,
    Arrays,
    Rows,
    average,
    cross_entropy,
    descend,
    features,
    gradient,
    head,
    log_sum_exp,
    logits,
    loss,
    loss_of,
    plus,
)

Kept = dict[int, Arrays]
Outcome = tuple[Arrays, Kept]
Cohorts = list[list[int]]


def federate(x: Arrays, cohorts: Cohorts, client: Callable[[int, Arrays], Arrays], weights: list[int]) -> Arrays:
    """Every client of a cohort makes a model of the received one; the weighted mean is the next."""
    for cohort in cohorts:
        x = average([client(i, x) for i in cohort], [weights[i] for i in cohort])
    return x


def sizes(clients: list[Rows]) -> list[int]:
    return [len(y) for _, y in clients]


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / (np.sqrt((a * a).sum(1)) * np.sqrt((b * b).sum(1)))


def moon(
    clients: list[Rows], x: Arrays, cohorts: Cohorts, *, lr, steps, mu, temperature, buffer=1, initial=False
) -> Outcome:
    earlier = {i: [x] if initial else [] for i in range(len(clients))}

    def client(i: int, received: Arrays) -> Arrays:
        rows, others = clients[i], earlier[i][:buffer]

        def f(p: Arrays) -> np.ndarray:
            z = features(p, rows[0])
            near = cosine(z, features(received, rows[0])) / temperature
            far = [cosine(z, features(o, rows[0])) / temperature for o in others]
            return loss(p, rows) + mu * (log_sum_exp(np.stack([near, *far], -1)) - near).mean()

        earlier[i] = [descend(f, received, lr, steps), *earlier[i]]
        return earlier[i][0]

    x = federate(x, cohorts, client, sizes(clients))
    kept = {
        i: {f"previous/{p}/{n}": a for p, model in enumerate(own[:buffer]) for n, a in model.items()}
        for i, own in earlier.items()
    }
    return x, kept


def mixed_loss(v: Arrays, w: Arrays, alpha, rows: Rows, mix: str) -> np.ndarray:
    if mix == "outputs":
        return cross_entropy(alpha * logits(v, rows[0]) + (1 - alpha) * logits(w, rows[0]), rows[1])
    return loss({n: alpha * v[n] + (1 - alpha) * w[n] for n in v}, rows)


def apfl(
    clients: list[Rows], x: Arrays, cohorts: Cohorts, *, lr, steps, alpha, alpha_lr=None, mix="parameters", first=False
) -> Outcome:
    """`first`: w steps first, and v is pulled at the new w."""
    own = {i: {**x, "<alpha>": np.array(alpha)} for i in range(len(clients))}

    def step(w: Arrays, v: Arrays, a: np.ndarray, rows: Rows) -> tuple[Arrays, Arrays, float]:
        """w and v after a step, and the slope of alpha at the old point."""
        slope = gradient(lambda p: mixed_loss(v, w, p["a"], rows, mix), {"a": a}, ["a"])["a"]
        new = plus(w, gradient(loss_of(rows), w), -lr)
        toward = gradient(lambda p: mixed_loss(p, new if first else w, a, rows, mix), v)
        return new, plus(v, toward, -lr), float(slope)

    def client(i: int, w: Arrays) -> Arrays:
        v, a = {n: own[i][n] for n in ALL}, own[i]["<alpha>"]
        for k in range(steps):
            w, v, slope = step(w, v, a, clients[i])
            a = np.array(np.clip(a - alpha_lr * slope, 0, 1)) if k == 0 and alpha_lr is not None else a
        own[i] = {**v, "<alpha>": a}
        return w

    return federate(x, cohorts, client, [1] * len(clients)), own


def lg_fedavg(clients: list[Rows], x: Arrays, cohorts: Cohorts, *, lr, steps) -> Outcome:
    bodies = {i: {n: x[n] for n in BODY} for i in range(len(clients))}

    def client(i: int, shared: Arrays) -> Arrays:
        p = descend(loss_of(clients[i]), {**shared, **bodies[i]}, lr, steps)
        bodies[i] = {n: p[n] for n in BODY}
        return {n: p[n] for n in HEAD}

    return federate({n: x[n] for n in HEAD}, cohorts, client, sizes(clients)), bodies


def fedala(
    clients: list[Rows], x: Arrays, cohorts: Cohorts, *, lr, steps, mix_lr, threshold, most, everybody=False
) -> Outcome:
    """With `everybody` the clients that do not train mix as well, and keep what they mixed."""
    own = dict.fromkeys(range(len(clients)), x)
    weights = {i: {n: np.ones_like(x[n]) for n in HEAD} for i in own}
    visited: set[int] = set()

    def start(theta: Arrays, x: Arrays, w: Arrays) -> Arrays:
        return {**x, **{n: theta[n] + (x[n] - theta[n]) * w[n] for n in HEAD}}

    def mixed(i: int, x: Arrays) -> Arrays:
        """The weights after as many passes as the rule asks for."""
        theta, w, losses = own[i], weights[i], []
        while len(losses) < most:
            rested = len(losses) > 10 and np.std(losses[-10:]) < threshold
            if (losses and i in visited) or (rested and i not in visited):
                break
            losses.append(float(loss(start(theta, x, w), clients[i])))
            slope = gradient(loss_of(clients[i]), start(theta, x, w), HEAD)
            w = {n: np.clip(w[n] - mix_lr * slope[n] * (x[n] - theta[n]), 0, 1) for n in HEAD}
        return w

    def aggregated(i: int, x: Arrays) -> Arrays:
        """Where local steps start: x, or the mixture where the client's own model is another one."""
        first = x
        if any((own[i][n] != x[n]).any() for n in HEAD):
            weights[i] = mixed(i, x)
            visited.add(i)
            first = start(own[i], x, weights[i])
        return first

    for cohort in cohorts:
        for i in range(len(clients)):
            if i in cohort:
                own[i] = descend(loss_of(clients[i]), aggregated(i, x), lr, steps)
            elif everybody:
                own[i] = aggregated(i, x)
        x = average([own[i] for i in cohort], [len(clients[i][1]) for i in cohort])
    return x, {i: {**own[i], **{f"mix/{n}": a for n, a in weights[i].items()}} for i in own}


def fedrod(clients: list[Rows], x: Arrays, cohorts: Cohorts, *, lr, steps, gamma=1.0, copy=False) -> Outcome:
    heads = {i: {n: x[n] if copy else np.zeros_like(x[n]) for n in HEAD} for i in range(len(clients))}

    def balanced(rows: Rows, classes: int) -> Callable[[Arrays], np.ndarray]:
        """Classes without rows have probability 0: the softmax is over the others."""
        counts = np.bincount(rows[1], minlength=classes)
        present = np.flatnonzero(counts)
        place, prior = np.searchsorted(present, rows[1]), gamma * np.log(counts[present])
        return lambda p: cross_entropy(logits(p, rows[0])[:, present] + prior, place)

    def step(p: Arrays, own: Arrays, rows: Rows) -> tuple[Arrays, Arrays]:
        z, generic = features(p, rows[0]), logits(p, rows[0])
        personal = gradient(lambda q: cross_entropy(generic + head(q, z), rows[1]), own, HEAD)
        return plus(p, gradient(balanced(rows, x["head.bias"].size), p), -lr), plus(own, personal, -lr)

    def client(i: int, p: Arrays) -> Arrays:
        for _ in range(steps):
            p, heads[i] = step(p, heads[i], clients[i])
        return p

    return federate(x, cohorts, client, sizes(clients)), heads
