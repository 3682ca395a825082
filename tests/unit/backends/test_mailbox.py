"""Mailboxes: what is put in comes out, through shared memory where it is large."""

from __future__ import annotations

import pytest
import torch

from fedtempo.backends.mailbox import LARGE, Mailbox
from fedtempo.backends.shipment import packed, unpacked


def test_a_mailbox_gives_back_what_was_put_in() -> None:
    mailbox = Mailbox(4 * LARGE)
    small, large, too_large = torch.arange(3), torch.randn(LARGE // 4), torch.randn(LARGE * 2)
    picture = torch.randn(40, 8, 8, 8, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    tree = {"a": (small, [large]), "b": {"c": too_large, "d": picture}, "e": "text"}
    packed = mailbox.pack(tree)
    assert packed["a"][1][0].values is None
    assert packed["b"]["c"].values is not None
    back = mailbox.unpack(packed)
    mailbox.pack({"x": torch.zeros(LARGE)})
    assert torch.equal(back["a"][0], small)
    assert torch.equal(back["a"][1][0], large)
    assert torch.equal(back["b"]["c"], too_large)
    assert torch.equal(back["b"]["d"], picture)
    assert back["e"] == "text"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int8])
@pytest.mark.parametrize("count", [1, LARGE])
def test_every_type_of_number_travels(dtype: torch.dtype, count: int) -> None:
    tensor = (torch.arange(count) % 2).to(dtype)
    mailbox = Mailbox(4 * LARGE)
    for tree in (tensor, tensor[0]):
        back = mailbox.unpack(mailbox.pack(tree))
        assert back.dtype == dtype and torch.equal(back, tree)
        sent = unpacked(packed(tree))
        assert sent.dtype == dtype and torch.equal(sent, tree)
