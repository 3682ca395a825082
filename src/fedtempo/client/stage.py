"""A stage: a phase bound to a model, which is what backends run; and two phases that step together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from fedtempo.client.gradients import GradientOf, ValueOf
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Phase
from fedtempo.data.batches import Batching
from fedtempo.params import Params
from fedtempo.schedules import Now, Position
from fedtempo.tasks import Batch


class Step(Protocol):
    """One gradient step of one client."""

    def __call__(
        self,
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        """The next carry and the loss. `may_overwrite` says that nobody else holds the carry's tensors."""
        ...


class Plain(NamedTuple):
    """An objective that depends on the model and the batch alone, and the fastest ways to its gradient."""

    value_of: ValueOf
    alone: GradientOf
    """For one client at a time."""
    together: GradientOf
    """For clients that are stacked."""


class Stage(NamedTuple):
    """A phase bound to a model: what backends run."""

    phase: Phase
    trained: frozenset[str]
    reuses_features: bool
    """Whether the body's features may be computed once for the whole phase (PFLEGO)."""
    enter: Callable[[Received, Carry, Batch], tuple[Carry, Batch]]
    step: Step
    split: Callable[[Carry], tuple[Params, Params]]
    """The model's tensors that this phase trains, and the others."""
    plain: Plain | None
    positions: Callable[[Now, int, Batching], Sequence[Now]]

    def needs_all_rows(self, steps: int, samples: int, batching: Batching) -> bool:
        """Whether the stage starts with a pass over all rows: to enter, or because reusing features pays."""
        if self.phase.enter is not None:
            return True
        return self.reuses_features and (batching.size is None or steps * batching.size >= samples) and steps > 0


def in_step(stage: Stage, index: int, beside: Stage) -> Stage:
    """The stage that takes each step together with a companion's, whose state is at `index`.

    One moves shared and the other personal tensors, so both start from the same carry and their results do not meet.
    """

    def step(
        gradient_of: GradientOf,
        received: Received,
        carry: Carry,
        batch: Batch,
        now: Position,
        may_overwrite: bool = False,
    ) -> tuple[Carry, Tensor]:
        moved, loss = stage.step(gradient_of, received, carry, batch, now)
        other, _ = beside.step(gradient_of, received, carry, batch, now)
        states = (*moved.states[:index], other.states[index], *moved.states[index + 1 :])
        return moved._replace(personal=other.personal, states=states), loss

    return stage._replace(step=step, plain=None)
