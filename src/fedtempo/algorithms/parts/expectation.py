"""FedEM's E-step: which component each row of a client belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.client.network import Network
from fedtempo.client.objectives import Received, component
from fedtempo.client.phase import Carry
from fedtempo.errors import require
from fedtempo.params import Params
from fedtempo.tasks import Batch, Task, hide_padded_outputs


def expectation(network: Network, task: Task, received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
    """The E-step: responsibilities of every training row under the current components, and new mixture weights."""
    pi = carry.personal["pi"]
    # A softmax of log pi_m - loss_m is pi_m exp(-loss_m) normalised, without underflow for large losses.
    losses = [_losses(network, task, component(carry.shared, m), data) for m in range(pi.shape[0])]
    responsibilities = torch.softmax(torch.log(pi) - torch.stack(losses, dim=-1), dim=-1)
    rows = data["_rows"].to(pi.dtype) if "_rows" in data else torch.ones_like(responsibilities[:, 0])
    weights = (responsibilities * rows.unsqueeze(-1)).sum(0) / rows.sum()
    return carry._replace(personal={"pi": weights}), {**data, "_responsibilities": responsibilities}


def _losses(network: Network, task: Task, params: Params, data: Batch) -> Tensor:
    losses = task.losses(hide_padded_outputs(network.forward(params, data), data), data["y"])
    require(losses.dim() == 1, f"the loss {task.name!r}", "one number per row for a mixture", "one number per batch")
    return losses
