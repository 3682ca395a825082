"""On a deployment the compressed tensors are what travels; hostile parts are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.client.compression.bits import bits_for, packed_numbers
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.gate import Gate, UploadError, upload_form
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.deploy.wire import HASH, Upload, upload_to_bytes
from fedtempo.federation.traffic import bytes_of, compress_upload
from tests.e2e.deploy.wires import Wires, experiment, nodes_of, simulated

KEPT = bytes(range(HASH))


class Scales(Wires):
    """Wires that weigh what goes through them."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.orders: set[int] = set()
        self.uploads: set[int] = set()

    def exchange(self, requests, seconds):
        self.orders |= {len(request.parts[0]) for request in requests.values() if request.kind == "train"}
        kinds = {node: request.kind for node, request in requests.items()}
        for reply in super().exchange(requests, seconds):
            if kinds[reply.node] == "train":
                self.uploads |= {len(data) for _, data in reply.answers()}
            yield reply


COMPRESSED = {
    "top-k both ways": lambda: ft.algorithms.fednar(
        ft.algorithms.feddecay(lr=0.1, beta=0.6, steps=3),
        weight_decay=0.01,
        max_norm=1.0,
        compress=ft.compress.top_k(0.01),
        compress_down=ft.compress.rounding(8),
    ),
    "EF21": lambda: ft.algorithms.fedavg(lr=0.1, steps=2, compress=ft.compress.top_k(0.05, feedback="ef21")),
    "without a state but for the memory": lambda: ft.algorithms.fedrecon(
        lr=0.1, head_lr=0.1, head_steps=1, body_steps=1, compress=ft.compress.sign()
    ),
    "two messages": lambda: ft.algorithms.scaffold(lr=0.1, steps=2, compress=ft.compress.qsgd(7, feedback="ef14")),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_the_digest_is_the_simulators_and_the_bytes_are_the_ledgers(
    name: str, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    given = experiment(digits, COMPRESSED[name](), rounds=3, evaluation=ft.Evaluation(every=3, steps=1, users=4))
    blueprint = blueprint_of(given)
    here, wires = simulated(given), Scales(nodes_of(blueprint, 2, tmp_path))
    there = serve_run(wires, blueprint, Plan())
    assert there.digest() == here.digest()
    assert [r.failures for r in there.history] == [()] * 3
    asked = sum(len(report.clients) for report in there.history)
    (order,), (upload,) = wires.orders, wires.uploads
    # Marks, hashes and a few numbers come to less than 500 bytes; the model has over 4,800 in one direction.
    assert 0 < order - there.costs.bytes_down / asked < 500
    assert 0 < upload - there.costs.bytes_up / asked < 500
    assert upload < 1500 < sum(bytes_of(forms) for forms in given.federation.expected.values())


@pytest.fixture(scope="module")
def gate_of(digits: ft.data.FederatedData):
    """A gate for a run with this compressor, and an honest upload as it travels, by group and part."""

    def make(rule: ft.compress.Compressor):
        federation = experiment(digits, ft.algorithms.fedavg(lr=0.1, steps=1, compress=rule)).federation
        form = upload_form(federation)
        rng = torch.Generator().manual_seed(0)
        delta = {
            n: torch.randn(shape, generator=rng, dtype=dtype) for n, (shape, dtype) in form.expected["delta"].items()
        }
        sent = compress_upload(federation, {"delta": delta}, federation.first_error_memory, 0, 1)
        return Gate(federation, form, 0, range(4)), sent

    return make


def send(gate: Gate, packed: dict[str, dict[str, torch.Tensor]]) -> Upload:
    kept = KEPT if gate.form.keeps else bytes(HASH)
    return gate.admit(upload_to_bytes(Upload(1, 0, 1.0, 0.5, packed, {}, kept)), 1)


def test_an_honest_upload_is_read_as_the_client_meant_it(gate_of) -> None:
    for rule in (ft.compress.top_k(0.01), ft.compress.random_k(0.1), ft.compress.rounding(3)):
        gate, sent = gate_of(rule)
        groups = send(gate, sent.packed).groups
        assert all(torch.equal(groups["delta"][n], t) for n, t in sent.groups["delta"].items())


@pytest.mark.parametrize("places", [[5, 5], [9, 3], [2, 200]], ids=["twice", "unsorted", "outside"])
def test_places_that_no_encoder_makes_are_refused(gate_of, places: list[int]) -> None:
    """Two of the head's 160 numbers, in eight bits each."""
    gate, sent = gate_of(ft.compress.top_k(2 / 160))
    wrong = packed_numbers(np.array(places), bits_for(160 - 1))
    assert wrong.shape == sent.packed["delta"]["head.weight/places"].shape
    with pytest.raises(UploadError, match="malformed: packed places must be 2 different ones below 160"):
        send(gate, {"delta": {**sent.packed["delta"], "head.weight/places": wrong}})


def test_scales_that_are_not_finite_or_negative_are_refused(gate_of) -> None:
    gate, sent = gate_of(ft.compress.sign())
    for value, reason in ((float("nan"), "finite"), (float("inf"), "finite"), (-1.0, "negative")):
        with pytest.raises(UploadError, match=f"malformed: .*{reason}"):
            send(gate_again(gate), {"delta": {**sent.packed["delta"], "head.bias/scale": torch.tensor([value])}})


def gate_again(gate: Gate) -> Gate:
    return Gate(gate.federation, gate.form, gate.round, gate.cohort, gate.limit)


def test_a_norm_that_is_too_large_is_seen_after_decoding(gate_of) -> None:
    """A thousand bits and one huge scale: the check is on the tensors, not on the bytes."""
    gate, sent = gate_of(ft.compress.sign())
    limited = Gate(gate.federation, gate.form, 0, range(4), limit=100.0)
    huge = {"delta": {**sent.packed["delta"], "body.1.weight/scale": torch.tensor([1e6])}}
    with pytest.raises(UploadError, match="too large"):
        send(limited, huge)


def test_whole_tensors_in_place_of_parts_are_refused(gate_of) -> None:
    gate, sent = gate_of(ft.compress.top_k(0.01))
    with pytest.raises(UploadError, match=r"malformed: upload must be .* bytes"):
        send(gate, sent.groups)


def test_whatever_a_users_decoder_raises_is_a_refusal(gate_of) -> None:
    def decode(parts, form, key):
        if float(parts["v"][0]) == 7.0:
            raise KeyError("the decoder's own trouble")
        return parts["v"].to(form.dtype)

    gate, sent = gate_of(ft.compress.Compressor(lambda v, key: {"v": v.half()}, decode))
    parts = {n: torch.full_like(t, 7.0) for n, t in sent.packed["delta"].items()}
    with pytest.raises(UploadError, match=r"malformed: .*own trouble"):
        send(gate, {"delta": parts})
