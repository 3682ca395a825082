"""Stored bytes are data: whatever they are, decoding them gives tensors or one kind of error, and does nothing else."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import time
import zipfile
import zlib

import numpy as np
import pytest
import torch

from fedtempo.errors import StoreError
from fedtempo.training.state import tensors_from_bytes, tensors_to_bytes

GOOD = {"body.weight": torch.randn(4, 3), "count": torch.tensor(3.0, dtype=torch.float64), "step": torch.tensor([1, 2])}
BYTES = tensors_to_bytes(GOOD)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this must never be printed",)


def header(text: str, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode() + body


def torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save(GOOD, buffer)
    return buffer.getvalue()


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("../../escape", "x")
    return buffer.getvalue()


def entry(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4)) -> str:
    return json.dumps({"000000 w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})


HOSTILE = {
    "nothing": b"",
    "pickle": pickle.dumps(Evil()),
    "torch file": torch_file(),
    "zip": archive(),
    "gzip bomb": zlib.compress(bytes(10**7)),
    "yaml": b"!!python/object/apply:os.system ['true']",
    "header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "header longer than the file": struct.pack("<Q", 1000) + b"{}",
    "not JSON": header("{nonsense"),
    "not an object": header("[1, 2]"),
    "million entries": header("{" + ",".join(f'"{i}":1' for i in range(10**5)) + "}"),
    "unknown type": header(entry("OBJECT"), bytes(4)),
    "negative dimension": header(entry(shape=(-1,)), bytes(4)),
    "overflowing shape": header(entry(shape=(2**40, 2**40)), bytes(4)),
    "offsets beyond the end": header(entry(offsets=(0, 4000)), bytes(4)),
    "offsets backwards": header(entry(offsets=(4, 0)), bytes(4)),
    "too few bytes": header(entry(), b""),
    "trailing bytes": BYTES + b"more",
    "invalid UTF-8": struct.pack("<Q", 2) + b"\xff\xfe",
    "deep nesting": header('{"a":' + "[" * 5000 + "]" * 5000 + "}"),
}


def opens_nothing(event: str, arguments: tuple[object, ...]) -> None:
    watched = ("exec", "compile", "open", "os.system", "subprocess.Popen", "socket.connect", "pickle.find_class")
    if WATCHING and event in watched:
        SEEN.append(event)


WATCHING: list[bool] = []
SEEN: list[str] = []
sys.addaudithook(opens_nothing)


def decode(data: bytes) -> dict[str, torch.Tensor] | None:
    """The tensors, or None if refused; nothing else may happen."""
    WATCHING.append(True)
    try:
        return tensors_from_bytes(data)
    except StoreError:
        return None
    finally:
        WATCHING.clear()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused_quickly(name: str) -> None:
    decode(BYTES)
    SEEN.clear()
    began = time.process_time()
    assert decode(HOSTILE[name]) is None
    assert time.process_time() - began < 2  # a hang, not a speed: the figure is in the notes
    assert not SEEN


def test_the_way_there_and_back() -> None:
    again = tensors_from_bytes(BYTES)
    assert list(again) == list(GOOD)
    assert all(torch.equal(again[n], t) and again[n].dtype == t.dtype for n, t in GOOD.items())
    assert tensors_from_bytes(tensors_to_bytes({})) == {}


def mutated(rng: np.random.Generator) -> bytes:
    data = bytearray(BYTES)
    for _ in range(int(rng.integers(1, 4))):
        kind, place = int(rng.integers(0, 4)), int(rng.integers(0, len(data)))
        if kind == 0:
            data[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            data[place:place] = rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8).tobytes()
        else:
            data[place] = int(rng.integers(0, 256))
        if not data:
            break
    return bytes(data)


def fuzz(count: int) -> tuple[int, int]:
    """How many mutations were refused, and how many decoded to tensors; a crash would end the test."""
    rng, refused, decoded = np.random.default_rng(7), 0, 0
    decode(BYTES)
    SEEN.clear()
    for _ in range(count):
        tensors = decode(mutated(rng))
        refused += tensors is None
        decoded += tensors is not None
        assert tensors is None or all(isinstance(t, torch.Tensor) for t in tensors.values())
    assert not SEEN
    return refused, decoded


def test_ten_thousand_mutations() -> None:
    """A mutation of a number decodes to another number: the SHA-256 beside it is what refuses that."""
    refused, decoded = fuzz(10_000)
    assert refused + decoded == 10_000
    assert refused > 1000


@pytest.mark.slow("ten times the mutations that run every time")
def test_a_hundred_thousand_mutations() -> None:
    assert sum(fuzz(100_000)) == 100_000
