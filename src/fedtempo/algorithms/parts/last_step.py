"""Uploads made from the last local step alone: FOMAML's, PFLEGO's and FedRecon's."""

from __future__ import annotations

from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, StepInfo
from fedtempo.params import Params, zeros_like
from fedtempo.schedules import Position
from fedtempo.server.sums import Groups


def begin_with_zeros(received: Received, personal: Params) -> tuple[Params, Params]:
    """The start of a round: personal tensors as kept, and zeros of the shared model's shape as scratch."""
    return personal, zeros_like(received.shared)


def note_update(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
    """Note how far this step moved the shared parameters."""
    last = {n: step.after[n] - step.before[n] for n in step.after if n in carry.scratch}
    return carry._replace(scratch={**carry.scratch, **last})


def note_direction(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
    """Note the direction of this step, without its learning rate."""
    last = {n: -step.direction[n] for n in step.direction if n in carry.scratch}
    return carry._replace(scratch={**carry.scratch, **last})


def upload_note(received: Received, carry: Carry) -> Groups:
    """Send the note in place of the displacement."""
    return {"delta": dict(carry.scratch)}
