"""What one client does in one round, as pure functions of one client.

An algorithm lists `Phase`s; `compile_client` turns them into a `ClientProgram`. Backends add everything
else: the loop over clients, the client dimension of `vmap`, processes, machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from fedtempo.client.gradients import GradientOf, Replayed, ValueOf, by_autograd, by_transform_together
from fedtempo.client.network import Network
from fedtempo.data.batches import Batching
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.objectives import Correction, Objective, Received, Value, View, supervised
from fedtempo.params import Params, Scalar, Selector, add, combine, everything, partition, select, tree_map
from fedtempo.schedules import Now, Place, Rate, Schedule, as_schedule, at_step, whole_number
from fedtempo.tasks import TASKS, Batch, Task, mean_loss
from fedtempo.transforms import Transform, identity

Part = Literal["train", "support", "query"]
Where = Literal["both", "shared", "personal"]
TIMELINES = 16
"""How many sizes of clients have their steps laid out at a time."""


@dataclass(frozen=True)
class Length:
    """A number of local steps or epochs, constant or scheduled over rounds."""

    count: Schedule
    unit: Literal["steps", "epochs"] = "steps"
    minimum: int = 1
    offset: int = 0
    times: int = 1

    def units(self, now: Now) -> int:
        """The ceiling of the schedule, at least `minimum`."""
        value = self.count.at(now)
        holds = value >= self.minimum or (value > 0 and self.minimum == 1)
        require(holds, f"{self.unit} in round {now.round}", f"at least {self.minimum}", value)
        return max(self.minimum, whole_number(value))

    def steps(self, now: Now, samples: int, batching: Batching) -> int:
        """The number of gradient steps for a client with this many samples."""
        per_unit = batching.per_epoch(samples) if self.unit == "epochs" else 1
        return self.units(now) * self.times * per_unit + self.offset


def length(
    steps: Rate | None = None, epochs: Rate | None = None, minimum: int = 1, offset: int = 0, times: int = 1
) -> Length:
    """`times` the steps or epochs, whichever is given, plus `offset`."""
    if (steps is None) == (epochs is None):
        raise ConfigError(f"exactly one of steps and epochs must be given. Got steps={steps!r}, epochs={epochs!r}.")
    value, unit = (steps, "steps") if epochs is None else (epochs, "epochs")
    assert value is not None
    if not isinstance(value, Schedule) and not callable(value):
        holds = is_number(value) and value >= minimum and value == int(value)
        require(holds, unit, f"an int >= {minimum} or a schedule", value)
    return Length(as_schedule(value), "steps" if unit == "steps" else "epochs", minimum, offset, times)


class Carry(NamedTuple):
    """What a client holds while it trains. `scratch` is an algorithm's own notes, gone after the round."""

    shared: Params
    personal: Params
    states: tuple[Any, ...]
    scratch: Params


class Moved(NamedTuple):
    """One step, for algorithms that need to know more than where it led."""

    before: Params
    after: Params
    direction: Params
    rate: Scalar


After = Callable[[Carry, Moved, Received, Place], Carry]
Enter = Callable[[Network, Task, Received, Carry, Batch], tuple[Carry, Batch]]


@dataclass(frozen=True)
class Phase:
    """`length` gradient steps on `objective`: y <- y - lr * direction(gradient).

    `trains` says which tensors move, `on` which tensors make up the model: the shared ones, the client's own
    copy, or both together. `enter` sees all of the client's data once before the first step, `after`
    follows every step, `repeat` takes several steps on each batch.
    """

    length: Length
    lr: Schedule
    objective: Objective = supervised
    rates: tuple[tuple[str, Schedule], ...] = ()
    """Schedules inside the objective, by name, so that they can be checked and printed."""
    correction: Correction | None = None
    direction: Transform = identity
    trains: Selector = everything
    on: Where = "both"
    full_batch: bool = False
    part: Part = "train"
    repeat: int = 1
    enter: Enter | None = None
    after: After | None = None
    after_reads_start: bool = True
    """Whether `after` looks at where the step began; where it does not, steps are written over their start."""

    def batching(self, batching: Batching) -> Batching:
        """The experiment's batching, unless this phase works on the full batch."""
        return Batching(None) if self.full_batch else batching

    def rows(self, samples: int) -> tuple[int, int]:
        """First row and number of rows of the phase's part of the client's training data."""
        support = (samples + 1) // 2
        if self.part == "support":
            return 0, support
        if self.part == "query" and samples > 1:
            return support, samples - support
        return 0, samples

    def with_direction(self, wrap: Callable[[Transform], Transform]) -> Phase:
        """This phase with another gradient transform."""
        return replace(self, direction=wrap(self.direction))


class Step(Protocol):
    """One gradient step of one client."""

    def __call__(
        self, of: GradientOf, received: Received, carry: Carry, batch: Batch, now: Place, owned: bool = False
    ) -> tuple[Carry, Tensor]:
        """The next carry and the loss. With `owned` nobody else holds the carry, so it may be written over."""
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
    enter: Callable[[Received, Carry, Batch], tuple[Carry, Batch]]
    step: Step
    split: Callable[[Carry], tuple[Params, Params]]
    """The model's tensors that this phase trains, and the others."""
    plain: Plain | None
    """Where the objective depends on the model and the batch alone."""
    places: Callable[[Now, int, Batching], Sequence[Now]]
    """Where each step stands, for a client with so many samples."""

    def needs_all_rows(self, steps: int, samples: int, batching: Batching) -> bool:
        """Whether the stage starts with a pass over all rows: to enter, or because reusing features pays."""
        if self.phase.enter is not None:
            return True
        return self.reuses_features and (batching.size is None or steps * batching.size >= samples) and steps > 0


class ClientProgram(NamedTuple):
    """What one client does in one round."""

    init: Callable[[Received, Params], Carry]
    stages: tuple[Stage, ...]
    finish: Callable[[Received, Carry], tuple[dict[str, Params], Params, dict[str, Tensor]]]
    """(upload by group, personal state to keep, measurements)."""


Upload = Callable[[Received, Carry], dict[str, Params]]
Keep = Callable[[Received, Carry], Params]
Begin = Callable[[Received, Params], tuple[Params, Params]]
"""(received, personal state) -> (personal state to start from, scratch)."""


def compile_client(
    phases: tuple[Phase, ...],
    network: Network,
    task: Task,
    upload: Upload,
    keep: Keep,
    begin: Begin,
) -> ClientProgram:
    """Bind phases to a model."""
    stages = tuple(_stage(i, phase, network, task) for i, phase in enumerate(phases))

    def init(received: Received, personal: Params) -> Carry:
        own, scratch = begin(received, personal)
        carry = Carry(received.shared, own, (), scratch)
        states = tuple(s.phase.direction.init(select(_model(s.phase, carry), s.trained)) for s in stages)
        return carry._replace(states=states)

    def finish(received: Received, carry: Carry) -> tuple[dict[str, Params], Params, dict[str, Tensor]]:
        measured: dict[str, Tensor] = {}
        for stage, state in zip(stages, carry.states, strict=True):
            for name, value in stage.phase.direction.measurements(state).items():
                measured[name] = measured[name] + value if name in measured else value
        return upload(received, carry), keep(received, carry), measured

    return ClientProgram(init, stages, finish)


def _stage(index: int, phase: Phase, network: Network, task: Task) -> Stage:
    trained = phase.trains.names(network.training) & frozenset(network.parameters)
    require(bool(trained), "trains", "a selector that matches at least one parameter", phase.trains)
    buffers = frozenset(network.buffers)
    reuses = phase.on == "both" and network.body_is_pure() and all(n.startswith("head.") for n in trained)

    def loss(params: Params, batch: Batch, weights: Tensor | None = None) -> tuple[Tensor, Params]:
        after = {n: p.clone() for n, p in params.items() if n in buffers}
        outputs = network.forward({**params, **after}, batch, train=True)
        return mean_loss(task, outputs, batch, weights), after

    def enter(received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
        if phase.enter is not None:
            return phase.enter(network, task, received, carry, data)
        features = network.features(_model(phase, carry), data, train=True)
        kept = {n: v for n, v in data.items() if n == "y" or n.startswith("_")}
        return carry, {**kept, "_features": features}

    def split(carry: Carry) -> tuple[Params, Params]:
        return partition(_model(phase, carry), trained)

    def step(
        of: GradientOf, received: Received, carry: Carry, batch: Batch, now: Place, owned: bool = False
    ) -> tuple[Carry, Tensor]:
        before, frozen = split(carry)
        view = View(received, carry.shared, carry.personal, carry.scratch)
        gradient, value = of(
            lambda free, fixed, rows: phase.objective(loss, {**fixed, **free}, rows, view, now), before, frozen, batch
        )
        if phase.correction is not None:
            gradient = {**gradient, **add(phase.correction(view), gradient)}
        direction, state = phase.direction.update(gradient, carry.states[index], before, now)
        rate = phase.lr(now)
        over = owned and not (phase.after and phase.after_reads_start) and not _shares_memory(state, before)
        after = {n: _descend(p, direction[n], rate, over) for n, p in before.items()}
        states = (*carry.states[:index], state, *carry.states[index + 1 :])
        moved = _replaced(phase, carry._replace(states=states), {**after, **value.buffers})
        if phase.after is not None:
            moved = phase.after(moved, Moved({} if over else before, after, direction, rate), received, now)
        return moved, value.loss

    def value_of(free: Params, fixed: Params, batch: Batch) -> Value:
        value, after = loss({**fixed, **free}, batch)
        return Value(value, value, after)

    recordable = phase.objective is supervised and network.is_plain() and task in TASKS.values()
    plain = Plain(value_of, Replayed(by_autograd), Replayed(by_transform_together)) if recordable else None
    return Stage(phase, trained, reuses, enter, step, split, plain, lru_cache(TIMELINES)(partial(_places, phase)))


def _model(phase: Phase, carry: Carry) -> Params:
    if phase.on == "both":
        return combine(carry.shared, carry.personal) if carry.personal else carry.shared
    return carry.shared if phase.on == "shared" else carry.personal


def _replaced(phase: Phase, carry: Carry, new: Params) -> Carry:
    """The carry with new tensors; a personal tensor never ends up among the shared ones."""
    if phase.on == "shared":
        return carry._replace(shared={**carry.shared, **new})
    if phase.on == "personal":
        return carry._replace(personal={**carry.personal, **new})
    own, common = partition(new, carry.personal)
    return carry._replace(shared={**carry.shared, **common}, personal={**carry.personal, **own})


def _descend(p: Tensor, direction: Tensor, rate: Scalar, over: bool) -> Tensor:
    """p - rate * direction; written over `p` it stays in the cache, with the same bits."""
    if not isinstance(rate, (int, float)):
        return p - rate * direction
    return p.sub_(direction, alpha=rate) if over else torch.sub(p, direction, alpha=rate)


def _shares_memory(state: Any, params: Params) -> bool:
    """Whether a transform has kept the parameters themselves in its state."""
    kept: set[int] = set()
    tree_map(lambda t: kept.add(t.untyped_storage().data_ptr()) if isinstance(t, Tensor) else None, state)
    return bool(kept) and any(p.untyped_storage().data_ptr() in kept for p in params.values())


def _places(phase: Phase, now: Now, samples: int, batching: Batching) -> Sequence[Now]:
    mine = phase.batching(batching)
    _, rows = phase.rows(samples)
    steps = phase.length.steps(now, rows, mine)
    here = replace(now, samples=samples)
    return [at_step(here, step, steps, mine.per_epoch(rows) * phase.repeat) for step in range(steps)]
