"""The experiments' networks in JAX, with channels last."""

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
    if "body.tokens.weight" in tree:
        return _linear(tree, "head", _encoded(tree, x)), {}
    if "body.3.first.weight" in tree:
        return _linear(tree, "head", _residual(tree, x)), {}
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


def _linear(tree: Tree, layer: str, x: Array) -> Array:
    return x @ tree[f"{layer}.weight"].T + tree[f"{layer}.bias"]


def _residual(tree: Tree, x: Array) -> Array:
    """The body of the residual network."""
    x = x.transpose(0, 2, 3, 1)
    x = jax.nn.relu(_by_groups(tree, "body.1", _convolved(tree, "body.0", x, 1)))
    for block, stride in (("body.3", 1), ("body.4", 2), ("body.5", 2)):
        inner = jax.nn.relu(_by_groups(tree, f"{block}.norms.0", _convolved(tree, f"{block}.first", x, stride)))
        inner = _by_groups(tree, f"{block}.norms.1", _convolved(tree, f"{block}.second", inner, 1))
        same = f"{block}.shortcut.weight" not in tree
        x = jax.nn.relu(inner + (x if same else _convolved(tree, f"{block}.shortcut", x, stride)))
    return x.mean((1, 2))


def _convolved(tree: Tree, layer: str, x: Array, stride: int) -> Array:
    weight = tree[f"{layer}.weight"]
    around = [(weight.shape[0] // 2,) * 2] * 2
    return lax.conv_general_dilated(x, weight, (stride, stride), around, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _by_groups(tree: Tree, layer: str, x: Array) -> Array:
    """GroupNorm with two groups."""
    parts = x.reshape(*x.shape[:3], 2, -1)
    mean, variance = parts.mean((1, 2, 4), keepdims=True), parts.var((1, 2, 4), keepdims=True)
    normal = ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return normal * tree[f"{layer}.weight"] + tree[f"{layer}.bias"]


def _encoded(tree: Tree, x: Array) -> Array:
    """The body of the transformer with adapters."""
    x = tree["body.tokens.weight"][x] + tree["body.places"]
    block = 0
    while f"body.blocks.{block}.project.down" in tree:
        x = _attended(tree, f"body.blocks.{block}", x)
        block += 1
    return x.mean(1)


def _attended(tree: Tree, block: str, x: Array, heads: int = 4) -> Array:
    parts = _adapted(tree, f"{block}.project", _by_rows(tree, f"{block}.norms.0", x))
    query, key, value = parts.reshape(*x.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4)
    seen = jax.nn.softmax(query @ key.swapaxes(-2, -1) / query.shape[-1] ** 0.5) @ value
    x = x + _adapted(tree, f"{block}.mix", seen.swapaxes(1, 2).reshape(x.shape))
    inner = jax.nn.gelu(_linear(tree, f"{block}.feed.0", _by_rows(tree, f"{block}.norms.1", x)), approximate=False)
    return x + _linear(tree, f"{block}.feed.2", inner)


def _adapted(tree: Tree, layer: str, x: Array) -> Array:
    """A frozen linear layer and its adapter."""
    return _linear(tree, f"{layer}.base", x) + x @ tree[f"{layer}.down"].T @ tree[f"{layer}.up"].T * 2.0


def _by_rows(tree: Tree, layer: str, x: Array) -> Array:
    """LayerNorm."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * tree[f"{layer}.weight"] + tree[f"{layer}.bias"]


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
