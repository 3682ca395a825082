"""BERT-Tiny from a folder in transformers' layout, made here with random numbers and a small vocabulary."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.func import grad, vmap

from fedtempo.client.network import Network, tensors_of
from fedtempo.errors import ModelError
from fedtempo.models import bert_tiny
from fedtempo.models.weights import build


def test_without_transformers_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"\[text\]") as caught:
        bert_tiny("anything")
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="the text extra is not installed")


@pytest.fixture(scope="module")
def configuration(transformers):
    """BERT-Tiny's sizes, with 100 words instead of 30,522."""
    return transformers.BertConfig(
        vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )


@pytest.fixture(scope="module")
def folder(transformers, configuration, tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    transformers.BertModel(configuration).save_pretrained(path)
    return path


def tokens() -> torch.Tensor:
    x = torch.randint(1, 100, (2, 3, 12), generator=torch.Generator().manual_seed(3))
    x[:, 1:, 7:] = 0
    return x


def test_parameters_are_as_counted_by_hand(transformers, tmp_path):
    transformers.BertConfig(
        vocab_size=30_522, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    ).save_pretrained(tmp_path)
    model = bert_tiny(tmp_path, pretrained=False)
    embeddings = 30_522 * 128 + 512 * 128 + 2 * 128 + 2 * 128
    layer = 4 * (128 * 128 + 128) + (128 * 512 + 512) + (512 * 128 + 128) + 2 * 2 * 128
    pooler, head = 128 * 128 + 128, 128 * 2 + 2
    assert embeddings + 2 * layer + pooler + head == 4_386_178
    assert sum(p.numel() for p in model.parameters()) == 4_386_178
    assert not list(model.buffers())


def test_pretrained_weights_give_the_librarys_own_outputs_and_survive_a_run_s_seed(transformers, folder):
    model = build(bert_tiny(folder), 5)[0].eval()
    reference = transformers.BertModel.from_pretrained(folder).eval()
    x = tokens()[0]
    expected = reference(x, attention_mask=(x != 0).long()).pooler_output
    torch.testing.assert_close(model.body(x), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(model(x), model.head(model.body(x)))
    assert model.pretrained
    assert model.initial_weights == f"pretrained ({folder})"
    assert not torch.equal(model.head.weight, build(bert_tiny(folder), 6)[0].head.weight)


def test_padding_does_not_change_a_sentence(folder):
    model = bert_tiny(folder).eval()
    x = tokens()[0, 1:2]
    torch.testing.assert_close(model(x), model(x[:, :7]), rtol=1e-4, atol=1e-5)


def test_a_mask_is_the_padding_it_covers(folder):
    model = bert_tiny(folder).eval()
    x = tokens()[0]
    assert torch.equal(model(input_ids=x, attention_mask=(x != 0).long()), model(x))
    hidden = torch.ones_like(x)
    hidden[:, 5:] = 0
    torch.testing.assert_close(model(x, hidden), model(x[:, :5]), rtol=1e-4, atol=1e-5)


def test_random_weights_come_only_on_request_and_from_the_seed(configuration, folder, tmp_path):
    configuration.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"weights.*pretrained=False"):
        bert_tiny(tmp_path)
    model = bert_tiny(folder, pretrained=False)
    assert not model.pretrained
    assert model.initial_weights.startswith("random")
    first, again, other = (build(model, seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(not torch.equal(first[name], other[name]) for name in first if first[name].std() > 0)
    assert first["body.embeddings.word_embeddings.weight"].std() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("broken", ["truncated", "absent", "another model"])
def test_a_folder_that_cannot_be_used_is_a_typed_error(transformers, configuration, folder, tmp_path, broken):
    configuration.save_pretrained(tmp_path)
    if broken == "truncated":
        whole = (folder / "model.safetensors").read_bytes()
        (tmp_path / "model.safetensors").write_bytes(whole[:1000])
    elif broken == "another model":
        transformers.BertForMaskedLM(configuration).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="source must hold"):
        bert_tiny(tmp_path / "nowhere" if broken == "absent" else tmp_path)


def test_a_sentence_that_is_too_long_is_named(folder):
    with pytest.raises(ModelError, match=r"at most 512 tokens per row\. Got 513"):
        bert_tiny(folder)(torch.ones(1, 513, dtype=torch.int64))


def test_lanes_side_by_side_have_the_gradients_of_lanes_one_by_one(folder):
    network = Network(bert_tiny(folder, pretrained=False))
    lanes = [tensors_of(build(bert_tiny(folder, pretrained=False), seed)[0], torch.float64, "cpu") for seed in range(2)]
    batch = {
        "input_ids": tokens(),
        "attention_mask": (tokens() != 0).long(),
        "y": torch.tensor([[0, 1, 1], [1, 0, 1]]),
        "_key": torch.tensor([4, 5]),
    }

    def gradient(params, rows):
        def loss(weights):
            return torch.nn.functional.cross_entropy(network.forward(weights, rows, train=True), rows["y"])

        return grad(loss)(params)

    stacked = {name: torch.stack([lane[name] for lane in lanes]) for name in lanes[0]}
    together = vmap(gradient)(stacked, batch)
    evaluated = vmap(network.forward)(stacked, batch)
    for lane, params in enumerate(lanes):
        rows = {name: value[lane] for name, value in batch.items()}
        alone = gradient(params, rows)
        for name in alone:
            torch.testing.assert_close(together[name][lane], alone[name], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(evaluated[lane], network.forward(params, rows), rtol=1e-12, atol=1e-12)
