"""The experiments' convolutional networks and perceptron in JAX, with channels last."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from torch import nn

from benchmarks.peers.fedjax_pooling import pooled

Tree = dict[str, Array]


def from_torch(network: nn.Module) -> Tree:
    """Parameters and running means by torch's names; convolutions as (height, width, in, out)."""
    tensors = {n: t.detach().numpy() for n, t in network.state_dict().items() if t.is_floating_point()}
    return {n: jnp.array(t.transpose(2, 3, 1, 0) if t.ndim == 4 else t) for n, t in tensors.items()}


def to_torch(tree: Tree) -> dict[str, np.ndarray]:
    """The way back."""
    arrays = {n: np.asarray(t) for n, t in tree.items()}
    return {n: t.transpose(3, 2, 0, 1) if t.ndim == 4 else t for n, t in arrays.items()}


def forward(tree: Tree, x: Array, train: bool) -> tuple[Array, Tree]:
    """Scores, and the running means after this batch. The layers are those that the tree has weights for."""
    buffers: Tree = {}
    convolved = sorted((n for n, t in tree.items() if t.ndim == 4), key=_place)
    if convolved:
        x = x[..., None]
    for name in convolved:
        weight, padding = tree[name], "SAME" if tree[name].shape[0] == 5 else "VALID"
        x = lax.conv_general_dilated(x, weight, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x + tree[name.replace("weight", "bias")]
        following = f"body.{_place(name) + 1}"
        if f"{following}.running_mean" in tree:
            x, seen = _normalised(tree, following, x, train)
            buffers |= seen
        x = pooled(jax.nn.relu(x))
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1) if convolved else x.reshape(len(x), -1)
    (hidden,) = (n for n, t in tree.items() if t.ndim == 2 and n.startswith("body."))
    x = jax.nn.relu(x @ tree[hidden].T + tree[hidden.replace("weight", "bias")])
    return x @ tree["head.weight"].T + tree["head.bias"], buffers


def _place(name: str) -> int:
    return int(name.split(".")[1])


def _normalised(tree: Tree, layer: str, x: Array, train: bool) -> tuple[Array, Tree]:
    """BatchNorm as torch has it: momentum 0.1, and the unbiased variance in the running mean."""
    mean, variance = tree[f"{layer}.running_mean"], tree[f"{layer}.running_var"]
    seen: Tree = {}
    if train:
        count = x.size // x.shape[-1]
        old_mean, old_variance = mean, variance
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        unbiased = variance * count / (count - 1)
        moved = {"running_mean": (old_mean, mean), "running_var": (old_variance, unbiased)}
        seen = {f"{layer}.{n}": lax.stop_gradient(0.9 * old + 0.1 * new) for n, (old, new) in moved.items()}
    scale = tree[f"{layer}.weight"] * lax.rsqrt(variance + 1e-5)
    return (x - mean) * scale + tree[f"{layer}.bias"], seen
