"""s_i, the sum of a client's displacements, which FedDyn and FedSpeed pull against; FedDyn's clients may keep more."""

from __future__ import annotations

from dataclasses import replace

from fedtempo.algorithms.algorithm import Memory, Uploads
from fedtempo.client.clipping import clip_gradient
from fedtempo.client.objectives import Pull, Received, View
from fedtempo.client.phase import Carry, Phase
from fedtempo.client.transforms import add_weight_decay, chain
from fedtempo.params import Params, add, scaled, select, subtract, without_prefix, zeros_like
from fedtempo.schedules import Rate, Schedule
from fedtempo.server.sums import Groups

CENTRE = "_centre/"
"""Leads the names of x - s_i among a client's notes."""
CHANGE = "last"
"""The group of an upload that says how far the client's last model has moved."""
LAST = "_last/"
"""Leads the names of y_i, the client's last model, among what it keeps."""


def no_history(shared: Params, trained: frozenset[str]) -> Params:
    """s_i before the first round: zero."""
    return zeros_like(select(shared, trained))


def longer_history(received: Received, carry: Carry) -> Params:
    """s_i + (y_K - x)."""
    history = _without_model(carry.personal)
    return add(history, subtract(select(carry.shared, history), received.shared))


def _note_centre(received: Received, personal: Params) -> tuple[Params, Params]:
    # x - s_i is constant during a round, so it is computed once and not at every step.
    return personal, {CENTRE + n: received.shared[n] - s for n, s in _without_model(personal).items()}


def _without_model(personal: Params) -> Params:
    return {n: s for n, s in personal.items() if not n.startswith(LAST)}


def pull_to_centre(strength: Schedule) -> Pull:
    """alpha (y - (x - s_i))."""
    return Pull(strength, lambda view: {n: view.scratch[CENTRE + n] for n in _without_model(view.personal)})


def pulled(phase: Phase, strength: Schedule, max_norm: Rate | None) -> Phase:
    """The phase with the pull alpha (y - (x - s_i)); where steps are clipped, alpha y comes after the clip."""
    if max_norm is None:
        return replace(phase, correction=pull_to_centre(strength), on="shared")
    constant = pull_to_centre(strength).centre

    def offset(view: View) -> Params:
        return scaled(constant(view), -strength(view.now))

    direction = chain(clip_gradient(max_norm), add_weight_decay(strength))
    return replace(phase, correction=offset, direction=direction, on="shared")


history_memory = Memory(initial_state=no_history, begin=_note_centre, final_state=longer_history)
"""A client keeps s_i, the sum of its displacements."""


def _last(model: Params) -> Params:
    return {LAST + n: t for n, t in model.items()}


memory_with_model = Memory(
    initial_state=lambda shared, trained: {**no_history(shared, trained), **_last(select(shared, trained))},
    begin=_note_centre,
    final_state=lambda received, carry: {
        **longer_history(received, carry),
        **_last(select(carry.shared, _without_model(carry.personal))),
    },
)
"""A client also keeps y_i, its last model; before its first round that is the initial one."""


def two_displacements(plain: Uploads) -> Uploads:
    """y_K - x, and y_K minus the client's last model."""

    def upload(received: Received, carry: Carry) -> Groups:
        last = without_prefix(carry.personal, LAST)
        return {**plain.upload(received, carry), CHANGE: subtract(select(carry.shared, last), last)}

    # The server adds changes up over the whole run, so one that a compressor altered would stay in the sum: they are
    # sent as they are.
    return replace(plain, upload=upload, unweighted=frozenset({CHANGE}))
