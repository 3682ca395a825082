"""s_i, the sum of a client's displacements, which FedDyn and FedSpeed pull against; FedDyn's clients may keep more."""

from __future__ import annotations

from dataclasses import replace

from fedtempo.algorithms.algorithm import Algorithm, Memory, Uploads
from fedtempo.algorithms.parts.notes import notes_of, noting
from fedtempo.client.clipping import clip_gradient
from fedtempo.client.objectives import Pull, Received, View
from fedtempo.client.phase import Carry, Hook, Phase
from fedtempo.client.transforms import add_weight_decay, chain
from fedtempo.params import Params, add, scaled, select, subtract, without_prefix, zeros_like
from fedtempo.schedules import Rate, Schedule
from fedtempo.server.sums import Groups

CENTRE = "_centre/"
"""Leads the names of x - s_i among a client's notes."""
CHANGE = "last"
"""The group of an upload that says how far the client's last model has moved."""
MEMORY = "_history/"
"""Leads the names of all that a client keeps."""
LAST = "_last/"
"""Leads the names of y_i, the client's last model, among what it keeps."""


def history_memory(plain: Algorithm, with_model: bool = False) -> Memory:
    """A client keeps s_i, the sum of its displacements, and with `with_model` y_i, its last model.

    Before its first round they are zero and the initial model. Both are of the tensors that it shares.
    """

    def first(shared: Params, trained: frozenset[str]) -> Params:
        own = select(shared, trained)
        return {**zeros_like(own), **(_last(own) if with_model else {})}

    def then(received: Received, carry: Carry, notes: Params) -> Params:
        longer = longer_history(received, carry)
        return {**longer, **(_last(select(carry.shared, longer)) if with_model else {})}

    return noting(plain, MEMORY, first, _note_centre, then)


def longer_history(received: Received, carry: Carry) -> Params:
    """s_i + (y_K - x)."""
    history = _without_model(notes_of(carry, MEMORY))
    return add(history, subtract(select(carry.shared, history), received.shared))


def _note_centre(received: Received, own: Params) -> tuple[Received, Params]:
    # x - s_i is constant during a round, so it is computed once and not at every step.
    return received, {CENTRE + n: received.shared[n] - s for n, s in _without_model(own).items()}


def _without_model(own: Params) -> Params:
    return {n: s for n, s in own.items() if not n.startswith(LAST)}


def _last(model: Params) -> Params:
    return {LAST + n: t for n, t in model.items()}


def pull_to_centre(strength: Schedule) -> Pull:
    """alpha (y - (x - s_i)), for the tensors that are shared."""
    return Pull(strength, lambda view: without_prefix(view.scratch, CENTRE))


def pulled(phase: Phase, strength: Schedule, max_norm: Rate | None) -> Phase:
    """The phase with the pull alpha (y - (x - s_i)); where steps are clipped, alpha y comes after the clip."""
    if max_norm is None:
        return phase.hooked(Hook(correction=pull_to_centre(strength)))
    constant = pull_to_centre(strength).centre

    def offset(view: View) -> Params:
        return scaled(constant(view), -strength(view.now))

    direction = chain(clip_gradient(max_norm), add_weight_decay(strength))
    return replace(phase, direction=direction).hooked(Hook(correction=offset))


def two_displacements(plain: Uploads) -> Uploads:
    """y_K - x, and y_K minus the client's last model."""

    def upload(received: Received, carry: Carry) -> Groups:
        last = without_prefix(notes_of(carry, MEMORY), LAST)
        return {**plain.upload(received, carry), CHANGE: subtract(select(carry.shared, last), last)}

    # The server adds changes up over the whole run, so one that a compressor altered would stay in the sum: they are
    # sent as they are.
    return replace(plain, upload=upload, unweighted=frozenset({CHANGE}))
