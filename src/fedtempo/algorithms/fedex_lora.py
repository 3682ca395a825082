"""FedEx-LoRA: the factors of adapters are averaged, and what their average misses is added to the base weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from torch import Tensor, nn

from fedtempo.algorithms.algorithm import Algorithm, Uploads, Weighting, displacement
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.rate_rules import AVERAGED
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.errors import ModelError
from fedtempo.params import Params, matching
from fedtempo.schedules import Now, Rate
from fedtempo.server.step import Server, inside
from fedtempo.server.sums import Aggregate, Groups

BASE = ".base_layer.weight"
Scales = tuple[tuple[str, float], ...]
"""The names of adapted layers, each with its scaling."""
PRODUCTS = "products"
"""The group of an upload that holds B_i A_i of every adapted layer, under the name of the layer."""


@named
def fedex_lora(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    server_lr: Rate = 1.0,
    weighting: Weighting = "samples",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """A and B are averaged, and W_0 <- W_0 + s (mean(B_i A_i) - mean(B_i) mean(A_i)): the average is exact.

    Singhal et al. (2025); s is the adapter's scaling. Without the residual this is FedIT: `fedavg`. A server here only
    ever adds uploads up, so a client sends B_i A_i as well, dense, and the moved base weights go down dense in every
    round; the paper sends factors of low rank to clients that all take part.
    """
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    return replace(plain, server=_exact(plain.server, ()), uploads=Uploads(_with_products), owns=frozenset({AVERAGED}))


def _with_products(received: Received, carry: Carry) -> Groups:
    products = {n: b @ a for n, (a, b) in _adapters(carry.shared).items()}
    return {**displacement(received, carry), PRODUCTS: products}


def _adapters(tensors: Params) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B of every adapted linear layer, by the name of the layer."""
    found = {}
    for name, a in tensors.items():
        prefix, marker, rest = name.partition(".lora_A.")
        if marker and prefix + BASE in tensors:
            found[prefix] = (a, tensors[f"{prefix}.lora_B.{rest}"])
    return found


def _scales(model: nn.Module) -> Scales:
    """The scaling of every adapted layer, by its name."""
    scales = {
        prefix: float(next(iter(module.scaling.values())))
        for prefix, module in model.named_modules()
        if isinstance(getattr(module, "scaling", None), dict) and hasattr(module, "lora_A")
    }
    matrices = {name for name, p in model.named_parameters() if p.dim() == 2}
    if not scales or not {layer + BASE for layer in scales} <= matrices:
        raise ModelError("fedex_lora needs a model with peft's LoRA adapters on linear layers. Got none.")
    return tuple(scales.items())


def _exact(inner: Server, scales: Scales) -> Server:
    """A server that also adds the residual of the averaged products to the base weights."""

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        trained = {n: t for n, t in shared.items() if n in aggregate.means["delta"]}
        moved, state = inner.step(trained, state, aggregate, now)
        factors = _adapters({**shared, **moved})
        exact = aggregate.means[PRODUCTS]
        residuals = {n: s * (exact[n] - factors[n][1] @ factors[n][0]) for n, s in scales}
        base = {n + BASE: shared[n + BASE] + r.to(shared[n + BASE].dtype) for n, r in residuals.items()}
        return {**moved, **base}, state

    return inner._replace(
        init=lambda shared: inner.init({n: t for n, t in shared.items() if not n.endswith(BASE)}),
        step=step,
        rewrap=lambda other: _exact(inner.rewrap(other), scales),
        fitted=lambda model, clients: _exact(inner, _scales(model))._replace(fitted=None),
        moves=matching(*(layer + BASE for layer, _ in scales)),
        # A wrapper's state goes inside, where only what clients train is seen: they send no base weights.
        within=lambda wrap: _exact(inside(inner, wrap), scales),
    )
