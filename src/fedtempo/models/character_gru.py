"""The decaying-K paper's Shakespeare network."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.errors import is_count, require
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


class RecurrentBody(nn.Module):
    """Characters, embedded, through stacked GRU layers; the state after every character or after the last.

    The same function as `nn.GRU`, whose kernel torch 2.13 cannot batch with vmap outside of a gradient: lanes could be
    trained side by side but not evaluated.
    """

    def __init__(self, characters: int, embedding: int, hidden: int, layers: int, last_only: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        widths = [embedding, *[hidden] * layers]
        self.layers = nn.ModuleList(nn.GRUCell(width_in, width) for width_in, width in pairwise(widths))
        self.last_only = last_only

    def forward(self, x: Tensor) -> Tensor:
        """(rows, characters) of ints to (rows, characters, hidden), or (rows, hidden) with `last_only`."""
        states: Tensor = self.embedding(x).transpose(0, 1)
        for layer in self.layers:
            states = _states(cast(nn.GRUCell, layer), states)
        return states[-1] if self.last_only else states.transpose(0, 1)


def _states(layer: nn.GRUCell, inputs: Tensor) -> Tensor:
    """A GRU layer's state after each input; time comes first.

    r = sigmoid(W_r x + U_r h), z = sigmoid(W_z x + U_z h), n = tanh(W_n x + r (U_n h)), h = n + z (h - n), with
    biases on both sides.
    """
    # What does not depend on the state is one large product, not one small product per character.
    from_input = F.linear(inputs, layer.weight_ih, layer.bias_ih)
    state = torch.zeros_like(from_input[0, :, : layer.weight_hh.shape[1]])
    states = []
    for now in from_input.unbind(0):
        reset_in, keep_in, new_in = now.chunk(3, -1)
        reset, keep, new = F.linear(state, layer.weight_hh, layer.bias_hh).chunk(3, -1)
        new = torch.tanh(new_in + torch.sigmoid(reset_in + reset) * new)
        state = new + torch.sigmoid(keep_in + keep) * (state - new)
        states.append(state)
    return torch.stack(states)


@freshly_drawn
def character_gru(
    characters: int = 77, embedding: int = 8, hidden: int = 256, layers: int = 2, last_only: bool = False
) -> SplitNetwork:
    """Two GRU layers of 256 on characters embedded in 8 numbers: Table 3 of the decaying-K paper. 619,445 parameters.

    Predicts the next character after every one, the `language` task; with `last_only` only after the window's last,
    LEAF's form of the data and a `classification` task.

    >>> character_gru().head
    Linear(in_features=256, out_features=77, bias=True)
    """
    sizes = {"characters": characters, "embedding": embedding, "hidden": hidden, "layers": layers}
    for name, size in sizes.items():
        require(is_count(size), name, "an int >= 1", size)
    return SplitNetwork(RecurrentBody(characters, embedding, hidden, layers, last_only), nn.Linear(hidden, characters))
