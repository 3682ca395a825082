"""Uploads are bytes from strangers: the gate takes what the server's own model expects, once, and nothing else."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import sys
import zlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends import serial
from fedtempo.backends.collect import end, read_together
from fedtempo.client.objectives import Received
from fedtempo.deploy.gate import Gate, UploadError, UploadForm, upload_form
from fedtempo.deploy.wire import (
    HASH,
    MARK,
    Contents,
    Layout,
    Upload,
    WireError,
    decode,
    encode,
    upload_from_bytes,
    upload_to_bytes,
)
from fedtempo.deploy.wire import form_of as tensors_form
from fedtempo.federation.federation import Federation
from fedtempo.server.sums import BlockSum
from fedtempo.training.prepare import prepare
from tests.waiting import processor_seconds

CLIENT, ROUND = 2, 7
MOST_SECONDS = 0.1


@cache
def parts() -> tuple[Federation, UploadForm, Upload, bytes]:
    """SCAFFOLD keeps a control variate and sends two groups; its one upload here is a client's real one."""
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((9, 6)).astype(np.float32), rng.integers(0, 4, 9)) for _ in range(5)]
    experiment = prepare(
        model=ft.models.mlp(6, [5], 4),
        data=ft.data.FederatedData.from_clients(clients),
        algorithm=ft.algorithms.fednar(
            ft.algorithms.scaffold(lr=0.1, steps=3), weight_decay=0.01, max_norm=1.0
        ),
        rounds=20,
        backend="serial",
    )  # fmt: skip
    federation = experiment.federation
    server = federation.algorithm.server
    trained = {n: experiment.first_shared[n] for n in federation.trained_names}
    received = Received(experiment.first_shared, server.extra(server.init(trained)))
    personal = federation.first_personal(CLIENT, experiment.first_shared)
    (one,) = serial.train(
        federation.problem,
        federation.program,
        received,
        federation.problem.now(ROUND, 5),
        np.array([CLIENT]),
        [personal],
    )
    groups, own, measured = federation.program.finish(received, one.carry)
    kept = hashlib.sha256(b"".join(t.numpy().tobytes() for t in own.values())).digest()
    numbers = {name: float(value) for name, value in measured.items()}
    (ended,) = read_together(federation, [end(federation, received, one, {})])
    weight = float(ended.weights[0])
    upload = Upload(CLIENT, ROUND, weight, float(one.loss[0]), groups, numbers, kept)
    return federation, upload_form(federation), upload, upload_to_bytes(upload)


def gate(limit: float = 1e3) -> Gate:
    federation, form, _, _ = parts()
    return Gate(federation, form, ROUND, range(4), limit)


def verdict(data: object, at: Gate | None = None) -> str:
    """Empty if the upload counts, else the reason; nothing but an `UploadError` may come out."""
    WATCHING.append(True)
    try:
        (at or gate()).admit(data, CLIENT)  # type: ignore[arg-type]
    except UploadError as error:
        return str(error)
    finally:
        WATCHING.clear()
    return ""


def listen(event: str, arguments: tuple[object, ...]) -> None:
    watched = ("exec", "compile", "open", "import", "os.system", "subprocess.Popen", "socket.connect")
    if WATCHING and (event in watched or event.startswith(("pickle.", "ctypes.", "marshal."))):
        SEEN.append(event)


WATCHING: list[bool] = []
SEEN: list[str] = []
sys.addaudithook(listen)


def resealed(body: bytes) -> bytes:
    """What an attacker who knows the format would send: the hash fits."""
    return body + hashlib.sha256(body).digest()


def test_an_honest_upload_counts_once_and_loses_no_bit() -> None:
    _, form, upload, data = parts()
    at = gate()
    admitted = at.admit(data, CLIENT)
    assert (admitted.client, admitted.round, admitted.weight, admitted.loss) == (
        CLIENT,
        ROUND,
        upload.weight,
        upload.loss,
    )
    assert admitted.measurements == upload.measurements
    assert admitted.kept == upload.kept
    assert {g: list(ts) for g, ts in admitted.groups.items()} == {g: list(ts) for g, ts in form.expected.items()}
    for group, tensors in upload.groups.items():
        assert all(torch.equal(admitted.groups[group][n], t) for n, t in tensors.items())
    assert verdict(data, at) == "sent twice"
    assert upload_to_bytes(admitted) == data


def test_every_type_goes_there_and_back() -> None:
    tensors = {
        "half": torch.randn(3, 2).to(torch.float16),
        "brain": torch.randn(5).to(torch.bfloat16),
        "double": torch.randn(2, 1, 2, dtype=torch.float64),
        "count": torch.tensor(3),
        "flags": torch.tensor([True, False]),
        "nothing": torch.zeros(0, 4),
        "turned": torch.randn(3, 4).t(),
    }
    contents = Contents({"a": -5}, {"b": float("inf")}, tensors)
    again = decode(Layout("test", ("a",), ("b",), tensors_form(tensors)), encode("test", contents))
    assert again.integers == {"a": -5}
    assert again.numbers == {"b": float("inf")}
    assert all(torch.equal(again.tensors[n], t) and again.tensors[n].dtype == t.dtype for n, t in tensors.items())


def changed(**changes: object) -> bytes:
    return upload_to_bytes(replace(parts()[2], **changes))  # type: ignore[arg-type]


def with_delta(change) -> bytes:  # type: ignore[no-untyped-def]
    groups = parts()[2].groups
    return changed(groups={**groups, "delta": {n: change(t) for n, t in groups["delta"].items()}})


def one_bad(value: float):  # type: ignore[no-untyped-def]
    return lambda t: torch.cat([t.flatten()[:-1], torch.tensor([value])]).reshape(t.shape)


def renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{n}x": t for n, t in tensors.items()}


def lies() -> dict[str, tuple[bytes, str]]:
    groups, data = parts()[2].groups, parts()[3]
    return {
        "one NaN": (with_delta(one_bad(float("nan"))), "not finite"),
        "one infinity": (with_delta(one_bad(float("-inf"))), "not finite"),
        "a million times over": (with_delta(lambda t: t * 1e6), "too large"),
        "a shape that would broadcast": (with_delta(lambda t: t.flatten()[:1]), "malformed"),
        "transposed": (with_delta(lambda t: t.t().contiguous() if t.dim() == 2 else t), "malformed"),
        "another type of the same size": (with_delta(lambda t: t.view(torch.int32)), "malformed"),
        "a wider type": (with_delta(lambda t: t.double()), "malformed"),
        "renamed": (changed(groups={**groups, "delta": renamed(groups["delta"])}), "malformed"),
        "a group missing": (changed(groups={"delta": groups["delta"]}), "malformed"),
        "a group more": (changed(groups={**groups, "more": groups["delta"]}), "malformed"),
        "groups in another order": (changed(groups=dict(reversed(groups.items()))), "malformed"),
        "no groups": (changed(groups={}), "malformed"),
        "a measurement more": (changed(measurements={**parts()[2].measurements, "x": 1.0}), "malformed"),
        "another round": (changed(round=ROUND + 1), "another round"),
        "the round before": (changed(round=ROUND - 1), "another round"),
        "another client": (changed(client=1), "another client"),
        "a negative client": (changed(client=-1), "another client"),
        "a huge client": (changed(client=2**63 - 1), "another client"),
        "weight 0": (changed(weight=0.0), "wrong weight"),
        "negative weight": (changed(weight=-1.0), "wrong weight"),
        "weight NaN": (changed(weight=float("nan")), "wrong weight"),
        "infinite weight": (changed(weight=float("inf")), "wrong weight"),
        "weight 1e30": (changed(weight=1e30), "wrong weight"),
        "twice its weight": (changed(weight=parts()[2].weight * 2), "wrong weight"),
        "no receipt": (changed(kept=bytes(HASH)), "wrong receipt"),
        "nothing": (b"", "malformed"),
        "a byte more": (resealed(data[:-HASH] + b"x"), "malformed"),
        "a byte less": (resealed(data[: -HASH - 1]), "malformed"),
        "another version": (resealed(b"fedtempo\x02" + data[len(MARK) : -HASH]), "malformed"),
        "the hash of something else": (data[:-HASH] + hashlib.sha256(b"").digest(), "malformed"),
        "a download": (encode("order", Contents({}, {}, groups["delta"])), "malformed"),
        "pickle": (padded(pickle.dumps(Evil())), "malformed"),
        "torch file": (torch_file(), "malformed"),
        "zlib bomb": (zlib.compress(bytes(10**7)), "malformed"),
        "a long message": (bytes(10**8), "malformed"),
        "a length of 2^63": (padded(struct.pack("<Q", 2**63)), "malformed"),
    }  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_costs_itself_only(value: float) -> None:
    """As in the simulator: the update counts, the sum leaves the loss out and says so."""
    measured = dict.fromkeys(parts()[2].measurements, value)
    admitted = gate().admit(changed(loss=value, measurements=measured), CLIENT)
    total = BlockSum()
    numbers = {name: np.array([number]) for name, number in admitted.measurements.items()}
    total.add_clients(np.array([admitted.weight]), np.array([admitted.loss]), numbers)
    assert (total.clients, total.loss.value, total.measurements["losses_left_out"].value) == (1, 0.0, 1.0)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this must never be printed",)


def padded(data: bytes) -> bytes:
    """Of the right length, so that more than the length is looked at."""
    return resealed(data.ljust(parts()[1].layout.size - HASH, b"\0"))


def torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save(parts()[2].groups, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("name", list(lies()))
def test_a_lie_is_refused_with_its_reason(name: str) -> None:
    data, reason = lies()[name]
    verdict(parts()[3])
    SEEN.clear()
    said, seconds = processor_seconds(lambda: verdict(data))
    assert said.startswith(reason)
    assert seconds < MOST_SECONDS
    assert not SEEN


@pytest.mark.parametrize("data", [None, "text", 5, bytearray(10), memoryview(b"x"), [b"x"]])
def test_what_is_not_bytes_is_refused(data: object) -> None:
    assert verdict(data).startswith("malformed")


def test_an_unknown_client_is_refused_even_under_its_own_name() -> None:
    data = changed(client=4)
    with pytest.raises(UploadError, match="unknown client"):
        gate().admit(data, 4)


def mutated(rng: np.random.Generator) -> bytes:
    """Flips, cuts, insertions, overwritten and repeated pieces; half of them under a hash that fits."""
    reseal = rng.random() < 0.5
    data = bytearray(parts()[3][:-HASH] if reseal else parts()[3])
    for _ in range(int(rng.integers(1, 5))):
        kind, place = int(rng.integers(0, 6)), int(rng.integers(0, max(len(data), 1)))
        if kind == 0 and data:
            data[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            data[place:place] = rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8).tobytes()
        elif kind == 3:
            data[place : place + 8] = rng.integers(0, 256, 8, dtype=np.uint8).tobytes()
        elif kind == 4:
            special = (float("nan"), float("inf"), -1.0, 1e300, 0.0, 5e-324)
            data[place : place + 8] = struct.pack("<d", special[int(rng.integers(0, len(special)))])
        else:
            data[place:place] = data[place : place + int(rng.integers(1, 64))]
    return resealed(bytes(data)) if reseal else bytes(data)


def legitimate(data: bytes) -> bool:
    """Whether these bytes are an upload that this client may send: another finite update under its own name."""
    _, form, honest, _ = parts()
    try:
        upload = upload_from_bytes(data, form.layout, form.expected)
    except WireError:
        return False
    tensors = [t for ts in upload.groups.values() for t in ts.values()]
    norm = torch.cat([t.double().flatten() for t in upload.groups["delta"].values()]).norm()
    return (
        (upload.client, upload.round, upload.weight) == (CLIENT, ROUND, honest.weight)
        and upload.kept != bytes(HASH)
        and all(bool(torch.isfinite(t).all()) and bool(torch.isfinite(t.square().sum())) for t in tensors)
        and float(norm) <= 1e3
        and upload_to_bytes(upload) == data
    )


def fuzz(count: int, seed: int) -> tuple[int, int, float]:
    """(refused, accepted, longest CPU seconds of a verdict); a crash or a wrong acceptance ends the test."""
    rng, refused, accepted, longest = np.random.default_rng(seed), 0, 0, 0.0
    verdict(parts()[3])
    SEEN.clear()
    at = gate()
    for _ in range(count):
        data = mutated(rng)
        at.inbox.seen.clear()
        reason, seconds = processor_seconds(lambda data=data: verdict(data, at))
        longest = max(longest, seconds)
        assert (reason == "") == legitimate(data), reason
        refused += reason != ""
        accepted += reason == ""
    assert not SEEN
    return refused, accepted, longest


def test_five_thousand_mutated_uploads() -> None:
    refused, accepted, longest = fuzz(5_000, seed=1)
    assert refused + accepted == 5_000
    assert refused > 4_000
    assert longest < MOST_SECONDS


@pytest.mark.slow("twenty times the mutations that run every time")
def test_a_hundred_thousand_mutated_uploads() -> None:
    refused, accepted, longest = fuzz(100_000, seed=2)
    print(f"refused {refused}, accepted as they should be {accepted}, longest {longest * 1000:.1f} ms")
    assert refused + accepted == 100_000
    assert longest < MOST_SECONDS
