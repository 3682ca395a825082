"""Headers that lie in every way of the matrix: refused at once, within ten megabytes, and nothing touched."""

from __future__ import annotations

import io
import json
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from fedtempo.errors import StoreError
from fedtempo.training.state import state_from_bytes, tensors_from_bytes, tensors_to_bytes
from tests.faults.test_hostile_bytes import GOOD, Evil
from tests.waiting import processor_seconds

MOST_BYTES = 10 << 20
EVENTS: list[str] = []
LISTENING: list[bool] = []


def listen(event: str, arguments: tuple[object, ...]) -> None:
    watched = ("exec", "compile", "import", "open", "os.system", "subprocess.Popen", "socket.connect")
    if LISTENING and (event in watched or event.startswith(("pickle.", "marshal.", "ctypes."))):
        EVENTS.append(event)


sys.addaudithook(listen)


def packed(text: str, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode() + body


def table(**entries: dict[str, object]) -> str:
    return json.dumps({name.replace("_", " "): entry for name, entry in entries.items()})


def of(start: int, end: int, shape: object = (1,), dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def object_array() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.array([Evil()], dtype=object))
    return stream.getvalue()


REFUSED: dict[str, bytes] = {
    "npz with an object array": object_array(),
    "overlapping offsets": packed(table(**{"000000_a": of(0, 4), "000001_b": of(2, 6)}), bytes(6)),
    "the same bytes twice": packed(table(**{"000000_a": of(0, 4), "000001_b": of(0, 4)}), bytes(4)),
    "a hole": packed(table(**{"000000_a": of(0, 4), "000001_b": of(8, 12)}), bytes(12)),
    "an offset of 2^64": packed(table(**{"000000_a": of(0, 2**64)}), bytes(4)),
    "an offset below 0": packed(table(**{"000000_a": of(-4, 0)}), bytes(4)),
    "a shape beyond 2^64": packed(table(**{"000000_a": of(0, 4, (2**63, 2**63))}), bytes(4)),
    "a shape that is text": packed(table(**{"000000_a": of(0, 4, "one")}), bytes(4)),
    "a fraction of a dimension": packed(table(**{"000000_a": of(0, 4, (1.5,))}), bytes(4)),
    "NaN for a number": packed('{"000000 a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)),
    "infinity for a number": packed('{"000000 a":{"dtype":"F32","shape":[Infinity],"data_offsets":[0,4]}}', bytes(4)),
    "a type field more": packed('{"000000 a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"class":"os"}}', b""),
    "a header of 10^6 entries": packed("{" + ",".join(f'"{i}":1' for i in range(10**6)) + "}"),
    "a header of 10^6 brackets": packed("[" * 10**6),
    "a header of 200 MB, said": struct.pack("<Q", 200 << 20) + b"{}",
    "metadata that is no text": packed('{"__metadata__":{"a":{"b":1}}}'),
}


def _seconds_to_refuse(data: bytes) -> float:
    """Of this thread's processor time, before anything else is watched that would slow it down."""

    def refuse() -> None:
        with pytest.raises(StoreError):
            tensors_from_bytes(data)

    return processor_seconds(refuse)[1]


@pytest.fixture(scope="module")
def most_seconds() -> float:
    """What Python's JSON reader takes for half the longest header: a slow or busy machine is so for both."""
    text = "{" + ",".join(f'"{i}":1' for i in range(500_000)) + "}"
    return processor_seconds(lambda: json.loads(text))[1]


@pytest.mark.parametrize("name", REFUSED)
def test_lying_headers_are_refused(name: str, most_seconds: float) -> None:
    data = REFUSED[name]
    tensors_from_bytes(tensors_to_bytes(GOOD))
    seconds = min(_seconds_to_refuse(data) for _ in range(3))
    EVENTS.clear()
    tracemalloc.start()
    LISTENING.append(True)
    try:
        with pytest.raises(StoreError):
            tensors_from_bytes(data)
    finally:
        LISTENING.clear()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (seconds < most_seconds, most < MOST_BYTES) == (True, True), (seconds, most_seconds, most)
    assert EVENTS == []


def test_names_are_only_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that would be paths or attributes elsewhere are keys of a dict here, and fit no model."""
    monkeypatch.chdir(tmp_path)
    hostile = ["../x", "/etc/passwd", "__class__", "a\0b", "C:\\x", "n" * 10**6, "\u202egnp.exe", "server/../shared"]
    tensors = {name: torch.ones(1) for name in hostile}
    assert list(tensors_from_bytes(tensors_to_bytes(tensors))) == hostile
    assert list(tmp_path.iterdir()) == []
    from fedtempo.training.state import State

    with pytest.raises(StoreError, match="stored state must hold 'shared/w'"):
        state_from_bytes(tensors_to_bytes(tensors), "{}", State({"w": torch.ones(1)}, ()))


def test_of_two_entries_under_one_name_one_counts() -> None:
    """JSON allows it; whatever the decoder makes of it has the form of one tensor, and the hash beside it decides."""
    entry = '"000000 a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    data = packed("{" + entry + "," + entry + "}", bytes(4))
    try:
        assert [tuple(t.shape) for t in tensors_from_bytes(data).values()] == [(1,)]
    except StoreError as error:
        assert "safetensors" in str(error)
