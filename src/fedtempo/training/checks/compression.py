"""Compression is tried before training: on zeros and on random numbers, for every tensor that will travel."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtempo.algorithms.parts.rate_rules import HISTORY
from fedtempo.client.compression.compressor import Compressor, FlatForm, Parts
from fedtempo.client.compression.packing import is_compressed
from fedtempo.client.optimizer_state import GROUP
from fedtempo.errors import ConfigError, FedTempoError, first_line, require
from fedtempo.federation.federation import Federation

TRIED = 3
"""Tensors of different sizes that a compressor is tried on: the smallest, the largest, and one in between."""


def check_compression(federation: Federation) -> None:
    """Refuse compressors that cannot work with this algorithm, and those whose parts depend on the numbers."""
    algorithm, rules = federation.algorithm, federation.algorithm.uploads
    for field, rule in (("compress", rules.compress), ("compress_down", algorithm.compress_down)):
        wording = "a compressor, such as compress.top_k(0.01)"
        require(rule is None or isinstance(rule, Compressor), field, wording, rule)
        require(rule is None or not rules.nothing, field, "left out where nothing is sent", rule)
        if rule is not None:
            _try_on_model(field, rule, federation)
    if algorithm.compress_down is not None:
        reason = "a compressor with feedback='none': a client that was away would lack what others were sent before"
        require(algorithm.compress_down.feedback == "none", "compress_down", reason, algorithm.compress_down)
    if rules.compress is not None and rules.compress.feedback == "ef21":
        _check_ef21(federation)


def _check_ef21(federation: Federation) -> None:
    """EF21's server keeps the mean displacement over all clients: it has to know how much each of them counts."""
    algorithm, rules = federation.algorithm, federation.algorithm.uploads
    rule = "'uniform' or 'samples' with feedback='ef21': the weights of absent clients must be known"
    require(algorithm.weighting != "processed", "weighting", rule, algorithm.weighting)
    plain = set(federation.expected) <= {"delta", "buffers", GROUP} and HISTORY not in algorithm.owns
    alone = plain and not rules.sends_norm and set(federation.expected) & rules.compresses == {"delta"}
    reason = "with feedback='ef21' for uploads of displacements alone (not SCAFFOLD, FedExP, FedNova, FedDyn)"
    require(alone, "compress", reason, rules.compress)


def _try_on_model(field: str, rule: Compressor, federation: Federation) -> None:
    forms = sorted(
        {
            (shape.numel(), str(dtype), dtype)
            for shape, dtype in federation.expected.get("delta", {}).values()
            if is_compressed(shape, dtype)
        }
    )
    chosen = forms if len(forms) <= TRIED else [forms[0], forms[len(forms) // 2], forms[-1]]
    for size, _, dtype in chosen:
        try:
            _try(field, rule, FlatForm(size, dtype))
        except FedTempoError:
            raise
        except Exception as error:  # the functions may be the user's and raise anything
            what = f"{type(error).__name__} ({first_line(error)})"
            raise ConfigError(f"{field} must encode and decode {size} numbers of {dtype}. Got {what}.") from error


def _try(field: str, rule: Compressor, form: FlatForm) -> None:
    encode, decode = rule.pair
    drawn = torch.randn(form.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(form.dtype)
    given = drawn.clone()
    first = encode(given, 1)
    holds = isinstance(first, dict) and all(isinstance(n, str) and isinstance(t, Tensor) for n, t in first.items())
    require(holds, f"{field}.encode", "a function that returns a dict of tensors", first)
    require(torch.equal(given, drawn), f"{field}.encode", "a function that leaves its numbers as they are", rule)
    again, zeros = encode(drawn, 1), encode(torch.zeros_like(drawn), 1)
    same = _form(again) == _form(first) and all(torch.equal(first[n], again[n]) for n in first)
    require(same, f"{field}.encode", "a function that gives the same parts for the same numbers and key", rule)
    reason = "a function whose parts have shapes and types that do not depend on the numbers"
    require(_form(zeros) == _form(first), f"{field}.encode", reason, rule)
    for parts in (first, zeros):
        back = decode(dict(parts), form, 1)
        fits = isinstance(back, Tensor) and back.shape == (form.size,) and back.dtype == form.dtype
        require(fits, f"{field}.decode", f"a function that returns {form.size} numbers of {form.dtype}", back)
        require(bool(back.isfinite().all()), f"{field}.decode", "a function that makes finite numbers", back)
        same = torch.equal(back, decode(dict(parts), form, 1))
        require(same, f"{field}.decode", "a function that gives the same numbers for the same parts and key", rule)


def _form(parts: Parts) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in parts.items()}
