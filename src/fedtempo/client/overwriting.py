"""When a step may write over the weights that it starts from, which keeps them in the processor's cache.

It may if nothing reads the start afterwards:

| who might read it | what decides |
|---|---|
| other clients, who start from the received model too | `allowed`: a stage's first step writes to new memory |
| clients side by side, one of which turns out to differ in the middle of the step | the vectorised backend says no |
| clients that stop before the step, and keep their weights | `stop_rule` and `until`, asked in the step |
| a hook's `after` | `reads_start`: `Hook.reads_start`, and `kept_by_after`: it kept the weights themselves |
| a transform or a rule | `kept_in_state`: its state holds the weights themselves |

Steps that overwrite and steps that do not have the same bits; a test runs every algorithm both ways.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from fedtempo.client.phase import Carry, Phase
from fedtempo.client.rules import PhaseState
from fedtempo.params import Params, tensors_in


def allowed(step: int) -> bool:
    """Whether nobody but the client holds its weights before this step of a stage."""
    return step > 0


def reads_start(phase: Phase) -> bool:
    """Whether `after` reads the weights before the step, or the direction."""
    return phase.after is not None and phase.after_reads_start


def kept_by_after(phase: Phase, carry: Carry, params: Params) -> bool:
    """Whether `after` kept the weights of an earlier step without a copy: in the scratch, or beside the model."""
    if phase.after is None:
        return False
    beside = carry.personal if phase.on == "shared" else {}
    return _share_memory((*carry.scratch.values(), *beside.values()), params)


def kept_in_state(state: PhaseState, params: Params) -> bool:
    """Whether a transform or a rule keeps the weights themselves in its state."""
    # The sums that the library keeps beside a rule's own state are its own.
    parts = (state.direction, state.optimizer, state.rate.get("rule", {}), state.stop.get("rule", {}))
    if all(isinstance(part, (tuple, dict)) and not part for part in parts):  # most phases keep nothing
        return False
    return _share_memory(tensors_in(parts), params)


def _share_memory(tensors: Iterable[Tensor], params: Params) -> bool:
    memory = {t.untyped_storage().data_ptr() for t in tensors}
    return bool(memory) and any(p.untyped_storage().data_ptr() in memory for p in params.values())
