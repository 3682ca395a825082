"""A network in two parts: what is shared and what may be personal."""

from __future__ import annotations

from torch import Tensor, nn

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
