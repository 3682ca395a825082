"""Causal language models: the loss is that of `transformers`, and a target that is the input is warned of."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.errors import ConfigError
from fedtempo.tasks import IGNORED, TASKS, mean_loss, next_tokens
from tests.later import Later

transformers = Later("transformers")

LENGTHS = (9, 6, 4, 9, 2, 7, 5, 8, 9, 3)


def texts(seed: int, vocabulary: int = 20, y: str | None = "ids") -> dict[str, np.ndarray]:
    """Rows of unequal lengths, padded at the end."""
    ids = np.random.default_rng(seed).integers(1, vocabulary, (len(LENGTHS), 9))
    mask = (np.arange(9) < np.array(LENGTHS)[:, None]).astype(np.int64)
    ids = ids * mask
    labels = ids if y == "ids" else np.where(mask == 1, ids, IGNORED)
    return {"input_ids": ids, "attention_mask": mask, **({"y": labels} if y else {})}


def federated(y: str | None = "ids") -> ft.data.FederatedData:
    return ft.data.FederatedData.from_clients([texts(seed, y=y) for seed in range(3)], test=0.4)


class TwoLayers(nn.Module):
    """Six lines that make a loss without shifting it."""

    def __init__(self, shift: int = 0) -> None:
        super().__init__()
        self.embed, self.out, self.shift = nn.Embedding(20, 8), nn.Linear(8, 20), shift

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.out(self.embed(input_ids))
        if labels is None:
            return {"logits": logits}
        kept = logits[:, : logits.shape[1] - self.shift]
        return {
            "loss": nn.functional.cross_entropy(kept.flatten(0, 1), labels[:, self.shift :].flatten()),
            "logits": logits,
        }


def gpt2() -> nn.Module:
    sizes = {"vocab_size": 20, "n_positions": 12, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def test_targets_are_the_tokens_after_each_place_without_padding():
    batch = {"y": torch.tensor([[5, 6, 7, 0], [8, 9, 1, 2]]), "attention_mask": torch.tensor([[1, 1, 1, 0], [1] * 4])}
    assert next_tokens(batch).tolist() == [[6, 7, IGNORED, IGNORED], [9, 1, 2, IGNORED]]


def test_the_loss_is_the_mean_over_all_tokens_of_the_batch():
    # Probabilities of the right token: 1/4 once in the first row, 1/2 three times in the second.
    logits = torch.log(torch.tensor([[[1.0, 3.0]] * 3, [[1.0, 1.0]] * 3], dtype=torch.float64))
    targets = torch.tensor([[0, IGNORED, IGNORED], [0, 1, 0]])
    wanted = (math.log(4) + 3 * math.log(2)) / 4
    assert float(mean_loss(TASKS["next_token"], logits, {"y": targets})) == pytest.approx(wanted)
    perplexity = TASKS["next_token"].scores["perplexity"]
    assert perplexity.of_client(logits, targets) == pytest.approx(math.exp(wanted))
    # The first row is wrong, the second row is right wherever its token is 0.
    assert TASKS["next_token"].scores["accuracy"].of_client(logits, targets) == pytest.approx(2 / 4)


@pytest.mark.parametrize("loss", ["next_token", "own"])
def test_scores_are_those_of_transformers_on_the_same_rows(loss):
    data = federated("ids" if loss == "next_token" else "ignored")
    evaluation = ft.Evaluation(epochs=0)
    settings = {"data": data, "algorithm": ft.algorithms.fedavg(lr=0.1, steps=2), "rounds": 1, "evaluation": evaluation}
    result = ft.run(model=gpt2, **settings, loss=loss, metrics=["perplexity"], backend="serial")
    model = gpt2()
    model.load_state_dict(result.model().state_dict())
    found = []
    for client in range(3):
        rows = data.client(client, "test")
        labels = torch.where(rows["attention_mask"] == 1, rows["input_ids"], IGNORED)
        with torch.no_grad():
            given = {"input_ids": rows["input_ids"], "attention_mask": rows["attention_mask"], "labels": labels}
            found.append(math.exp(float(model.eval()(**given).loss)))
    scores = result.history[-1].test.existing_before.values
    assert scores["perplexity"] == pytest.approx(found, rel=1e-5)
    assert np.exp(scores["loss"]) == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_step_is_that_of_a_plain_loop(backend):
    rate = 0.5
    model = ft.models.gpt_tiny(20, 9, width=8, heads=2, layers=1)
    plain = ft.models.gpt_tiny(20, 9, width=8, heads=2, layers=1).double()
    plain.load_state_dict(model.state_dict())
    one = ft.data.FederatedData.from_clients([texts(0)])
    result = ft.run(
        model=model, init="model", data=one, algorithm=ft.algorithms.fedavg(lr=rate, steps=1), rounds=1,
        batch_size=None, loss="next_token", dtype=torch.float64, evaluation=None, backend=backend,
    )  # fmt: skip
    rows = one.client(0)
    labels = torch.where(rows["attention_mask"] == 1, rows["input_ids"], IGNORED)
    logits = plain(rows["input_ids"], rows["attention_mask"])
    nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
    for name, weight in plain.named_parameters():
        expected = weight - rate * weight.grad
        torch.testing.assert_close(result.model().state_dict()[name].double(), expected.detach(), rtol=1e-9, atol=1e-12)


def test_gpt_tiny_is_gpt2():
    ours = ft.models.gpt_tiny(20, 12, width=8, heads=2, layers=1).double().eval()
    theirs = gpt2().double().eval()
    block, other = ours.body.blocks[0], theirs.transformer.h[0]
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(ours.body.tokens.weight)
        theirs.transformer.wpe.weight.copy_(ours.body.places.weight)
        theirs.lm_head.weight = nn.Parameter(ours.head.weight.clone())
        pairs = (
            (block.query_key_value, other.attn.c_attn),
            (block.output, other.attn.c_proj),
            (block.feedforward[0], other.mlp.c_fc),
            (block.feedforward[2], other.mlp.c_proj),
        )
        for mine, its in pairs:
            its.weight.copy_(mine.weight.T)
            its.bias.copy_(mine.bias)
    rows = {name: torch.from_numpy(values) for name, values in texts(0, y=None).items()}
    there = rows["attention_mask"] == 1
    torch.testing.assert_close(ours(**rows)[there], theirs(**rows).logits[there], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shift", [0, 1])
def test_scores_of_a_models_own_loss_compare_what_that_loss_compares(shift):
    data = federated("ignored")
    settings = {"algorithm": ft.algorithms.fedavg(lr=0.1, steps=2), "rounds": 1, "evaluation": ft.Evaluation(epochs=0)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = ft.run(model=lambda: TwoLayers(shift), data=data, loss="own", **settings)
    assert any("of the next token" in note for note in result.notes) == bool(shift)
    assert any("equal the input 'input_ids'" in str(one.message) for one in told) == (not shift)


def test_tokens_are_asked_for():
    with pytest.raises(ConfigError, match="next_token"):
        ft.run(
            model=gpt2,
            data=federated(None),
            algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
            rounds=1,
            loss="next_token",
        )


def test_masked_language_models_make_their_own_loss():
    sizes = {
        "vocab_size": 20,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    clients = [texts(seed, y="ignored") for seed in range(3)]
    for rows in clients:
        rows["input_ids"] = np.where(np.arange(9) % 3 == 1, 19, rows["input_ids"])
    result = ft.run(
        model=lambda: transformers.BertForMaskedLM(transformers.BertConfig(**sizes)),
        data=ft.data.FederatedData.from_clients(clients, test=0.4),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
        rounds=1,
        loss="own",
    )
    assert not any("next token" in note for note in result.notes)
