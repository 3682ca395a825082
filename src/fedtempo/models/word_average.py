"""A small network for sentences: the mean of their words."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.errors import is_count, require
from fedtempo.models.weights import freshly_drawn, redraw

BERT_WORDS = 30_522
"""The pieces of BERT's uncased vocabulary, in which SST-2 comes."""


class WordAverageBody(nn.Module):
    """ReLU of a linear map of the mean of the tokens' vectors; padding does not count."""

    def __init__(self, words: int, width: int, hidden: int, padding: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.linear = nn.Linear(width, hidden)
        self.padding = padding

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(rows, tokens) of ids to (rows, hidden); the mask is 0 at padding, by default wherever the padding id is."""
        there = input_ids != self.padding if attention_mask is None else attention_mask != 0
        vectors = self.embedding(input_ids)
        weights = there.unsqueeze(-1).to(vectors.dtype)
        mean = (vectors * weights).sum(-2) / weights.sum(-2).clamp(min=1)
        return F.relu(self.linear(mean))


class WordAverage(nn.Module):
    """`head(body(input_ids, attention_mask))`, called as BERT is."""

    def __init__(self, body: WordAverageBody, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The head's outputs."""
        output: Tensor = self.head(self.body(input_ids, attention_mask))
        return output

    def reset_parameters(self) -> None:
        """Draw all weights again, each layer by its own rule."""
        redraw(self)


@freshly_drawn
def word_average(
    words: int = BERT_WORDS, outputs: int = 2, *, width: int = 16, hidden: int = 32, padding: int = 0
) -> WordAverage:
    """The mean of the words' vectors, a hidden layer, a linear head: a deep averaging network (Iyyer et al., 2015).

    It learns without pretrained weights and in seconds, where BERT-Tiny needs its weights and hours. No paper of ours
    uses it.

    >>> word_average().head
    Linear(in_features=32, out_features=2, bias=True)
    """
    sizes = {"words": words, "outputs": outputs, "width": width, "hidden": hidden}
    for name, size in sizes.items():
        require(is_count(size), name, "an int >= 1", size)
    require(is_count(padding, 0) and padding < words, "padding", f"an int in [0, {words})", padding)
    return WordAverage(WordAverageBody(words, width, hidden, padding), nn.Linear(hidden, outputs))
