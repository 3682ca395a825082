"""One group of a message: what is compressed, what is remembered, and where the draws come from."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.client.compression.compressor import Compressor, PackedError
from fedtempo.client.compression.packing import (
    compress_tensors,
    error_memory_in,
    first_error_memory,
    keys_of,
    packed_forms,
    unpack_tensors,
    without_error_memory,
)
from fedtempo.errors import TrainingError

TENSORS = {"w": torch.tensor([[3.0, -1.0], [0.5, 2.0]]), "b": torch.tensor([4.0]), "steps": torch.tensor([1, 2])}
FORMS = {name: (tensor.shape, tensor.dtype) for name, tensor in TENSORS.items()}
KEYS = keys_of(0, 3, 7, "delta")


def test_single_and_whole_numbers_travel_as_they_are() -> None:
    sent = compress_tensors(ft.compress.sign(feedback="none"), "delta", TENSORS, {}, KEYS)
    assert sent.tensors["b"] is TENSORS["b"] and sent.packed["steps"] is TENSORS["steps"]
    assert sent.tensors["w"].tolist() == [[1.625, -1.625], [1.625, 1.625]] and not sent.memory


@pytest.mark.parametrize("feedback", ["ef14", "ef21"])
def test_two_messages_by_hand(feedback: str) -> None:
    """Half of (3, -1, 0.5, 2): 3 and 2 go first. Then EF14 sends them and the rest again, EF21 only what changed."""
    rule = ft.compress.top_k(0.5, feedback=feedback)
    memory = first_error_memory(rule, "delta", FORMS)
    assert {name: tensor.tolist() for name, tensor in memory.items()} == {"_compression/delta/w": [[0, 0], [0, 0]]}
    first = compress_tensors(rule, "delta", TENSORS, memory, KEYS)
    assert first.tensors["w"].tolist() == [[3, 0], [0, 2]]
    second = compress_tensors(rule, "delta", TENSORS, first.memory, KEYS)
    if feedback == "ef14":
        assert first.memory["_compression/delta/w"].tolist() == [[0, -1], [0.5, 0]]
        assert second.tensors["w"].tolist() == [[3, -2], [0, 0]]  # of 3, -2, 1, 2 the first of two equal ones
        assert second.memory["_compression/delta/w"].tolist() == [[0, 0], [1, 2]]
    else:
        assert first.memory["_compression/delta/w"].tolist() == [[3, 0], [0, 2]]
        assert second.tensors["w"].tolist() == [[0, -1], [0.5, 0]]
        assert second.memory["_compression/delta/w"].tolist() == TENSORS["w"].tolist()


def test_parts_have_the_forms_that_follow_from_the_tensors_and_come_back() -> None:
    for rule in (ft.compress.top_k(0.5), ft.compress.qsgd(5), ft.compress.rounding(3), ft.compress.random_k(0.5)):
        sent = compress_tensors(rule, "delta", TENSORS, {}, KEYS)
        assert {n: (t.shape, t.dtype) for n, t in sent.packed.items()} == packed_forms(rule, FORMS)
        back = unpack_tensors(rule, sent.packed, FORMS, KEYS)
        assert all(torch.equal(back[name], tensor) for name, tensor in sent.tensors.items())


def test_draws_depend_on_seed_round_client_and_tensor() -> None:
    keys = {
        keys_of(*place)(name)
        for place in ((0, 3, 7, "delta"), (1, 3, 7, "delta"), (0, 4, 7, "delta"), (0, 3, 8, "delta"), (0, 3, 7, "c"))
        for name in ("w", "b")
    }
    assert len(keys) == 10 and min(keys) >= 0
    assert keys_of(0, 3, 7, "delta")("w") == KEYS("w")


def test_memories_are_told_from_what_a_client_keeps() -> None:
    kept = {"head": torch.zeros(1), "_compression/delta/w": torch.ones(2)}
    assert set(error_memory_in(kept)) == {"_compression/delta/w"} and set(without_error_memory(kept)) == {"head"}


def test_memories_of_half_precision_are_kept_in_full() -> None:
    """1 and 2^-9 in bfloat16: a thousand small numbers would be lost one by one, and add up in the memory."""
    rule, tensors = ft.compress.top_k(0.5), {"w": torch.tensor([1.0, 2.0**-9], dtype=torch.bfloat16)}
    memory = first_error_memory(rule, "delta", {"w": (torch.Size([2]), torch.bfloat16)})
    for _ in range(1000):
        sent = compress_tensors(rule, "delta", tensors, memory, KEYS)
        memory = sent.memory
    assert sent.tensors["w"].dtype == torch.bfloat16 and float(memory["_compression/delta/w"][1]) > 0.9


def test_a_decoder_that_returns_something_else_is_an_error() -> None:
    wrong = Compressor(lambda v, key: {"v": v}, lambda parts, form, key: parts["v"][:1])
    with pytest.raises(TrainingError, match="compress must decode to 4 numbers"):
        compress_tensors(wrong, "delta", TENSORS, {}, KEYS)
    with pytest.raises(PackedError, match="w must decode to 4 numbers"):
        unpack_tensors(wrong, {"w/v": torch.zeros(4), "b": TENSORS["b"], "steps": TENSORS["steps"]}, FORMS, KEYS)
