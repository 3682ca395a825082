"""A compressor is a pair of functions; a chain is a compressor too."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.client.compression.compressor import Compressor, FlatForm

VECTOR = torch.tensor([0.5, -4.0, 1.0, 3.0, -2.0, 0.0, 0.25, -1.5], dtype=torch.float64)


def test_a_compressor_prints_as_the_call_that_made_it() -> None:
    assert repr(ft.compress.top_k(0.01, feedback="ef21")) == "top_k(fraction=0.01, feedback='ef21')"
    assert repr(ft.compress.chain([ft.compress.top_k(0.5), ft.compress.sign()])).startswith("chain(of=[top_k(")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ft.compress.top_k(0.0), r"fraction must be a number in \(0, 1\]. Got 0.0"),
        (lambda: ft.compress.random_k(1.5), r"fraction must be a number in \(0, 1\]. Got 1.5"),
        (lambda: ft.compress.qsgd(0), r"levels must be an int in \[1, 32768\]. Got 0"),
        (lambda: ft.compress.rounding(17), r"bits must be an int in \[1, 16\]. Got 17"),
        (lambda: ft.compress.sign(feedback="ef15"), "feedback must be 'none' or 'ef14' or 'ef21'. Got 'ef15'"),
        (lambda: ft.compress.chain([]), "of must be one or more compressors"),
        (lambda: ft.compress.chain([ft.compress.sign(), ft.compress.qsgd(3)]), "but for the last. Got sign"),
        (lambda: ft.compress.chain([ft.compress.sign(), 3]), "of must be"),
        (lambda: ft.compress.top_k(fractoin=0.1), "Did you mean 'fraction'"),
        (lambda: Compressor(3, lambda parts, form, key: parts["x"]), "compress.encode must be a function. Got 3"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_refused(wrong, message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        wrong()


def test_a_chain_compresses_what_the_first_has_left() -> None:
    """The two largest of eight, -4 and 3, become signs times their mean absolute value."""
    chain = ft.compress.chain([ft.compress.top_k(0.25), ft.compress.sign()])
    assert chain.round_trip(VECTOR, 0).tolist() == [0.0, -3.5, 0.0, 3.5, 0.0, 0.0, 0.0, 0.0]
    parts = chain.encode(VECTOR, 0)
    assert {name: part.numel() for name, part in parts.items()} == {"places": 1, "values/scale": 1, "values/signs": 1}


def test_a_chain_of_three() -> None:
    chain = ft.compress.chain(
        [ft.compress.top_k(0.5), ft.compress.top_k(0.5), ft.compress.rounding(1)], feedback="none"
    )
    assert chain.round_trip(VECTOR, 0).tolist() == [0.0, -4.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]


def test_a_chain_takes_the_first_memory_there_is() -> None:
    random, top, sign = ft.compress.random_k(0.5), ft.compress.top_k(0.5, feedback="ef21"), ft.compress.sign()
    assert ft.compress.chain([random, sign]).feedback == "ef14"
    assert ft.compress.chain([top, sign]).feedback == "ef21"
    assert ft.compress.chain([top, sign], feedback="none").feedback == "none"


def test_random_k_is_not_scaled_where_errors_are_fed_back() -> None:
    """Scaled by d / k the error would be larger than the vector: also inside a chain with a memory."""
    plain = ft.compress.random_k(0.25)
    kept = ft.compress.random_k(0.25, feedback="ef14")
    chained = ft.compress.chain([plain, ft.compress.top_k(1.0, feedback="none")], feedback="ef14")
    scaled, unscaled, inside = (each.round_trip(VECTOR, 7) for each in (plain, kept, chained))
    assert torch.equal(scaled, 4 * unscaled) and torch.equal(inside, unscaled) and int((unscaled != 0).sum()) <= 2
    error = VECTOR - unscaled
    assert float(error.norm()) <= float(VECTOR.norm())


def test_half_precision_keeps_its_type() -> None:
    vector = VECTOR.to(torch.bfloat16)
    for each in (ft.compress.top_k(0.5), ft.compress.qsgd(15), ft.compress.rounding(8), ft.compress.sign()):
        assert each.round_trip(vector, 1).dtype == torch.bfloat16
    assert ft.compress.top_k(1.0).decode({"values": vector}, FlatForm(8, torch.bfloat16), 0) is vector
