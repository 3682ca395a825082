"""A small causal language model in GPT-2's form."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedtempo.errors import ModelError, is_count, is_number, require
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import freshly_drawn


class GptBlock(nn.Module):
    """GPT-2's block: each of its two halves is normalised first and then added to its input (pre-norm)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, hidden_places: Tensor) -> Tensor:
        """(rows, tokens, width) to the same shape; no place sees those that `hidden_places` marks."""
        hidden = hidden + self.dropout(self._attention(self.attention_norm(hidden), hidden_places))
        output: Tensor = hidden + self.dropout(self.feedforward(self.feedforward_norm(hidden)))
        return output

    def _attention(self, x: Tensor, hidden_places: Tensor) -> Tensor:
        by_head = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        # The smallest number, not -inf: a row of padding alone would be NaN.
        scores = scores.masked_fill(hidden_places, torch.finfo(scores.dtype).min)
        mixed = self.dropout(scores.softmax(-1)) @ value
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


class GptBody(nn.Module):
    """Tokens and their places, embedded, through the blocks; features at every place."""

    def __init__(self, tokens: int, length: int, width: int, blocks: list[GptBlock], dropout: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(rows, tokens) of ids to (rows, tokens, width); the mask is 0 at padding."""
        length, longest = input_ids.shape[-1], self.places.num_embeddings
        if length > longest:
            raise ModelError(f"input_ids must hold at most {longest} tokens per row. Got {length}.")
        hidden = self.dropout(self.tokens(input_ids) + self.places(torch.arange(length, device=input_ids.device)))
        hidden_places = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).triu(1)
        if attention_mask is not None:
            hidden_places = hidden_places | (attention_mask == 0)[:, None, None, :]
        for block in self.blocks:
            hidden = block(hidden, hidden_places)
        output: Tensor = self.norm(hidden)
        return output


class GptTiny(SplitNetwork):
    """`head(body(input_ids, attention_mask))`, called as models of `transformers` are."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(rows, tokens) of ids to (rows, tokens, vocabulary)."""
        output: Tensor = self.head(self.body(input_ids, attention_mask))
        return output

    def reset_parameters(self) -> None:
        """GPT-2's first weights: normal with deviation 0.02, smaller where a block adds to its input, zero biases."""
        for layer in self.modules():
            if isinstance(layer, nn.LayerNorm):
                layer.reset_parameters()
            elif isinstance(layer, (nn.Linear, nn.Embedding)):
                nn.init.normal_(layer.weight, std=0.02)
                if isinstance(layer, nn.Linear) and layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        last = [w for name, w in self.named_parameters() if name.endswith(("output.weight", "feedforward.2.weight"))]
        for weight in last:
            nn.init.normal_(weight, std=0.02 / math.sqrt(len(last)))


@freshly_drawn
def gpt_tiny(
    tokens: int,
    length: int = 128,
    *,
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    dropout: float = 0.0,
) -> GptTiny:
    """A causal language model in GPT-2's form, for `loss="next_token"`; it runs side by side.

    The output layer has weights of its own, so that methods with a personal head work. With `y` equal to `input_ids`:

    >>> gpt_tiny(50)(torch.zeros(2, 7, dtype=torch.int64)).shape
    torch.Size([2, 7, 50])
    """
    sizes = {"tokens": tokens, "length": length, "width": width, "heads": heads, "layers": layers}
    for name, size in sizes.items():
        require(is_count(size), name, "an int >= 1", size)
    require(width % heads == 0, "heads", f"a divisor of width ({width})", heads)
    require(is_number(dropout) and 0 <= dropout < 1, "dropout", "a fraction in [0, 1)", dropout)
    blocks = [GptBlock(width, heads, dropout) for _ in range(layers)]
    model = GptTiny(GptBody(tokens, length, width, blocks, dropout), nn.Linear(width, tokens, bias=False))
    model.reset_parameters()
    return model
