"""The model of an APFL user: its own and the shared one, mixed by its weight alpha."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from fedtempo.algorithms.algorithm import Predict
from fedtempo.client.network import Network
from fedtempo.params import Params
from fedtempo.tasks import Batch

ALPHA = "<alpha>"
"""The mixing weight among what a client keeps. No tensor of a model has such a name."""
Mix = Literal["parameters", "outputs"]


def mixture_of(alpha: Tensor, own: Params, shared: Params) -> Params:
    """alpha v + (1 - alpha) w; whole numbers and frozen tensors are the shared model's."""
    mixed = {n: alpha * own[n] + (1 - alpha) * w for n, w in shared.items() if n in own and w.is_floating_point()}
    return {**shared, **mixed}


def predict_interpolated(mix: Mix) -> Predict:
    """The mixture's outputs, or with "outputs" the mixture of both models' outputs."""

    def predict(network: Network, shared: Params, personal: Params, batch: Batch, train: bool = False) -> Tensor:
        alpha = personal[ALPHA]
        if mix == "parameters":
            return network.forward(mixture_of(alpha, personal, shared), batch, train)
        own = {n: personal.get(n, t) for n, t in shared.items()}
        return alpha * network.forward(own, batch, train) + (1 - alpha) * network.forward(shared, batch, train)

    return predict
