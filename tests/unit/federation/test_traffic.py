"""What travels: the forms that both sides expect, and tensors that come back as the sender meant them."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.client.compression.compressor import PackedError
from fedtempo.federation.federation import Federation
from fedtempo.federation.traffic import (
    bytes_of,
    compress_download,
    compress_upload,
    download_forms,
    unpack_download,
    unpack_upload,
    upload_forms,
)
from fedtempo.training.prepare import prepare
from tests import zoo


def federation(kind: str = "mlp", **compression: ft.compress.Compressor) -> Federation:
    algorithm = ft.algorithms.fedexp(lr=0.1, steps=1, **compression)
    prepared = prepare(model=zoo.model(kind), data=zoo.data(kind), algorithm=algorithm, rounds=1, evaluation=None)
    return prepared.federation


def test_an_upload_comes_back_and_its_norm_is_that_of_what_arrives() -> None:
    """FedExP sends the squared norm of its displacement: of the one that the server will see."""
    one = federation(compress=ft.compress.qsgd(3))
    delta = {n: torch.randn(shape) for n, (shape, _) in one.expected["delta"].items()}
    sent = compress_upload(one, {"delta": delta, "squared_norm": {"delta": torch.tensor(-1.0)}}, {}, 4, 2)
    read = unpack_upload(one, sent.packed, 4, 2)
    assert all(torch.equal(read["delta"][n], t) for n, t in sent.groups["delta"].items())
    length = sum(float(t.double().square().sum()) for t in read["delta"].values())
    assert float(read["squared_norm"]["delta"]) == pytest.approx(length)
    forms = {g: {n: (t.shape, t.dtype) for n, t in tensors.items()} for g, tensors in sent.packed.items()}
    expected = upload_forms(one)
    assert forms["delta"] == expected["delta"] and set(expected) == {"delta", "squared_norm"}
    with pytest.raises(PackedError):
        unpack_upload(one, {"delta": {n: t * -1 for n, t in sent.packed["delta"].items()}}, 4, 2)


def test_a_download_comes_back_the_same_for_all_and_buffers_as_they_are() -> None:
    one = federation("batchnorm", compress_down=ft.compress.rounding(4))
    shared = one.first_shared()
    down, other = compress_download(one, shared, 3), compress_download(one, shared, 4)
    assert down.packed is not None
    read = unpack_download(one, down.packed, shared, 3)
    assert set(read) == one.moving_names
    assert all(torch.equal(read[n], down.shared[n]) for n in read)
    assert any(not torch.equal(down.shared[n], other.shared[n]) for n in one.trained_names)
    assert all(down.shared[n] is shared[n] for n in shared if n not in one.trained_names)
    forms = {n: (t.shape, t.dtype) for n, t in down.packed.items()}
    assert forms == dict(download_forms(one, shared))
    plain = federation("batchnorm")
    assert bytes_of(download_forms(one, shared)) < bytes_of(download_forms(plain, shared))
    assert compress_download(plain, shared, 3) == (shared, None)
    assert unpack_download(plain, shared, shared, 3) is shared
