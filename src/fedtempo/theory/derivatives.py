"""Gradients and Hessian-vector products of a model's loss, as functions of its parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import grad

from fedtempo.client.network import Network, tensors_of
from fedtempo.params import Params, combine, norm, partition, scaled, squared_norm
from fedtempo.randomness import generator
from fedtempo.tasks import Batch, PerSample, Task, as_task

Loss = Callable[[Params, Batch], Tensor]
"""The mean loss of a batch, as a function of the parameters."""


def model_loss(
    model: nn.Module,
    example: Batch,
    loss: str | Task | PerSample | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Loss, Params]:
    """The model's mean loss as a function of its parameters, and the parameters it has now.

    The model is in evaluation mode: no dropout, and batch normalisation uses its stored statistics, so that the loss
    is one function and can be differentiated twice. The task follows from the example's targets unless `loss` names it.
    """
    network = Network(model)
    task = as_task(loss, example.get("y"))
    params, buffers = partition(tensors_of(model, dtype, "cpu"), network.parameters)

    def mean(at: Params, batch: Batch) -> Tensor:
        return network.loss(task, combine(at, buffers), batch)

    return mean, params


def gradient(loss: Loss, params: Params, batch: Batch) -> Params:
    """The gradient of the batch's mean loss."""
    result: Params = grad(lambda at: loss(at, batch))(params)
    return {name: value.detach() for name, value in result.items()}


def hessian_vector(loss: Loss, params: Params, batch: Batch, direction: Params) -> Params:
    """The Hessian of the batch's mean loss times a direction, without building the Hessian: grad of `<grad, v>`.

    >>> quadratic = lambda p, batch: (p["w"] ** 3).sum()
    >>> hessian_vector(quadratic, {"w": torch.tensor([2.0])}, {}, {"w": torch.tensor([1.0])})
    {'w': tensor([12.])}
    """

    # Reverse over reverse: `torch.func.jvp` loads torch's TorchScript decompositions, which takes seconds and warns.
    def slope(at: Params) -> Tensor:
        return _inner(grad(lambda point: loss(point, batch))(at), direction)

    product: Params = grad(slope)(params)
    return {name: value.detach() for name, value in product.items()}


def largest_eigenvalue(
    loss: Loss, params: Params, batch: Batch, *, iterations: int = 100, tolerance: float = 1e-4, seed: int = 0
) -> float:
    """The largest eigenvalue of the Hessian at `params`: the curvature L that the learning rate must respect.

    Power iteration with Hessian-vector products, until two Rayleigh quotients agree to `tolerance`; it approaches from
    below. Where the eigenvalue largest in size is negative, a second pass on the shifted Hessian finds the largest one.
    """

    def product(direction: Params) -> Params:
        return hessian_vector(loss, params, batch, direction)

    dominant = _power_iteration(product, params, iterations, tolerance, seed)
    if dominant >= 0:
        return dominant

    def shifted(direction: Params) -> Params:
        turned = product(direction)
        return {name: turned[name] - dominant * direction[name] for name in turned}

    return dominant + _power_iteration(shifted, params, iterations, tolerance, seed)


def _power_iteration(
    product: Callable[[Params], Params], like: Params, iterations: int, tolerance: float, seed: int
) -> float:
    random = generator(seed, "theory", "power iteration")
    start = {name: torch.from_numpy(random.standard_normal(tuple(p.shape))).to(p) for name, p in like.items()}
    direction = scaled(start, 1 / float(norm(start)))
    quotient = 0.0
    for _ in range(iterations):
        image = product(direction)
        previous, quotient = quotient, float(_inner(direction, image))
        size = float(torch.sqrt(squared_norm(image)))
        if size == 0 or abs(quotient - previous) <= tolerance * abs(quotient):
            break
        direction = scaled(image, 1 / size)
    return quotient


def _inner(a: Params, b: Params) -> Tensor:
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()
