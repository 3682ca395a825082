"""FedDecay's SST-2 network: BERT-Tiny, by the transformers library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fedtempo.errors import ModelError, is_count, require
from fedtempo.models.weights import freshly_drawn
from fedtempo.support.extras import library

BERT_TINY = "google/bert_uncased_L-2_H-128_A-2"


class BertBody(nn.Module):
    """Token ids to one vector per sentence: what transformers' `BertModel` pools, with its dropout on top.

    Its three parts are called in turn, because `BertModel.forward` looks at the values of the mask, which vmap forbids.
    """

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.pooler = bert.embeddings, bert.encoder, bert.pooler
        # Constants, given as arguments below: as buffers they would be sent and averaged in every round.
        del self.embeddings.position_ids, self.embeddings.token_type_ids
        self.dropout = nn.Dropout(bert.config.hidden_dropout_prob)
        self.padding = int(bert.config.pad_token_id or 0)
        self.longest = int(bert.config.max_position_embeddings)
        self.deviation = float(bert.config.initializer_range)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(rows, tokens) of ids to (rows, width); the mask is 0 at padding, by default wherever the padding id is."""
        length = input_ids.shape[-1]
        if length > self.longest:
            raise ModelError(f"input_ids must hold at most {self.longest} tokens per row. Got {length}.")
        places = torch.arange(length, device=input_ids.device).expand_as(input_ids)
        hidden = self.embeddings(input_ids=input_ids, token_type_ids=torch.zeros_like(places), position_ids=places)
        padding = input_ids == self.padding if attention_mask is None else attention_mask == 0
        hide = torch.zeros_like(padding, dtype=hidden.dtype).masked_fill(padding, torch.finfo(hidden.dtype).min)
        output: Tensor = self.dropout(self.pooler(self.encoder(hidden, hide[:, None, None, :])[0]))
        return output


class BertClassifier(nn.Module):
    """A BERT body and a linear head; `initial_weights` says in words where the body's first weights came from."""

    def __init__(self, body: BertBody, outputs: int, initial_weights: str) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(body.pooler.dense.out_features, outputs)
        self.initial_weights = initial_weights

    @property
    def pretrained(self) -> bool:
        """Whether the body started from pretrained weights; a result that did not must not be called BERT-Tiny's."""
        return not self.initial_weights.startswith("random")

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The head's outputs."""
        output: Tensor = self.head(self.body(input_ids, attention_mask))
        return output

    def reset_parameters(self) -> None:
        """Draw the head again and, unless it is pretrained, the body: normal weights and zero biases, as BERT does."""
        for layer in (self.head if self.pretrained else self).modules():
            if isinstance(layer, nn.LayerNorm):
                layer.reset_parameters()
            elif isinstance(layer, (nn.Linear, nn.Embedding)):
                _draw(layer, self.body.deviation)


def _draw(layer: nn.Linear | nn.Embedding, deviation: float) -> None:
    nn.init.normal_(layer.weight, std=deviation)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)
    elif layer.padding_idx is not None:
        nn.init.zeros_(layer.weight[layer.padding_idx])


@freshly_drawn
def bert_tiny(source: str | Path = BERT_TINY, outputs: int = 2, pretrained: bool = True) -> BertClassifier:
    """BERT with 2 layers of width 128, its pooled vector, a linear head: FedDecay, section 4. 4,386,178 parameters.

    `source` is a folder with `config.json` and weights in transformers' layout, or a name on the Hugging Face hub. The
    pretrained body is kept by `reset_parameters`; only the head is drawn. `pretrained=False` reads the configuration
    alone and draws everything; `initial_weights` then says so, and a report should repeat it.
    Needs the `text` extra.
    """
    require(is_count(outputs), "outputs", "an int >= 1", outputs)
    transformers = library("transformers", "text", "bert_tiny", ModelError)
    try:
        configuration = transformers.BertConfig.from_pretrained(source, attn_implementation="eager")
        bert = _pretrained(transformers, source, configuration) if pretrained else transformers.BertModel(configuration)
    except (OSError, ValueError, SafetensorError) as error:
        what = "weights" if pretrained else "configuration"
        advice = " Or ask for random ones with pretrained=False." if pretrained else ""
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"source must hold BERT's {what}. Got {str(source)!r}: {reason}{advice}") from None
    origin = f"pretrained ({source})" if pretrained else f"random ({source}'s configuration only)"
    model = BertClassifier(BertBody(bert), outputs, origin)
    model.reset_parameters()
    return model.train()


def _pretrained(transformers: Any, source: str | Path, configuration: Any) -> Any:
    # Whoever wrote the experiment file has named the source: its weights are numbers, and no pickle of theirs is run.
    settings = {"weights_only": True, "trust_remote_code": False, "output_loading_info": True}
    bert, report = transformers.BertModel.from_pretrained(source, config=configuration, **settings)
    # transformers only warns, and would train on with random numbers in their place.
    if report["missing_keys"]:
        raise ValueError(f"{min(report['missing_keys'])} is missing.")
    return bert
