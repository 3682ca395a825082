"""FedDecay's citation-graph network, on the graphs that `fedtempo.data.planetoid` describes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.errors import is_count, is_number, require
from fedtempo.network import redraw


class GraphConvolution(nn.Module):
    """ReLU(BatchNorm(W (x + the sum of the neighbours' x) + b)): the first half of a GIN layer, with eps = 0."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """(rows, nodes, features) to (rows, nodes, hidden)."""
        # W goes first because it commutes with the sum, and `hidden` columns are cheaper to add up than `features`.
        x = F.linear(x, self.linear.weight)
        x = x + _received(x, edges) + self.linear.bias
        return F.relu(_normalised(self.norm, x, mask))


def _received(x: Tensor, edges: Tensor) -> Tensor:
    """What each node's neighbours send, added up."""
    sender, receiver = (edges[..., end, None].expand(*edges.shape[:-1], x.shape[-1]) for end in (0, 1))
    return torch.zeros_like(x).scatter_add(-2, receiver, x.gather(-2, sender))


def _normalised(norm: nn.BatchNorm1d, x: Tensor, mask: Tensor) -> Tensor:
    """BatchNorm over the nodes that are there: padding must not count in a client's statistics."""
    if not norm.training:
        output: Tensor = norm(x.transpose(1, 2)).transpose(1, 2)
        return output
    there = mask.unsqueeze(-1).to(x.dtype)
    count = there.sum()
    mean = (x * there).sum((0, 1)) / count
    variance = ((x - mean).square() * there).sum((0, 1)) / count
    _remember(norm, mean.detach(), (variance * count / (count - 1).clamp(min=1)).detach())
    return (x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias


def _remember(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor) -> None:
    momentum = norm.momentum
    assert norm.running_mean is not None and norm.running_var is not None and momentum is not None
    assert norm.num_batches_tracked is not None
    norm.running_mean.mul_(1 - momentum).add_(mean * momentum)
    norm.running_var.mul_(1 - momentum).add_(variance * momentum)
    norm.num_batches_tracked.add_(1)


class GraphBody(nn.Module):
    """All of the network but the last linear map."""

    def __init__(self, features: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.first = GraphConvolution(features, hidden)
        self.linears = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers - 1))
        self.convolutions = nn.ModuleList(GraphConvolution(hidden, hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """(rows, nodes, features) to (rows, nodes, hidden)."""
        x = self.first(x, edges, mask)
        for linear, convolution in zip(self.linears, self.convolutions, strict=True):
            x = convolution(F.relu(self.dropout(linear(x))), edges, mask)
        return x


class GraphNetwork(nn.Module):
    """`head(body(x, edges, mask))`: a prediction for every node."""

    def __init__(self, body: GraphBody, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """(rows, nodes, features) to (rows, nodes, classes)."""
        output: Tensor = self.head(self.body(x, edges, mask))
        return output

    def reset_parameters(self) -> None:
        """Draw all weights again, each layer by its own rule."""
        redraw(self)


def gin(
    features: int = 500, outputs: int = 3, *, hidden: int = 64, layers: int = 2, dropout: float = 0.5
) -> GraphNetwork:
    """Graph isomorphism network, 2 layers of 64 with BatchNorm and dropout: FedDecay, section 4. 40,835 parameters.

    A layer is two linear maps on x + the sum of the neighbours' x, with BatchNorm and ReLU between them (Xu et al.
    2019, eq. 4.1, eps = 0); the second map of the last layer is the head. The released code predicts 5 classes where
    PubMed has 3, and carries a second BatchNorm in each layer that it never calls; both are left out.

    >>> gin().head
    Linear(in_features=64, out_features=3, bias=True)
    """
    for name, size in {"features": features, "outputs": outputs, "hidden": hidden, "layers": layers}.items():
        require(is_count(size), name, "an int >= 1", size)
    require(is_number(dropout) and 0 <= dropout < 1, "dropout", "a fraction in [0, 1)", dropout)
    return GraphNetwork(GraphBody(features, hidden, layers, dropout), nn.Linear(hidden, outputs))
