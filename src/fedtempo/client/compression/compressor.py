"""A compressor: two functions, from a tensor to the parts that travel and back.

`encode(values, key)` gets the numbers of one tensor as a vector on the CPU and returns named parts.
`decode(parts, form, key)` makes the vector again, as the server will see it. Names, shapes and types of the parts must
follow from the vector's size and type alone, never from its numbers. So every message has the same length: the server
can refuse any other, every client costs the same, and a length tells nothing about a client's data. `key` is a whole
number drawn from the run's seed, the round, the client and the tensor; both sides know it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, ParamSpec, get_args, get_type_hints

import torch
from torch import Tensor

from fedtempo.errors import FedTempoError, bound_arguments, require
from fedtempo.randomness import scramble

Feedback = Literal["none", "ef14", "ef21"]
"""What becomes of the error: it is lost; it is added to the next upload; or only the change is sent."""
Parts = dict[str, Tensor]


class PackedError(FedTempoError, ValueError):
    """Parts that no encoder can have made."""


class FlatForm(NamedTuple):
    """Size and type of the vector that was encoded."""

    size: int
    dtype: torch.dtype


Encode = Callable[[Tensor, int], Parts]
Decode = Callable[[Parts, FlatForm, int], Tensor]


@dataclass(frozen=True)
class Compressor:
    """How one tensor travels.

    >>> half = Compressor(lambda v, key: {"half": v.half()}, lambda parts, form, key: parts["half"].to(form.dtype))
    >>> half.round_trip(torch.tensor([1.0, 2.0001]), key=0)
    tensor([1., 2.])
    """

    encode: Encode
    decode: Decode
    feedback: Feedback = "none"
    """`"ef14"`: what a message leaves out is kept and added to the next one. `"ef21"`: client and server both keep what
    has been sent so far, and a message is the compressed change."""
    passes_on: str | None = None
    """The part, a vector of numbers, that the next compressor of a `chain` may compress further."""
    with_memory: tuple[Encode, Decode] | None = None
    """The two functions to use where errors are fed back, if they differ."""
    name: str = "custom"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = get_args(Feedback)
        require(self.feedback in known, "feedback", " or ".join(map(repr, known)), self.feedback)
        for name in ("encode", "decode"):
            require(callable(getattr(self, name)), f"compress.{name}", "a function", getattr(self, name))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"

    @property
    def pair(self) -> tuple[Encode, Decode]:
        """The two functions as this compressor uses them."""
        return self.pair_for(self.feedback != "none")

    def pair_for(self, memory: bool) -> tuple[Encode, Decode]:
        """The two functions, with or without a memory of errors."""
        return self.with_memory if memory and self.with_memory is not None else (self.encode, self.decode)

    def round_trip(self, values: Tensor, key: int) -> Tensor:
        """The vector as it arrives."""
        encode, decode = self.pair
        return decode(encode(values, key), FlatForm(values.numel(), values.dtype), key)


Arguments = ParamSpec("Arguments")
WORDS: dict[Any, str] = {Compressor: "a compressor, such as compress.top_k(0.01)"}


def named_compressor(build: Callable[Arguments, Compressor]) -> Callable[Arguments, Compressor]:
    """Check arguments against their annotations, and let the compressor print as the call that made it."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Compressor:
        given = bound_arguments(build.__name__, signature, get_type_hints(build), (args, kwargs), WORDS)
        return replace(build(**given), name=build.__name__, settings=given)  # type: ignore[call-arg]

    return call


@named_compressor
def chain(of: Sequence[Compressor], *, feedback: Feedback | None = None) -> Compressor:
    """Each compressor on the numbers that the one before it has left, such as the 1 % largest in four bits each.

    The chain has one memory, that of the error of all of them together. Its rule is `feedback`; left out, that of the
    first compressor that has one.

    >>> from fedtempo.client.compression import qsgd, top_k
    >>> chain([top_k(0.01), qsgd(7)]).feedback
    'ef14'
    """
    require(bool(of), "of", "one or more compressors", of)
    for each in of[:-1]:
        rule = "compressors that leave numbers to compress further (top_k, random_k), but for the last"
        require(each.passes_on is not None, "of", rule, each)
    if feedback is None:
        rules: list[Feedback] = [each.feedback for each in of if each.feedback != "none"]
        feedback = rules[0] if rules else "none"
    leaves = all(each.passes_on is not None for each in of)
    inner = "/".join(str(each.passes_on) for each in of) if leaves else None
    memory = _chained(tuple(of), True)
    return Compressor(*_chained(tuple(of), False), feedback, inner, memory)


def _chained(compressors: tuple[Compressor, ...], memory: bool) -> tuple[Encode, Decode]:
    first, *others = compressors
    encode_first, decode_first = first.pair_for(memory)
    if not others:
        return encode_first, decode_first
    encode_rest, decode_rest = _chained(tuple(others), memory)
    inner = str(first.passes_on)

    def encode(values: Tensor, key: int) -> Parts:
        parts = encode_first(values, key)
        left = parts.pop(inner)
        return {**parts, **{f"{inner}/{name}": part for name, part in encode_rest(left, _next(key)).items()}}

    def decode(parts: Parts, form: FlatForm, key: int) -> Tensor:
        own = {name: part for name, part in parts.items() if not name.startswith(inner + "/")}
        rest = {name.removeprefix(inner + "/"): part for name, part in parts.items() if name not in own}
        # How many numbers the first compressor leaves, and of which type, follows from the size: encode zeros to see.
        left = encode_first(torch.zeros(form.size, dtype=form.dtype), key)[inner]
        own[inner] = decode_rest(rest, FlatForm(left.numel(), left.dtype), _next(key))
        return decode_first(own, form, key)

    return encode, decode


def _next(key: int) -> int:
    """The key of the next compressor of a chain: draws of the two must not be the same numbers."""
    return int(scramble(torch.tensor(key))) & (2**63 - 1)
