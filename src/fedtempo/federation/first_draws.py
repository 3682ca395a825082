"""First tensors that are drawn: a client's personal ones, for it alone, and the components of a mixture."""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from fedtempo.client.network import tensors_of
from fedtempo.errors import ModelError
from fedtempo.federation.problem import Problem
from fedtempo.models.split import resize_head
from fedtempo.models.weights import redraw_whole, reset_of, resets_some, seeded
from fedtempo.params import Params, select


def drawn_for(problem: Problem, names: Collection[str], client: int, outputs: int | None) -> Params:
    """The client's tensors of these names, as their layers initialise them; a head may have `outputs` of its own.

    Seed and client number decide the draw. So a client that joins in round 500 starts as it would have in round 0.
    """
    template = copy.deepcopy(problem.drawable)
    if outputs is not None:
        resize_head(template, outputs)
    drawn: set[nn.Module] = set()
    with seeded(problem.seed, "personal", client):
        for prefix, layer in template.named_modules():
            reset = reset_of(layer)
            if reset is not None and layer not in drawn and _has_one_of(names, prefix, layer):
                reset()
                drawn.update(layer.modules() if resets_some(layer) else ())
    return select(tensors_of(template, problem.dtype, problem.device), names)


def components_of(problem: Problem, first: Params, count: int) -> Params:
    """The tensors of a mixture's components on top of each other: the model itself, and others drawn like it."""
    parts = [first]
    for index in range(1, count):
        with seeded(problem.seed, "component", index):
            other = copy.deepcopy(problem.drawable)
            redraw_whole(other)
            parts.append(tensors_of(other, problem.dtype, problem.device))
    frozen = problem.network.frozen
    moved = [n for n in problem.network.parameters if n not in frozen]
    # Equal components have equal gradients: they would stay one model for ever.
    if any(all(torch.equal(part[n], first[n]) for n in moved) for part in parts[1:]):
        rule = "components of a mixture must start different, so layers with weights need reset_parameters()"
        raise ModelError(f"{rule}. Got a {type(problem.model).__name__} with none.")
    return {name: torch.stack([(first if name in frozen else part)[name] for part in parts]) for name in first}


def _has_one_of(names: Collection[str], prefix: str, layer: nn.Module) -> bool:
    """Whether some of these tensors are the layer's own; those behind a computed weight are, too."""
    start = f"{prefix}." if prefix else ""
    if is_parametrized(layer) and any(name.startswith(f"{start}parametrizations.") for name in names):
        return True
    return any(start + leaf in names for leaf in (*layer._parameters, *layer._buffers))


def zero_names(model: nn.Module) -> frozenset[str]:
    """Tensors that are zero in the given model, such as B of a LoRA adapter: they start at zero for everybody."""
    named = (*model.named_parameters(), *model.named_buffers())
    return frozenset(name for name, tensor in named if not tensor.any())
