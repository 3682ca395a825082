"""Notes: what a wrapper lets clients keep, out of sight of the algorithm that it wraps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedtempo.algorithms.algorithm import Algorithm, Memory
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.params import Params, without_prefix

SEEN = "<seen>"
"""The note that says whether a client has taken part before. No tensor of a model has such a name."""
FirstNotes = Callable[[Params, frozenset[str]], Params]
"""(shared tensors, names of the trained ones) -> the notes of a client before its first round."""
UseNotes = Callable[[Received, Params], tuple[Received, Params]]
"""(what came down, notes) -> (what the wrapped algorithm takes for it, scratch for the round)."""
NextNotes = Callable[[Received, Carry, Params], Params]
"""(what came down, carry after the last step, the round's first notes) -> the notes to keep."""


def noting(algorithm: Algorithm, prefix: str, first: FirstNotes, use: UseNotes, then: NextNotes) -> Memory:
    """The algorithm's memory, with notes whose names start with `prefix`. They are no part of any model."""
    inner, old = algorithm.memory, f"{prefix}old/"

    def initial_state(shared: Params, trained: frozenset[str]) -> Params:
        notes = {prefix + n: t for n, t in first(shared, trained).items()}
        return {**inner.initial_state(shared, trained), **notes}

    def begin(received: Received, personal: Params) -> tuple[Params, Params]:
        notes = without_prefix(personal, prefix)
        taken, scratch = use(received, notes)
        others = {n: t for n, t in personal.items() if not n.startswith(prefix)}
        own, inner_scratch = inner.begin(taken, others)
        return own, {**inner_scratch, **scratch, **{old + n: t for n, t in notes.items()}}

    def final_state(received: Received, carry: Carry) -> Params:
        notes = without_prefix(carry.scratch, old)
        kept = then(received, carry, notes)
        return {**inner.final_state(received, carry), **{prefix + n: t for n, t in kept.items()}}

    return replace(inner, initial_state=initial_state, begin=begin, final_state=final_state, apart=inner.is_apart)


def notes_of(carry: Carry, prefix: str) -> Params:
    """The notes with this prefix, as they were when the round began."""
    return without_prefix(carry.scratch, f"{prefix}old/")
