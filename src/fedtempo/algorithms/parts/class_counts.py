"""How many rows of each class a FedRoD client has, and what its model must be like."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.client.network import Network
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.errors import ModelError
from fedtempo.params import is_plain, zeros_like
from fedtempo.tasks import Batch, Task

COUNTS = "_class_counts"
"""The scratch entry with the client's number of rows of each class."""


def count_classes(network: Network, task: Task, received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
    """Note the client's rows of each class; an error where targets are not classes, or outputs not the head's."""
    target = data["y"]
    if network.outputs_are != "classes" or target.dim() != 1:
        found = {"numbers": "numbers", "labels": "labels, each with a logit"}.get(
            network.outputs_are, "classes of tokens"
        )
        raise ModelError(
            f"fedrod needs one class for each row as the target, and an output for each class. Got {found}."
        )
    one = {n: t[:1] for n, t in data.items() if n != "_rows"}
    outputs = network.forward(carry.shared, one)
    if not network.head_of_body and is_plain(outputs):
        _check_last(network.forward({**carry.shared, **zeros_like(carry.personal)}, one))
    rows = torch.ones_like(target) if "_rows" not in data else data["_rows"].to(target.dtype)
    classes = torch.arange(outputs.shape[-1], device=target.device)
    counts = ((target.unsqueeze(-1) == classes) * rows.unsqueeze(-1)).sum(0)
    return carry._replace(scratch={**carry.scratch, COUNTS: counts.to(outputs.dtype)}), data


def _check_last(without_head: Tensor) -> None:
    """Beside the head nothing makes outputs: the personal head's are added to the model's, and they would be, too."""
    if (without_head - without_head[..., :1]).any():
        rule = "a model whose outputs are those of its head, to which a personal head's are added"
        raise ModelError(f"fedrod needs {rule}. Got outputs that do not vanish with the head's weights.")
