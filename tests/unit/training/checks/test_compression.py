"""Compressors that cannot work are refused before training, with the reason."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.training.prepare import prepare
from tests import zoo


def check(algorithm: ft.Algorithm) -> None:
    prepare(
        model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=algorithm, rounds=1, backend="serial", evaluation=None
    )


def own(encode, decode=lambda parts, form, key: parts["v"]) -> ft.Algorithm:
    return fl.fedavg(lr=0.1, steps=1, compress=ft.compress.Compressor(encode, decode))


STATE = iter(range(1000))
EF21 = {"compress": ft.compress.top_k(0.1, feedback="ef21")}
REFUSED = {
    "nothing is sent": (fl.local_only(lr=0.1, steps=1, compress=ft.compress.sign()), "left out where nothing is sent"),
    "a memory down": (fl.fedavg(lr=0.1, steps=1, compress_down=ft.compress.sign()), "compress_down must be .*'none'"),
    "EF21 and SCAFFOLD": (fl.scaffold(lr=0.1, steps=1, **EF21), "displacements alone"),
    "EF21 and FedExP": (fl.fedexp(lr=0.1, steps=1, **EF21), "displacements alone"),
    "EF21 and FedNova": (fl.fednova(lr=0.1, steps=1, **EF21), "displacements alone"),
    "EF21 and FedDyn": (fl.feddyn(lr=0.1, steps=1, **EF21), "displacements alone"),
    "EF21 and unknown weights": (fl.fedavg(lr=0.1, steps=1, weighting="processed", **EF21), "weighting must be"),
    "no tensors": (own(lambda v, key: [v]), "compress.encode must be a function that returns a dict of tensors"),
    "length by numbers": (own(lambda v, key: {"v": v[v != 0]}), "do not depend on the numbers"),
    "not repeatable": (own(lambda v, key: {"v": v + next(STATE)}), "the same parts for the same numbers"),
    "changes its input": (own(lambda v, key: {"v": v.mul_(0.5)}), "leaves its numbers as they are"),
    "another length": (own(lambda v, key: {"v": v[:1]}), "compress.decode must be a function that returns"),
    "another type": (own(lambda v, key: {"v": v.double()}), "compress.decode must be a function that returns"),
    "not finite": (own(lambda v, key: {"v": v / 0}), "finite numbers"),
    "an exception": (own(lambda v, key: {"v": v[10**6]}), "compress must encode and decode .* IndexError"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    algorithm, message = REFUSED[name]
    with pytest.raises(ft.ConfigError, match=message):
        check(algorithm)


def test_a_wrong_type_is_named() -> None:
    with pytest.raises(ft.ConfigError, match="compress must be a compressor, such as"):
        fl.fedavg(lr=0.1, steps=1, compress=0.1)  # type: ignore[arg-type]


def test_what_a_user_writes_is_accepted() -> None:
    check(own(lambda v, key: {"v": v.to(torch.float16)}, lambda parts, form, key: parts["v"].to(form.dtype)))
