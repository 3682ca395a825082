"""Adapters on a base that was trained elsewhere: the base is the same in every run, and only adapters and head move."""

from __future__ import annotations

import pytest
import torch

from fedtempo.data import load
from fedtempo.models.weights import build
from fedtempo.papers.control.adapters import LORA, METHODS, AdaptedModel, RowsAsTokens, pretrained

SIZES = {"width": 8, "layers": 1, "epochs": 1}


def test_images_of_both_sizes_become_eight_tokens() -> None:
    body = RowsAsTokens(8, 1)
    small = torch.rand(2, 64)
    # Each pixel three by three times, with a margin of two pixels: what the body makes small again.
    large = torch.zeros(2, 28, 28)
    large[:, 2:26, 2:26] = small.reshape(2, 8, 8).repeat_interleave(3, 1).repeat_interleave(3, 2)
    torch.testing.assert_close(body(large), body(small))
    assert body(small).shape == (2, 8)


def test_the_base_has_learnt_the_digits_and_no_run_changes_it() -> None:
    table = load("digits")
    x, y = torch.tensor(table.columns["x"] / 16, dtype=torch.float32), torch.tensor(table.columns["y"])
    pretrained.cache_clear()
    base = pretrained(16, 1, 3)
    assert float((base(x).argmax(1) == y).float().mean()) > 0.5
    kept = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    pretrained.cache_clear()
    for name, tensor in pretrained(16, 1, 3).state_dict().items():
        torch.testing.assert_close(tensor, kept[name], rtol=0, atol=0)


def test_adapters_and_the_head_are_trained_and_start_as_the_base() -> None:
    pytest.importorskip("peft")
    make = AdaptedModel(**SIZES).maker(None)
    (one, _), (other, _) = build(make, 1), build(make, 2)
    trained = {name for name, value in one.named_parameters() if value.requires_grad}
    assert all("lora_" in name or ".head." in name for name in trained)
    assert sum("lora_A" in name for name in trained) == sum("lora_B" in name for name in trained) == 2
    x = torch.rand(3, 28, 28)
    torch.testing.assert_close(one(x), pretrained(**SIZES)(x))
    differ = {name for name, value in one.state_dict().items() if not torch.equal(value, other.state_dict()[name])}
    assert differ and all("lora_A" in name for name in differ), "only the adapters' first factors are the seed's"


def test_every_method_has_the_same_candidates_on_a_seed_that_is_not_judged() -> None:
    medium = LORA.scales["medium"]
    assert medium.tuning is not None and set(medium.tuning.contestants) == set(METHODS)
    assert len({contestant.values for contestant in medium.tuning.contestants.values()}) == 1
    assert medium.seeds == 10 < min(medium.tuning.seeds)
