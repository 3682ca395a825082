"""Where training stands: the round, the step inside it, and what else a schedule may depend on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedtempo.params import Scalar


@dataclass(frozen=True)
class Now:
    """The position of one client's training. It is sent with the model, so it is the same on every backend."""

    round: int = 0
    """The round, from 0."""
    step: int = 0
    """The step inside the phase, from 0."""
    steps: int = 1
    """How many steps the phase has."""
    epoch: int = 0
    """The local epoch inside the phase, from 0."""
    ends_epoch: bool = False
    """Whether this is the last step of its epoch."""
    clients: int = 1
    """How many clients can take part (I in PFLEGO)."""
    cohort: float = 1.0
    """How many are expected to take part this round (r in PFLEGO)."""
    samples: int = 1
    """This client's number of training samples."""
    total_samples: int = 1
    """The number of training samples of all clients together."""
    loss_ratio: float = 1.0
    """Smoothed training loss over its value in the first round."""
    plateaus: int = 0
    """How often the smoothed training loss has stopped falling so far."""
    time: float = 0.0
    """Seconds of the clock when the round began: of devices in a simulation, measured in a deployment."""
    client: int = -1
    """This client's number; -1 for a position that belongs to no client."""
    seconds_per_step: float = 0.0
    """Seconds that this client's device takes for a step; 0 without devices."""
    transfer: float = 0.0
    """Seconds that this client's device takes to get the model and to send its update; 0 without devices."""
    last_loss: float = 0.0
    """This client's mean training loss the last time that it took part; 0 before its first."""
    deadline: float = 0.0
    """Seconds after which this client stops and sends what it has; 0 where it finishes its work."""
    again: int = 0
    """How often this client has started from this round's model before (asynchronous runs)."""
    absent: bool | Literal["own"] = False
    """Whether this client is outside the cohort: it trains for what it keeps, and sends nothing. "own" has it take only
    the steps for tensors of its own (FedALA's code)."""
    earlier: int = 0
    """Steps of this phase in all earlier rounds, as if the client had taken part in each. Counted only for phases
    that ask for it."""

    @property
    def path(self) -> tuple[int, ...]:
        """What tells this start of a client from all its others: randomness is derived from it."""
        return (self.round, self.again) if self.again else (self.round,)

    @property
    def draw(self) -> int:
        """The path as one number, for draws that know rounds only."""
        return self.round + (self.again << 32)

    @property
    def most_steps(self) -> int | None:
        """How many steps the client can take before its deadline; None where nothing limits them.

        >>> Now(deadline=10.0, transfer=4.0, seconds_per_step=2.5).most_steps
        2
        """
        if not self.deadline or not self.seconds_per_step:
            return None
        # The small number undoes rounding: 0.3 / 0.1 is 2.9999999999999996 and means 3 steps.
        return max(0, math.floor((self.deadline - self.transfer) / self.seconds_per_step + 1e-9))

    def value(self, rule: Callable[[Now], float]) -> Scalar:
        """The rule's value at this position."""
        return rule(self)


class Position(Protocol):
    """Where a schedule can be evaluated: one `Now`, or a block of clients with a `Now` each."""

    def value(self, rule: Callable[[Now], float]) -> Scalar:
        """The rule's value at this position."""
        ...


class LanesDifferError(Exception):
    """Clients that step as one stack have different values of a schedule."""


@dataclass(frozen=True)
class LanePosition:
    """The positions of clients that run side by side.

    `lane` is this client's index into them under `vmap`. Without one the position is that of the whole stack.
    """

    places: tuple[Now, ...]
    lane: Tensor | None = None

    def value(self, rule: Callable[[Now], float]) -> Scalar:
        """One number if all lanes agree, else this lane's entry of a table."""
        # Rules are Python functions of numbers and cannot run on `vmap`'s tensors. So every position is evaluated in
        # Python, and the lane picks its number. A plain number is faster where all agree, which is the usual case.
        values = [rule(place) for place in self.places]
        if all(v == values[0] for v in values):
            return values[0]
        if self.lane is None:
            raise LanesDifferError
        table = torch.tensor(values, dtype=torch.float64, device=self.lane.device)
        return table.gather(0, self.lane.view(1))[0]


def step_number(now: Position) -> int:
    """The step that is being taken: one number, because clients that run side by side are all at the same step.

    >>> step_number(Now(step=3))
    3
    """
    # Places of clients that have finished stay behind at their last step.
    return max(place.step for place in now.places) if isinstance(now, LanePosition) else now.step  # type: ignore[attr-defined]


def at_step(now: Now, step: int, steps: int, batches_per_epoch: int) -> Now:
    """`now`, moved to one step of a phase of `steps` steps.

    >>> at_step(Now(round=3), step=5, steps=10, batches_per_epoch=4).epoch
    1
    """
    epoch, position = divmod(step, batches_per_epoch)
    ends = position == batches_per_epoch - 1 or step == steps - 1
    return replace(now, step=step, steps=steps, epoch=epoch, ends_epoch=ends)
