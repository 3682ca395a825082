"""FedDecay's citation-graph network, on the graphs that `fedtempo.data.sets.planetoid` describes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.errors import is_count, is_number, require
from fedtempo.models.weights import freshly_drawn, redraw


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
        x = x + _received(x, *edges.unbind(-1)) + self.linear.bias
        return F.relu(_normalised(self.norm, x, mask))


class _Received(torch.autograd.Function):
    """What each node's neighbours send, added up: (rows, nodes, width) and both ends of the edges, (rows, edges) each.

    All rows and lanes are treated as one graph, because torch fetches and adds whole rows of one matrix several times
    faster than it gathers and scatters elements, which is what `torch.vmap` would make of it.
    """

    @staticmethod
    def forward(x: Tensor, sender: Tensor, receiver: Tensor) -> Tensor:
        """The sums; they begin at 0 and go in the order of the edges."""
        first = x.shape[1] * torch.arange(len(x), device=x.device)[:, None]
        nodes = x.flatten(0, 1)
        sent = nodes.index_select(0, (sender + first).flatten())
        return torch.zeros_like(nodes).index_add_(0, (receiver + first).flatten(), sent).reshape(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        """Keep the edges."""
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """A gradient goes back along the edges."""
        sender, receiver = ctx.saved_tensors
        return _received(gradients[0], receiver, sender), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        """Lanes are further rows."""
        lanes = (
            one.expand(info.batch_size, *one.shape) if dim is None else one.movedim(dim, 0)
            for one, dim in zip(inputs, in_dims, strict=True)
        )
        result = _received(*(one.flatten(0, 1) for one in lanes))
        return result.reshape(info.batch_size, -1, *result.shape[1:]), 0


def _received(x: Tensor, sender: Tensor, receiver: Tensor) -> Tensor:
    result: Tensor = _Received.apply(x, sender, receiver)  # type: ignore[no-untyped-call]
    return result


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


@freshly_drawn
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
