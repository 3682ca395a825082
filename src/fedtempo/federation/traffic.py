"""What travels between server and clients where it is compressed: uploads, downloads, their forms and their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedtempo.client.compression.compressor import Compressor
from fedtempo.client.compression.packing import (
    ALL_CLIENTS,
    TensorForms,
    compress_tensors,
    keys_of,
    packed_forms,
    unpack_tensors,
)
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, partition, squared_norm
from fedtempo.server.admission import Expected
from fedtempo.server.sums import Groups

DOWN = "shared"
"""The group of a download in the path of its draws."""


class SentUpload(NamedTuple):
    """An upload as the server will read it, as it travels, and the memory that the client keeps if it is accepted."""

    groups: Groups
    packed: Groups
    memory: Params


def compress_upload(
    federation: Federation, groups: Groups, memory: Mapping[str, Tensor], round_number: int, client: int
) -> SentUpload:
    """One client's upload after compression."""
    rules, seed = federation.algorithm.uploads, federation.problem.seed
    sent = SentUpload(dict(groups), dict(groups), {})
    for group in _compressed(federation, groups):
        assert rules.compress is not None
        key_of = keys_of(seed, round_number, client, group)
        tensors, packed, after = compress_tensors(rules.compress, group, groups[group], memory, key_of)
        sent.groups[group], sent.packed[group] = tensors, packed
        sent.memory.update(after)
    if rules.sends_norm:
        # FedExP's server needs the norms of what it gets, not of what clients would have liked to send.
        delta = {name: tensor.to(torch.float64) for name, tensor in sent.groups["delta"].items()}
        sent.groups["squared_norm"] = sent.packed["squared_norm"] = {"delta": squared_norm(delta)}
    return sent


def unpack_upload(federation: Federation, packed: Groups, round_number: int, client: int) -> Groups:
    """The upload in parts that came from a client; `PackedError` where no encoder has made them."""
    rule, seed = federation.algorithm.uploads.compress, federation.problem.seed
    groups = dict(packed)
    for group in _compressed(federation, packed):
        assert rule is not None
        key_of = keys_of(seed, round_number, client, group)
        groups[group] = unpack_tensors(rule, packed[group], federation.expected[group], key_of)
    return groups


def upload_forms(federation: Federation) -> Expected:
    """Shape and type of everything that a client sends, as it travels."""
    rule, expected = federation.algorithm.uploads.compress, dict(federation.expected)
    for group in _compressed(federation, expected):
        assert rule is not None
        expected[group] = packed_forms(rule, expected[group])
    return expected


def _compressed(federation: Federation, groups: Mapping[str, object]) -> list[str]:
    rules = federation.algorithm.uploads
    return [] if rules.compress is None else [group for group in groups if group in rules.compresses]


# ---------------------------------------------------------------------- downloads


class Download(NamedTuple):
    """The shared model as clients read it, and as it travels; None where it travels as it is."""

    shared: Params
    packed: Params | None


def compress_download(federation: Federation, shared: Params, round_number: int) -> Download:
    """The shared model on its way down: trained parameters compressed, the same for all clients, the rest as it is."""
    rule = federation.algorithm.compress_down
    if rule is None:
        return Download(shared, None)
    trained, others = partition(shared, federation.trained_names)
    key_of = keys_of(federation.problem.seed, round_number, ALL_CLIENTS, DOWN)
    tensors, packed, _ = compress_tensors(rule, DOWN, trained, {}, key_of)
    moving = {name: tensor for name, tensor in others.items() if name in federation.moving_names}
    return Download({name: tensors.get(name, tensor) for name, tensor in shared.items()}, {**packed, **moving})


def unpack_download(federation: Federation, packed: Params, shared: Params, round_number: int) -> Params:
    """The moving tensors of a download in parts; `shared` has their shapes and types."""
    rule = federation.algorithm.compress_down
    if rule is None:
        return packed
    key_of = keys_of(federation.problem.seed, round_number, ALL_CLIENTS, DOWN)
    others = {name: packed[name] for name in federation.moving_names - federation.trained_names}
    return {**unpack_tensors(rule, packed, _trained_forms(federation, shared), key_of), **others}


def download_forms(federation: Federation, shared: Params) -> TensorForms:
    """Shape and type of every tensor or part of the shared model that a round sends down."""
    moving = {n: (t.shape, t.dtype) for n, t in shared.items() if n in federation.moving_names}
    rule: Compressor | None = federation.algorithm.compress_down
    if rule is None:
        return moving
    others = {n: form for n, form in moving.items() if n not in federation.trained_names}
    return {**packed_forms(rule, _trained_forms(federation, shared)), **others}


def _trained_forms(federation: Federation, shared: Params) -> TensorForms:
    return {n: (t.shape, t.dtype) for n, t in shared.items() if n in federation.trained_names}


def bytes_of(forms: TensorForms) -> int:
    """The bytes of tensors of these forms."""
    return sum(shape.numel() * dtype.itemsize for shape, dtype in forms.values())
