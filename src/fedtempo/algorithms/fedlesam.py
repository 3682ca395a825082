"""FedLESAM: gradients are taken away from where the shared model has moved. A plug-in for any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.algorithms.fedsam import POINT
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.notes import SEEN, noting
from fedtempo.algorithms.parts.rate_rules import moving
from fedtempo.client.local_step import sent_down
from fedtempo.client.objectives import Received, Value, View
from fedtempo.client.phase import Carry, Hook, Phase
from fedtempo.client.rules import GradientAt
from fedtempo.params import Params, add, norm, select, subtract, without_prefix
from fedtempo.schedules import Now, Position, Rate, checked_rate
from fedtempo.server.step import around
from fedtempo.server.sums import Aggregate

PREVIOUS, KICK = "_previous/", "_kick/"
"""Lead the names of the previous model, and of the direction from the received model to it."""


@named
def fedlesam(
    algorithm: Algorithm,
    *,
    rho: Rate = 0.1,
    previous: Literal["received", "global"] = "received",
) -> Algorithm:
    """y <- y - l grad f_i(y + rho e), e = (x_old - x) / |x_old - x|, the same in all steps of a round.

    Fan et al. (2024). x_old is the model that the client received in its last round (`previous="received"`, the
    paper's), or the model of the last round for everybody (`"global"`, as in the authors' code). Where there is none,
    or nothing moved, e = 0. A step costs one gradient. Of the code's slip (one entry of the flat vector per tensor)
    nothing is reproduced.
    """
    radius = checked_rate(rho, "rho")

    def look(gradient_at: GradientAt, view: View, now: Position) -> GradientAt:
        kick = without_prefix(view.scratch, KICK)

        def nearby(params: Params) -> tuple[Params, Value]:
            return gradient_at({**params, **add(select(params, kick), kick, radius(now))})

        return nearby if kick else gradient_at

    def change(phase: Phase) -> Phase:
        return phase if phase.on == "personal" else phase.hooked(Hook(look=look))

    def use(received: Received, notes: Params) -> tuple[Received, Params]:
        x = sent_down(received, received.extra)
        away = subtract(notes or without_prefix(received.extra, PREVIOUS), x)
        length = norm(away)
        unit = torch.where(length > 0, 1.0, 0.0) / torch.where(length > 0, length, 1.0)
        return received, {KICK + n: e * unit.to(e.dtype) for n, e in away.items()}

    def first(shared: Params, trained: frozenset[str]) -> Params:
        return {}

    def then(received: Received, carry: Carry, notes: Params) -> Params:
        return select(received.shared, notes)

    wrapped = moving(algorithm, "fedlesam").claimed(POINT, "fedlesam").with_phases(change)
    if previous == "received":
        return replace(wrapped, memory=_with_last_received(wrapped, use))
    server = around(
        wrapped.server, "previous", dict, _note_previous, lambda own: {PREVIOUS + n: t for n, t in own.items()}
    )
    return replace(wrapped, server=server, memory=noting(wrapped, "_lesam/", first, use, then))


def _note_previous(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
    return aggregate, dict(shared)


def _with_last_received(algorithm: Algorithm, use: Any) -> Any:
    """Clients keep the model they received; before their first round they have none, which a 0 under `SEEN` says."""

    def first(shared: Params, trained: frozenset[str]) -> Params:
        return {SEEN: torch.zeros((), dtype=torch.float64), **select(shared, trained)}

    def begin(received: Received, notes: Params) -> tuple[Received, Params]:
        x = sent_down(received, received.extra)
        old = {n: torch.where(notes[SEEN] > 0, t, x[n]) for n, t in notes.items() if n != SEEN}
        here: tuple[Received, Params] = use(received, old)
        return here

    def then(received: Received, carry: Carry, notes: Params) -> Params:
        return {SEEN: torch.ones_like(notes[SEEN]), **select(sent_down(received, carry.scratch), notes)}

    return noting(algorithm, "_lesam/", first, begin, then)
