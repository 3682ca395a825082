"""Steps of SGD and Adam in one pass over the weights, by torch's fused kernels.

Each further pass over a small model's weights shows in the time of a step. The kernels write over the weights, and over
the moments of Adam. They are on the CPU and for float32 and float64: shorter types would be rounded once where torch's
single operations round every time.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from fedtempo.params import Params

LONG_TYPES = (torch.float32, torch.float64)


def in_one_row(*tensors: Tensor) -> bool:
    """Whether a kernel can take tensors that belong together: it has no strides, and reads all of them as one row."""
    first, *others = tensors
    dtype, strides = first.dtype, first.stride()
    # Every step asks this of every tensor, so it is asked without a generator and without the name of a device.
    if dtype not in LONG_TYPES or not first.is_cpu:
        return False
    for other in others:
        if other.dtype is not dtype or other.stride() != strides:
            return False
    return first.is_contiguous() or (first.dim() == 4 and first.is_contiguous(memory_format=torch.channels_last))


def decayed_step(params: Params, gradient: Params, rate: float, decay: float) -> None:
    """params - rate (gradient + decay params), written over the params, with the bits of the two operations."""
    together = [n for n, g in gradient.items() if in_one_row(params[n], g)]
    if together:
        torch._fused_sgd_(
            [params[n] for n in together],
            [gradient[n] for n in together],
            [],
            weight_decay=decay,
            momentum=0.0,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
    for name in gradient.keys() - together if len(together) < len(gradient) else ():
        params[name].sub_(torch.add(gradient[name], params[name], alpha=decay), alpha=rate)


def momentum_step(
    params: Params, gradient: Params, velocity: Params, rate: float, decay: float, momentum: float, nesterov: bool
) -> bool:
    """A step of torch's SGD with momentum, over the params and the velocity.

    False, and nothing is written, where the kernel cannot take one of the tensors.
    """
    if not all(in_one_row(params[n], g, velocity[n]) for n, g in gradient.items()):
        return False
    torch._fused_sgd_(
        [params[n] for n in gradient],
        list(gradient.values()),
        [velocity[n] for n in gradient],
        weight_decay=decay,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
        is_first_step=False,
    )
    return True


def adam_step(
    params: Params,
    gradient: Params,
    moments: tuple[Params, Params],
    count: float,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    decoupled: bool,
) -> bool:
    """Step number `count` of torch's Adam, or AdamW where the decay is `decoupled`, over the params and both moments.

    False, and nothing is written, where the kernel cannot take one of the tensors.
    """
    first, second = moments
    if not all(in_one_row(params[n], g, first[n], second[n]) for n, g in gradient.items()):
        return False
    step = _as_tensor(count)
    (torch._fused_adamw_ if decoupled else torch._fused_adam_)(
        [params[n] for n in gradient],
        list(gradient.values()),
        [first[n] for n in gradient],
        [second[n] for n in gradient],
        [],
        [step] * len(gradient),
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=decay,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )
    return True


@lru_cache(maxsize=256)
def _as_tensor(count: float) -> Tensor:
    """A step's number as the kernel reads it. Clients of a round count alike, so that a number comes many times."""
    return torch.tensor(count, dtype=torch.float32)
