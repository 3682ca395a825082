"""A network in two parts: what is shared and what may be personal."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from fedtempo.errors import ModelError
from fedtempo.models.weights import redraw


class SplitNetwork(nn.Module):
    """`head(body(x))`. Its weights can be drawn again from a seed by `reset_parameters`."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """The head's outputs."""
        output: Tensor = self.head(self.body(x))
        return output

    def reset_parameters(self) -> None:
        """Draw all weights again, each layer by its own rule."""
        redraw(self)


def resize_head(model: nn.Module, outputs: int) -> None:
    """Give the model's last linear layer this many outputs, for clients with their own classes."""
    last = [m for m in getattr(model, "head", model).modules() if isinstance(m, nn.Linear)]
    if not last:
        raise ModelError("heads of different sizes need a linear layer in model.head. Got none.")
    layer = last[-1]
    if is_parametrized(layer):
        raise ModelError(
            "heads of different sizes need a plain linear layer at the end. Got one whose weight is computed."
        )
    layer.out_features = outputs
    layer.weight = nn.Parameter(layer.weight.new_empty(outputs, layer.in_features))
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.new_empty(outputs))
