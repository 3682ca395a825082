"""FedNAR's Shakespeare network."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedtempo.errors import ModelError, is_count, is_number, require
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


class TransformerBlock(nn.Module):
    """Attention, then two linear layers; each is added to its input and normalised after that (post-norm).

    The same function as `nn.TransformerEncoderLayer`, written out because torch 2.13 has no vmap rule for the fused
    kernels that layer and `F.scaled_dot_product_attention` choose on a CPU: lanes would run one after another.
    """

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feedforward, width)
        )
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, positions, width) to the same shape."""
        x = self.attention_norm(x + self.dropout(self._attention(x)))
        output: Tensor = self.feedforward_norm(x + self.dropout(self.feedforward(x)))
        return output

    def _attention(self, x: Tensor) -> Tensor:
        by_head = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        if self.causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        mixed = self.dropout(scores.softmax(-1)) @ value
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


class TransformerBody(nn.Module):
    """Characters and their positions, embedded, through the blocks; features at every position or at the last."""

    def __init__(
        self, characters: int, length: int, width: int, blocks: list[TransformerBlock], last_only: bool
    ) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*blocks)
        self.last_only = last_only

    def forward(self, x: Tensor) -> Tensor:
        """(rows, positions) of ints to (rows, positions, width), or (rows, width) with `last_only`."""
        if x.shape[-1] > self.positions.num_embeddings:
            raise ModelError(f"x must hold at most {self.positions.num_embeddings} characters. Got {x.shape[-1]}.")
        places = self.positions(torch.arange(x.shape[-1], device=x.device))
        features: Tensor = self.blocks(self.characters(x) * math.sqrt(places.shape[-1]) + places)
        return features[..., -1, :] if self.last_only else features


@freshly_drawn
def character_transformer(
    characters: int = 80,
    length: int = 80,
    *,
    width: int = 128,
    heads: int = 4,
    layers: int = 6,
    feedforward: int = 512,
    dropout: float = 0.1,
    causal: bool = True,
    last_only: bool = False,
) -> SplitNetwork:
    """Six transformer blocks on windows of at most `length` characters: FedNAR, section 5.1. 1,220,432 parameters.

    Predicts the next character after every one, so a position sees only what came before it (`causal`). The released
    code predicts one character per window from the last position and masks nothing:
    `character_transformer(causal=False, last_only=True)`. It starts all blocks from one draw; here each has its own.

    >>> character_transformer().head
    Linear(in_features=128, out_features=80, bias=True)
    """
    sizes = {"characters": characters, "length": length, "width": width, "heads": heads, "layers": layers}
    for name, size in {**sizes, "feedforward": feedforward}.items():
        require(is_count(size), name, "an int >= 1", size)
    require(width % heads == 0, "heads", f"a divisor of width ({width})", heads)
    require(is_number(dropout) and 0 <= dropout < 1, "dropout", "a fraction in [0, 1)", dropout)
    require(causal or last_only, "causal", "True where every position is predicted (it would see its answer)", causal)
    blocks = [TransformerBlock(width, heads, feedforward, dropout, causal) for _ in range(layers)]
    return SplitNetwork(TransformerBody(characters, length, width, blocks, last_only), nn.Linear(width, characters))
