"""A client's first personal tensors, drawn for it alone."""

from __future__ import annotations

import copy
from collections.abc import Collection

from torch import nn

from fedtempo.client.network import tensors_of
from fedtempo.federation.problem import Problem
from fedtempo.models.split import resize_head
from fedtempo.models.weights import seeded
from fedtempo.params import Params, select


def drawn_for(problem: Problem, names: Collection[str], client: int, outputs: int | None) -> Params:
    """The client's tensors of these names, as their layers initialise them; a head may have `outputs` of its own.

    Seed and client number decide the draw. So a client that joins in round 500 starts as it would have in round 0.
    """
    template = copy.deepcopy(problem.model)
    if outputs is not None:
        resize_head(template, outputs)
    with seeded(problem.seed, "personal", client):
        for prefix, layer in template.named_modules():
            reset = getattr(layer, "reset_parameters", None)
            leaves = (*layer._parameters, *layer._buffers)
            if callable(reset) and any((f"{prefix}.{leaf}" if prefix else leaf) in names for leaf in leaves):
                reset()
    return select(tensors_of(template, problem.dtype, problem.device), names)


def zero_names(model: nn.Module) -> frozenset[str]:
    """Tensors that are zero in the given model, such as B of a LoRA adapter: they start at zero for everybody."""
    named = (*model.named_parameters(), *model.named_buffers())
    return frozenset(name for name, tensor in named if not tensor.any())
