"""`python -m benchmarks.peers.run_fedjax_experiment E1`: whole experiments in FedJAX.

Clients run through `fedjax.for_each_client`, one compiled step per batch; what a client keeps is its client input, as
FedJAX proposes for stateful clients. Networks are written in JAX, with channels last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.experiments.data import columns
from benchmarks.experiments.plan import (
    DECAY,
    DITTO,
    HEAD_STEPS,
    MOST,
    RHO,
    Experiment,
    by_name,
    cohort,
    due,
    first_network,
)
from benchmarks.experiments.table import Rows, finish
from benchmarks.peers.fedjax_networks import forward, from_torch, to_torch

Tree = dict[str, Array]


def loss(params: Tree, others: Tree, batch: dict[str, Array]) -> tuple[Array, Tree]:
    """The mean cross entropy of a batch, and the buffers after it."""
    scores, buffers = forward({**others, **params}, batch["x"], train=True)
    picked = jnp.take_along_axis(jax.nn.log_softmax(scores), batch["y"][:, None], axis=1)
    return -picked.mean(), buffers


gradient = jax.grad(loss, has_aux=True)


def is_buffer(name: str) -> bool:
    """Whether a tensor is a running mean of BatchNorm."""
    return ".running_" in name


def descends(moves: Callable[[str], bool], lr: float, pull: float = 0.0, frozen: Tree | None = None) -> Any:
    """SGD steps on some tensors; with `pull`, towards what the server sent. Frozen ones are never sent."""

    def init(sent: Tree, kept: Tree) -> dict[str, Tree]:
        return {"model": {**sent, **kept}, "centre": sent if pull else {}}

    def step(state: dict[str, Tree], batch: dict[str, Array]) -> dict[str, Tree]:
        model = state["model"]
        moved = {n: t for n, t in model.items() if moves(n) and not is_buffer(n)}
        others = {**(frozen or {}), **{n: t for n, t in model.items() if n not in moved}}
        found, buffers = gradient(moved, others, batch)
        if pull:
            found = {n: g + pull * (moved[n] - state["centre"][n]) for n, g in found.items()}
        after = {n: t - lr * found[n] for n, t in moved.items()}
        return {**state, "model": {**model, **after, **buffers}}

    return fedjax.for_each_client(init, step, lambda sent, state: state["model"])


def pflego(experiment: Experiment) -> Any:
    """The head's steps on features computed once, then the joint gradient; one compiled step per client."""

    def step(model: Tree, batch: dict[str, Array]) -> Tree:
        body = {n: t for n, t in model.items() if not n.startswith("head.")}
        head = {n: t for n, t in model.items() if n.startswith("head.")}

        def once(_: int, now: Tree) -> Tree:
            found, _ = gradient(now, body, batch)
            return {n: t - experiment.lr * found[n] for n, t in now.items()}

        head = lax.fori_loop(0, experiment.steps - 1, once, head)
        found, _ = gradient({**body, **head}, {}, batch)
        far = RHO * experiment.clients / experiment.cohort
        return {**{n: found[n] for n in body}, **{n: t - far * found[n] for n, t in head.items()}}

    return fedjax.for_each_client(lambda sent, kept: {**sent, **kept}, step, lambda sent, model: model)


def normalised_scaffold(experiment: Experiment) -> Any:
    """SCAFFOLD's steps, with weight decay and gradient clipped together (FedNAR).

    A client's end: its model, its new control variate, and by how much that changed.
    """

    def init(sent: dict[str, Tree], kept: Tree) -> dict[str, Tree]:
        return {"model": sent["model"], "drift": {n: c - kept[n] for n, c in sent["control"].items()}}

    def step(state: dict[str, Tree], batch: dict[str, Array]) -> dict[str, Tree]:
        model, drift = state["model"], state["drift"]
        found, _ = gradient(model, {}, batch)
        found = {n: g + drift[n] + DECAY * model[n] for n, g in found.items()}
        norm = jnp.sqrt(sum((g**2).sum() for g in found.values()))
        far = experiment.lr * jnp.minimum(1.0, MOST / norm)
        return {**state, "model": {n: t - far * found[n] for n, t in model.items()}}

    def final(sent: dict[str, Tree], state: dict[str, Tree]) -> dict[str, Tree]:
        reached, drift, way = state["model"], state["drift"], experiment.steps * experiment.lr
        own = {n: (t - reached[n]) / way - drift[n] for n, t in sent["model"].items()}
        change = {n: t - (sent["control"][n] - drift[n]) for n, t in own.items()}
        return {"model": reached, "own": own, "change": change}

    return fedjax.for_each_client(init, step, final)


@jax.jit
def accuracy(model: Tree, x: Array, y: Array) -> Array:
    """On a user's test rows."""
    scores, _ = forward(model, x, train=False)
    return (scores.argmax(1) == y).mean()


class Federation:
    """All clients of an experiment and what they keep."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.x, self.y = columns(experiment)
        network = first_network(experiment)
        still = {n for n, p in network.named_parameters() if not p.requires_grad}
        tensors = from_torch(network)
        self.frozen = {n: t for n, t in tensors.items() if n in still}
        self.everything = {n: t for n, t in tensors.items() if n not in still}
        self.tune = descends(lambda n: True, experiment.lr, frozen=self.frozen)
        self.random = np.random.default_rng(0)

    def part(self, client: int, part: str) -> dict[str, np.ndarray]:
        """A client's training or test rows."""
        e = self.experiment
        start = client * e.rows + (e.train if part == "test" else 0)
        rows = slice(start, start + (e.test if part == "test" else e.train))
        return {"x": self.x[rows], "y": self.y[rows]}

    def batches(self, client: int, steps: int) -> Iterator[dict[str, np.ndarray]]:
        """So many batches of its training rows, in their order."""
        rows, e = self.part(client, "train"), self.experiment
        for step in range(steps):
            place = step * e.batch % e.train
            batch = {name: column[place : place + e.batch] for name, column in rows.items()}
            yield {**batch, "x": self.augmented(batch["x"])} if e.augments else batch

    def augmented(self, x: np.ndarray) -> np.ndarray:
        """Images shifted by up to four pixels, half of them mirrored."""
        rows, channels, height, width = x.shape
        shifts, mirrored = self.random.integers(0, 9, (2, rows, 1)), self.random.random((rows, 1)) < 0.5
        down, right = shifts[0] + np.arange(height), shifts[1] + np.arange(width)
        right = np.where(mirrored, right[:, ::-1], right)
        padded = np.pad(x, ((0, 0), (0, 0), (4, 4), (4, 4)))
        places = np.arange(rows)[:, None, None, None], np.arange(channels)[:, None, None]
        return padded[(*places, down[:, None, :, None], right[:, None, None, :])]

    def trained(self, how: Any, sent: Tree, kept: dict[int, Tree], steps: int) -> dict[int, Tree]:
        """These clients' models after so many steps."""
        clients = [(client, self.batches(client, steps), own) for client, own in kept.items()]
        return dict(how(sent, clients))

    def scores(self, sent: Tree, kept: dict[int, Tree], first: Tree) -> list[float]:
        """Means over all users of the accuracy, and where users are tuned also of that after an epoch."""
        e, found = self.experiment, []
        for client in range(e.clients):
            test = self.part(client, "test")
            model = {**sent, **kept.get(client, first)}
            mine = [accuracy({**self.frozen, **model}, test["x"], test["y"])]
            if e.tunes:
                tuned = self.trained(self.tune, model, {client: {}}, -(-e.train // e.batch))[client]
                mine.append(accuracy({**self.frozen, **tuned}, test["x"], test["y"]))
            found.append(mine)
        mean: list[float] = np.asarray(found, dtype=float).mean(0).tolist()
        return mean


def client_rounds(federation: Federation, name: str) -> Callable[[Tree, dict[int, Tree]], dict[int, Tree]]:
    """What one round of a method does with the clients of a cohort: their models by client."""
    e = federation.experiment
    everything = descends(lambda n: True, e.lr, frozen=federation.frozen)
    if name == "PFLEGO":
        how = pflego(e)
        return lambda sent, kept: federation.trained(how, sent, kept, 1)
    if name == "FedRep":
        heads = descends(lambda n: n.startswith("head."), e.lr)
        bodies = descends(lambda n: n.startswith("body."), e.lr)

        def both(sent: Tree, kept: dict[int, Tree]) -> dict[int, Tree]:
            first = federation.trained(heads, sent, kept, HEAD_STEPS)
            return federation.trained(bodies, {}, first, e.steps - HEAD_STEPS)

        return both
    return lambda sent, kept: federation.trained(everything, sent, kept, e.steps)


def run(federation: Federation, name: str) -> tuple[Rows, dict[str, np.ndarray]]:
    """One method to its end."""
    e, everything = federation.experiment, federation.everything
    if name == "FedNAR on SCAFFOLD":
        return run_scaffold(federation)
    personal = {n: t for n, t in everything.items() if name in ("FedPer", "FedRep", "PFLEGO") and n.startswith("head.")}
    sent = {n: t for n, t in everything.items() if n not in personal}
    first = everything if name == "Ditto" else personal
    kept: dict[int, Tree] = {}
    rounds, pulled = client_rounds(federation, name), descends(lambda n: True, e.lr, DITTO)
    rows: Rows = []
    for number in range(e.rounds):
        chosen = {client: kept.get(client, first) for client in cohort(e, number)}
        if name == "Ditto":
            kept |= federation.trained(pulled, sent, chosen, e.steps)
            chosen = {client: {} for client in chosen}
        models = rounds(sent, chosen)
        if personal:
            kept |= {client: {n: model[n] for n in personal} for client, model in models.items()}
        mean = {n: sum(model[n] for model in models.values()) / len(models) for n in sent}
        sent = {n: t - RHO * mean[n] for n, t in sent.items()} if name == "PFLEGO" else mean
        if due(e, number):
            rows.append((number + 1, federation.scores(sent, kept, first)))
    return rows, to_torch(sent)


def run_scaffold(federation: Federation) -> tuple[Rows, dict[str, np.ndarray]]:
    """FedNAR on SCAFFOLD to its end."""
    e, how, rows = federation.experiment, normalised_scaffold(federation.experiment), []
    zeros = {n: jnp.zeros_like(t) for n, t in federation.everything.items()}
    sent, kept = {"model": federation.everything, "control": zeros}, {}
    for number in range(e.rounds):
        chosen = {client: kept.get(client, zeros) for client in cohort(e, number)}
        found = federation.trained(how, sent, chosen, e.steps)
        kept |= {client: end["own"] for client, end in found.items()}
        total = {part: {n: sum(end[part][n] for end in found.values()) for n in zeros} for part in ("model", "change")}
        control = {n: t + total["change"][n] / e.clients for n, t in sent["control"].items()}
        sent = {"model": {n: t / e.cohort for n, t in total["model"].items()}, "control": control}
        if due(e, number):
            rows.append((number + 1, federation.scores(sent["model"], {}, {})))
    return rows, to_torch(sent["model"])


def main() -> None:
    """All methods of an experiment, one after the other."""
    experiment = by_name(sys.argv[1])
    if "pmap" in sys.argv[2:]:
        raise SystemExit("experiments run with FedJAX's jit backend only")
    fedjax.set_for_each_client_backend("jit")
    federation = Federation(experiment)
    found = {name: run(federation, name) for name in experiment.methods}
    finish(experiment, found, "fedjax", "jax", "jaxlib")


if __name__ == "__main__":
    main()
