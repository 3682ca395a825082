"""FedJAX: its federated averaging on models written in JAX; every client's step is compiled.

`python -m benchmarks.peers.run_fedjax W1 [pmap]`; `pmap` runs two clients at once on two devices of one thread each,
otherwise XLA spreads one client's step over the processors.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=2 --xla_cpu_multi_thread_eigen=false" if "pmap" in sys.argv[2:] else ""
)

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from jax import Array, lax

from benchmarks.handwritten import cohort
from benchmarks.peers.fedjax_pooling import pooled
from benchmarks.peers.plan import first_model, opened, rows_of
from benchmarks.peers.turns import Turns, serve
from benchmarks.workloads import Workload, by_name

# FedJAX's pmap backend expects the shards of an array to come without the axis of devices, as they did before JAX 0.5.
jax.config.update("jax_pmap_no_rank_reduction", False)

PMAP = "pmap" in sys.argv[2:]
Params = list[Array]
CHANNELS, SIDE = 64, 5
"""What the convolutions hand to the first dense layer."""


def dense(params: Params, x: Array) -> Array:
    """Layers with rectifiers in between; softmax regression is the case of one layer."""
    x = x.reshape(len(x), -1)
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        x = jax.nn.relu(x @ weight + bias)
    return x @ params[-2] + params[-1]


def convolutional(params: Params, x: Array) -> Array:
    """W2's network, with channels last as XLA likes them."""
    x = x[..., None]
    for weight, bias in ((params[0], params[1]), (params[2], params[3])):
        x = lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = pooled(jax.nn.relu(x + bias))
    return dense(params[4:], x)


def from_torch(weights: list[np.ndarray]) -> Params:
    """Torch's layouts to JAX's: (out, in) to (in, out), and (out, in, h, w) to (h, w, in, out)."""
    convolved = any(w.ndim == 4 for w in weights)
    out = []
    for w in weights:
        if w.ndim == 4:
            out.append(w.transpose(2, 3, 1, 0))
        elif convolved and w.shape[-1] == CHANNELS * SIDE**2 and w.ndim == 2:
            out.append(w.reshape(-1, CHANNELS, SIDE, SIDE).transpose(2, 3, 1, 0).reshape(w.shape[1], -1))
        else:
            out.append(w.T)
    return [jnp.array(w) for w in out]


def to_torch(params: Params) -> list[np.ndarray]:
    """The way back."""
    weights = [np.asarray(p) for p in params]
    convolved = any(w.ndim == 4 for w in weights)
    out = []
    for w in weights:
        if w.ndim == 4:
            out.append(w.transpose(3, 2, 0, 1))
        elif convolved and w.ndim == 2 and w.shape[0] == CHANNELS * SIDE**2:
            out.append(w.reshape(SIDE, SIDE, CHANNELS, -1).transpose(3, 2, 0, 1).reshape(-1, w.shape[0]))
        else:
            out.append(w.T)
    return out


class Client(fedjax.ClientDataset):
    """A client in one round, with its batches in the agreed order."""

    def __init__(self, rows: dict[str, np.ndarray], workload: Workload, client: int, number: int) -> None:
        super().__init__(rows)
        self.plan = (workload, client, number)

    def shuffle_repeat_batch(self, hparams: Any = None, **kwargs: Any) -> Iterator[dict[str, np.ndarray]]:
        for rows in rows_of(*self.plan):
            index = rows.numpy()
            yield {name: column[index] for name, column in self.raw_examples.items()}


def gradient(network: Callable[[Params, Array], Array]) -> Callable[[Params, dict[str, Array], Any], Params]:
    """Of the mean cross entropy of a batch."""

    def loss(params: Params, batch: dict[str, Array], rng: Any) -> Array:
        scores = jax.nn.log_softmax(network(params, batch["x"]))
        return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()

    return jax.grad(loss)


def clients_of(workload: Workload, inputs: np.ndarray, labels: np.ndarray, number: int) -> list[Any]:
    """The cohort as FedJAX takes it: names, data, random keys."""
    key = jax.random.PRNGKey(number)
    found = []
    for client in cohort(workload, number).tolist():
        mine = slice(client * workload.samples, (client + 1) * workload.samples)
        rows = {"x": inputs[mine], "y": labels[mine]}
        found.append((client, Client(rows, workload, client, number), key))
    return found


def runner(turns: Turns) -> None:
    """Take turns with the driver."""
    workload = by_name(sys.argv[1])
    inputs, labels = opened(workload)
    network = convolutional if len(workload.shape) == 2 and math.prod(workload.shape) == 784 else dense
    fedjax.set_for_each_client_backend("pmap" if PMAP else "jit")
    algorithm = fed_avg.federated_averaging(
        gradient(network),
        fedjax.optimizers.sgd(learning_rate=workload.lr),
        fedjax.optimizers.sgd(learning_rate=1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch, num_epochs=None, num_steps=workload.steps),
    )
    state = algorithm.init(from_torch([p.detach().numpy() for p in first_model(workload).parameters()]))
    how = "pmap over two devices of one thread" if PMAP else "jit, XLA's threads"
    turns.ready(how, "fedjax", "jax", "jaxlib")
    number = 0

    def weights() -> list[np.ndarray]:
        return to_torch(state.params)

    while turns.begin(weights):
        clients = clients_of(workload, inputs, labels, number)
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        turns.done([client for client, _, _ in clients])
        number += 1


if __name__ == "__main__":
    serve(runner)
