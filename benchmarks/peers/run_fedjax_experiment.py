"""`python -m benchmarks.peers.run_fedjax_experiment E1`: whole experiments in FedJAX; E1, E2 and E4.

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
from benchmarks.experiments.plan import DITTO, HEAD_STEPS, RHO, Experiment, by_name, cohort, due, first_network
from benchmarks.experiments.table import Rows, finish
from benchmarks.peers.fedjax_networks import forward, from_torch, to_torch

Tree = dict[str, Array]
CANNOT = {"E3": "control variates and crops", "E5": "a transformer with adapters"}


def loss(params: Tree, others: Tree, batch: dict[str, Array]) -> tuple[Array, Tree]:
    """The mean cross entropy of a batch, and the buffers after it."""
    scores, buffers = forward({**others, **params}, batch["x"], train=True)
    picked = jnp.take_along_axis(jax.nn.log_softmax(scores), batch["y"][:, None], axis=1)
    return -picked.mean(), buffers


gradient = jax.grad(loss, has_aux=True)


def is_buffer(name: str) -> bool:
    """Whether a tensor is a running mean of BatchNorm."""
    return ".running_" in name


def descends(moves: Callable[[str], bool], lr: float, pull: float = 0.0) -> Any:
    """SGD steps on some tensors; with `pull`, towards what the server sent."""

    def init(sent: Tree, kept: Tree) -> dict[str, Tree]:
        return {"model": {**sent, **kept}, "centre": sent if pull else {}}

    def step(state: dict[str, Tree], batch: dict[str, Array]) -> dict[str, Tree]:
        model = state["model"]
        moved = {n: t for n, t in model.items() if moves(n) and not is_buffer(n)}
        others = {n: t for n, t in model.items() if n not in moved}
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
        self.everything = from_torch(first_network(experiment))
        self.tune = descends(lambda n: True, experiment.lr)

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
            yield {name: column[place : place + e.batch] for name, column in rows.items()}

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
            mine = [accuracy(model, test["x"], test["y"])]
            if e.tunes:
                tuned = self.trained(self.tune, model, {client: {}}, -(-e.train // e.batch))[client]
                mine.append(accuracy(tuned, test["x"], test["y"]))
            found.append(mine)
        mean: list[float] = np.asarray(found, dtype=float).mean(0).tolist()
        return mean


def client_rounds(federation: Federation, name: str) -> Callable[[Tree, dict[int, Tree]], dict[int, Tree]]:
    """What one round of a method does with the clients of a cohort: their models by client."""
    e = federation.experiment
    everything = descends(lambda n: True, e.lr)
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


def main() -> None:
    """All methods of an experiment, one after the other."""
    experiment = by_name(sys.argv[1])
    if reason := CANNOT.get(experiment.name[:2]):
        raise SystemExit(f"not written in JAX: {reason}")
    if "pmap" in sys.argv[2:]:
        raise SystemExit("experiments run with FedJAX's jit backend only")
    fedjax.set_for_each_client_backend("jit")
    federation = Federation(experiment)
    found = {name: run(federation, name) for name in experiment.methods}
    finish(experiment, found, "fedjax", "jax", "jaxlib")


if __name__ == "__main__":
    main()
