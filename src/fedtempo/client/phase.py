"""A phase: some gradient steps of one client, described as a value.

An algorithm lists the phases of its round: FedAvg has one, FedRep has two (head, then body). A phase knows neither the
model nor other clients. `client/program.py` binds it to a model; backends run the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

from torch import Tensor

from fedtempo.client.network import Network
from fedtempo.client.objectives import Correction, Objective, Received, supervised
from fedtempo.client.optimizers import Optimizer, plain
from fedtempo.client.rules import Look, PhaseState, RateRule, StopRule
from fedtempo.client.transforms import Transform, identity
from fedtempo.data.batches import Batching
from fedtempo.errors import ConfigError, is_count, is_number, require, wrong
from fedtempo.params import Params, Scalar, Selector, everything
from fedtempo.schedules import Now, Position, Rate, Schedule, as_schedule, at_step, whole_number
from fedtempo.schedules.stages import counts_steps
from fedtempo.schedules.totals import follows_rounds, total_before
from fedtempo.tasks import Batch, Task

T = TypeVar("T")
Rows = Literal["train", "support", "query"]
"""All training rows, their first half, or their second half."""
Where = Literal["both", "shared", "personal"]
"""Which tensors make up the model: the shared and the personal ones together, or one kind alone."""


@dataclass(frozen=True)
class Length:
    """How long a phase lasts: a number of local steps or epochs, constant or scheduled over rounds."""

    count: Schedule
    unit: Literal["steps", "epochs"] = "steps"
    minimum: int = 1
    """The smallest number of units allowed. 0 lets a phase be empty, such as FedRep's head steps."""
    offset: int = 0
    """Steps added at the end, whatever the unit. PFLEGO's tau counts its joint step, so its head phase has -1."""
    times: int = 1
    """A constant factor on the units: pFedMe takes `inner_steps` steps for each of its local rounds."""
    share: float = 1.0
    """The share of an epoch's batches, rounded up, that counts as an epoch: FedALA mixes on some of the rows."""

    def units(self, now: Now) -> int | float:
        """The number of steps or epochs in this round: the schedule's value, rounded up, at least `minimum`.

        A constant number of epochs counts as it is: half an epoch has half of an epoch's batches.
        """
        value = self.count.at(now)
        if self.unit == "epochs" and self.count.is_constant and value > 0 and value != int(value):
            return value
        # A decaying schedule falls below 1 without reaching 0, and still means one step. A value of 0 is a mistake.
        if value < self.minimum and not (value > 0 and self.minimum == 1):
            raise wrong(f"{self.unit} in round {now.round}", f"at least {self.minimum}", value)
        return max(self.minimum, whole_number(value))

    def steps(self, now: Now, samples: int, batching: Batching) -> int:
        """The number of gradient steps for a client with this many samples."""
        units = self.units(now) * self.times
        if not units:
            return self.offset
        # The small number undoes rounding: 0.1 * 30 batches must not become 4.
        return max(1, math.ceil(units * self._per_unit(samples, batching) - 1e-9)) + self.offset

    def steps_before(self, now: Now, samples: int, batching: Batching) -> int:
        """The steps of all rounds before this one, as if the client had taken part in each."""
        if self.count.is_constant:
            return now.round * self.steps(now, samples, batching)
        if not follows_rounds(self.count):
            return sum(self.steps(replace(now, round=t), samples, batching) for t in range(now.round))
        key = f"{self.count!r}, at least {self.minimum} {self.unit}"
        units = total_before(now.round, key, lambda t, so_far: int(self.units(Now(round=t))))
        return units * self.times * self._per_unit(samples, batching) + self.offset * now.round

    def _per_unit(self, samples: int, batching: Batching) -> int:
        # An epoch is longer for a client with more rows. So lengths in epochs differ between clients of one cohort.
        # The small number undoes rounding: 0.8 * 5 batches must not become 5.
        return math.ceil(self.share * batching.per_epoch(samples) - 1e-9) if self.unit == "epochs" else 1


def length(
    steps: Rate | None = None, epochs: Rate | None = None, minimum: int = 1, offset: int = 0, times: int = 1
) -> Length:
    """The length of a phase: `times` the steps or epochs, whichever is given, plus `offset` steps.

    >>> length(steps=5).units(Now())
    5
    """
    if (steps is None) == (epochs is None):
        raise ConfigError(f"exactly one of steps and epochs must be given. Got steps={steps!r}, epochs={epochs!r}.")
    value, unit = (steps, "steps") if epochs is None else (epochs, "epochs")
    assert value is not None
    number = value.settings["value"] if isinstance(value, Schedule) and value.is_constant else value
    if not isinstance(number, Schedule) and not callable(number):
        parts = unit == "epochs" and is_number(number) and number > 0
        holds = parts or (is_number(number) and number >= minimum and number == int(number))
        rule = f"an int >= {minimum}" if unit == "steps" else "a number > 0" if minimum else "a number >= 0"
        require(holds, unit, f"{rule} or a schedule", value)
    return Length(as_schedule(value), "steps" if unit == "steps" else "epochs", minimum, offset, times)


class Carry(NamedTuple):
    """What a client holds while it trains."""

    shared: Params
    """The client's copy of the shared tensors."""
    personal: Params
    """Tensors that stay with the client."""
    states: tuple[PhaseState, ...]
    """For each phase the states of its gradient transform, its optimizer and its rules."""
    scratch: Params
    """What the algorithm notes during the round, such as FedNova's step count. Dropped when the round ends."""


class StepInfo(NamedTuple):
    """One step, for algorithms that look at more than the new weights."""

    before: Params
    """The trained tensors before the step; empty where the step overwrote them (`Hook.reads_start`)."""
    after: Params
    direction: Params
    """What was subtracted, before it was multiplied by the rate; `Hook.reads_start` asks for all of it."""
    rate: Scalar


AfterStep = Callable[[Carry, StepInfo, Received, Position], Carry]
"""(carry after the step, the step, what came down, position) -> the carry to go on with."""
Until = Callable[[Received, Carry], Tensor]
"""(what came down, carry) -> whether the client takes no further step of the phase, as a truth value."""
Enter = Callable[[Network, Task, Received, Carry, Batch], tuple[Carry, Batch]]
"""(network, task, what came down, carry, all of the client's rows) -> the carry and the rows to train on."""


class Hook(NamedTuple):
    """What a method adds to the steps of a phase: functions, and facts about them. What it does not add is None."""

    enter: Enter | None = None
    """Sees all of the client's rows once, before the first step."""
    look: Look | None = None
    """Where gradients are taken. Sharpness-aware methods look nearby."""
    correction: Correction | None = None
    """Added to every gradient: the derivative of a linear term, such as SCAFFOLD's c - c_i."""
    share: Schedule | None = None
    """Mixes the correction with the gradient, share gradient + (1 - share) correction: FedCM's alpha."""
    rate_rule: RateRule | None = None
    """A rate that follows the gradients. It starts from `lr` at the round's first step."""
    stop_rule: StopRule | None = None
    """When a client stops before its last planned step, by what it sees of the step."""
    until: Until | None = None
    """Asked before every step whether to stop. Costs count such a phase as one of its units."""
    after: AfterStep | None = None
    """Called after every step; what it returns is the carry of the next step."""
    reads_start: bool = True
    """Whether `after` reads `StepInfo.before` or `StepInfo.direction`. If not, a step may overwrite the weights and
    subtract its terms one by one, which is faster."""
    epoch_factor: Schedule | None = None
    """The factor by which `after` shortens the way of each epoch (FedDecay by displacement). Such an `after` is a decay
    inside the round: fine-tuning leaves it out unless it is told to decay."""
    prescribed_rate: bool = False
    """Whether the rate is part of the server's rule, so that no rate rule may change it (PFLEGO's joint step)."""

    def in_fine_tuning(self, decays: bool) -> Hook:
        """The parts that fine-tuning keeps.

        Corrections, gradients taken nearby, rules that stop a client, and what is done after a step serve the average
        over clients, not this user. A decay inside the round stays if fine-tuning `decays`; else it would end early.
        """
        kept = self._replace(correction=None, share=None, look=None, stop_rule=None)
        return kept if decays and self.epoch_factor is not None else kept._replace(after=None, epoch_factor=None)

    def at_own_rate(self) -> Hook:
        """The hook of a user who is fine-tuned at a given rate: a rate of the server's gives way to it."""
        gone = self.rate_rule is not None and self.rate_rule.from_server
        return self._replace(rate_rule=None) if gone else self


ONCE = ("look", "correction", "share", "rate_rule", "stop_rule", "until", "epoch_factor")
"""Parts of hooks of which a phase has one at most."""
MOVED = {name: name for name in ("enter", *ONCE, "after", "prescribed_rate")} | {"after_reads_start": "reads_start"}
"""Settings of a phase in 0.2.0 that are parts of a hook."""


class Beside(NamedTuple):
    """A phase on personal tensors that steps beside one on shared tensors, with its length, batches and rows.

    Both gradients are taken before either moves, unless this one follows.
    """

    phase: Phase
    follows: bool = False
    """Whether its gradient is taken after the main phase has moved (APFL's code)."""


def _first(parts: Iterable[T | None]) -> T | None:
    return next((part for part in parts if part is not None), None)


@dataclass(frozen=True)
class Phase:
    """`length` gradient steps on `objective`: y <- y - lr * optimizer(direction(gradient))."""

    length: Length
    lr: Schedule
    objective: Objective = supervised
    rates: tuple[tuple[str, Schedule], ...] = ()
    """Schedules inside the objective, by name, so that they can be checked and printed."""
    direction: Transform = identity
    """What the algorithm does to the gradient before the optimizer sees it: clipping, weight decay, ..."""
    optimizer: Optimizer = plain
    """How clients step with it: SGD, momentum, Adam, ..., and what becomes of the state between rounds."""
    counts_earlier: bool = False
    """Whether a rule or an optimizer reads `Now.earlier`, the number of local steps in earlier rounds."""
    trains: Selector = everything
    """The tensors that move. The others are constants of the objective."""
    on: Where = "both"
    """The tensors that make up the model. Ditto trains its personal model with "personal", the shared one with
    "shared"."""
    full_batch: bool = False
    """Whether every step sees all rows, whatever batch size the experiment has."""
    part: Rows = "train"
    """Which training rows the phase sees. FedRecon fits the head on "support" and the body on "query" rows."""
    repeat: int = 1
    """Steps taken on each batch before the next one is drawn."""
    accumulate: int = 1
    """Pieces in which a batch goes through the model; the gradient is that of the whole batch, in less memory."""
    own: str = ""
    """Where it is given, the phase trains tensors that the client keeps besides its model. With `trains=nothing` it is
    the tensor `own` itself (APFL's alpha), else `own` + name for each name that `trains` matches (FedALA's weights).
    Wrappers of an algorithm skip such phases."""
    beside: Beside | None = None
    """A second phase that steps at the same time, on the same batch."""
    hooks: tuple[Hook, ...] = ()
    """What a method adds to the steps. `enter` and `after` of several hooks run in turn; of the other parts there is
    one at most."""

    def __new__(cls, *args: Any, **given: Any) -> Phase:
        """Say in one line what became of a setting that is a part of a hook now."""
        for name in given:
            if name in MOVED:
                how = f"Phase(..., hooks=(ft.Hook({MOVED[name]}=...),))"
                raise ConfigError(f"{name} must be given in a hook: {how}. See 'An algorithm of your own' in the docs.")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        require(is_count(self.accumulate), "accumulate", "an int >= 1", self.accumulate)
        rule = "an Optimizer, such as optimizers.adamw()"
        require(isinstance(self.optimizer, Optimizer), "optimizer", rule, self.optimizer)
        known = self.beside is None or isinstance(self.beside, Beside)
        require(known, "beside", "an ft.Beside: a phase, and whether it follows", self.beside)
        apart = self.beside is None or (self.on == "shared" and self.beside.phase.on == "personal")
        require(apart, "beside", "a phase on personal tensors beside one on shared tensors", self.beside)
        for name in ONCE:
            given = [part for hook in self.hooks if (part := getattr(hook, name)) is not None]
            require(len(given) < 2, f"hooks ({name})", "given by one method", given)

    # ------------------------------------------------------------------ what the hooks add, together

    @cached_property
    def enter(self) -> Enter | None:
        """The hooks' `enter`, in turn."""
        enters = [hook.enter for hook in self.hooks if hook.enter is not None]
        if len(enters) < 2:
            return enters[0] if enters else None

        def together(
            network: Network, task: Task, received: Received, carry: Carry, rows: Batch
        ) -> tuple[Carry, Batch]:
            for enter in enters:
                carry, rows = enter(network, task, received, carry, rows)
            return carry, rows

        return together

    @cached_property
    def after(self) -> AfterStep | None:
        """The hooks' `after`, in turn."""
        afters = [hook.after for hook in self.hooks if hook.after is not None]
        if len(afters) < 2:
            return afters[0] if afters else None

        def together(carry: Carry, step: StepInfo, received: Received, now: Position) -> Carry:
            for after in afters:
                carry = after(carry, step, received, now)
            return carry

        return together

    @cached_property
    def after_reads_start(self) -> bool:
        """Whether an `after` reads `StepInfo.before` or `StepInfo.direction`."""
        return any(hook.after is not None and hook.reads_start for hook in self.hooks)

    @cached_property
    def correction(self) -> Correction | None:
        """What is added to every gradient, or mixed with it."""
        return _first(hook.correction for hook in self.hooks)

    @cached_property
    def share(self) -> Schedule | None:
        """The gradient's share where a correction is mixed with it."""
        return _first(hook.share for hook in self.hooks)

    @cached_property
    def look(self) -> Look | None:
        """Where gradients are taken; None is at the weights themselves."""
        return _first(hook.look for hook in self.hooks)

    @cached_property
    def rate_rule(self) -> RateRule | None:
        """A rate that follows the gradients."""
        return _first(hook.rate_rule for hook in self.hooks)

    @cached_property
    def stop_rule(self) -> StopRule | None:
        """When a client stops before its last planned step."""
        return _first(hook.stop_rule for hook in self.hooks)

    @cached_property
    def until(self) -> Until | None:
        """Asked before every step: whether the client takes no further one."""
        return _first(hook.until for hook in self.hooks)

    @cached_property
    def epoch_factor(self) -> Schedule | None:
        """The factor by which an `after` shortens the way of each epoch, for plans."""
        return _first(hook.epoch_factor for hook in self.hooks)

    @cached_property
    def prescribed_rate(self) -> bool:
        """Whether the rate is part of the server's rule, so that no rate rule may change it."""
        return any(hook.prescribed_rate for hook in self.hooks)

    @property
    def together(self) -> tuple[Phase, ...]:
        """This phase, and the one beside it."""
        return (self,) if self.beside is None else (self, self.beside.phase)

    def hooked(self, *hooks: Hook) -> Phase:
        """This phase with more hooks, after those that it has."""
        return replace(self, hooks=(*self.hooks, *hooks))

    # ------------------------------------------------------------------ what follows from the settings

    @property
    def schedules(self) -> tuple[tuple[str, Schedule], ...]:
        """Every rate of the phase, by name: what is checked before training, printed, and kept from a private run."""
        extra = (("share", self.share), ("epoch_factor", self.epoch_factor))
        given = tuple((name, schedule) for name, schedule in extra if schedule is not None)
        inside = (*self.direction.schedules, *self.optimizer.transform.schedules)
        return (("lr", self.lr), *self.rates, *given, *inside)

    def batching(self, batching: Batching) -> Batching:
        """The experiment's batching, unless this phase works on the full batch."""
        return Batching(None) if self.full_batch else batching

    def rows(self, samples: int) -> tuple[int, int]:
        """First row and number of rows of the phase's part of the client's training data."""
        # An odd row goes to the support half, so that both halves exist from two rows on.
        support = (samples + 1) // 2
        if self.part == "support":
            return 0, support
        # A client with one row has no second half; it uses the row twice instead of training on nothing.
        if self.part == "query" and samples > 1:
            return support, samples - support
        return 0, samples

    def positions(self, now: Now, samples: int, batching: Batching) -> Sequence[Now]:
        """Round, step and epoch of each step that a client with this many samples takes.

        Training and `fedtempo schedule` both call this, so the printed schedule is the one that is used.
        """
        if now.absent == "own" and not self.own:
            return []
        mine = self.batching(batching)
        # Steps and epochs follow from the rows of the phase's part, but a schedule such as `data_share` means the whole
        # client: `samples` stays the number of all its training rows.
        _, rows = self.rows(samples)
        here = replace(now, samples=samples)
        steps = self.length.steps(here, rows, mine)
        if self.counts_earlier or any(counts_steps(schedule) for _, schedule in self.schedules):
            here = replace(here, earlier=self.length.steps_before(here, rows, mine))
        # A batch that is used `repeat` times makes an epoch that many times as long, counted in steps.
        steps_of_epoch = mine.per_epoch(rows) * self.repeat
        return [at_step(here, step, steps, steps_of_epoch) for step in range(steps)]

    def with_direction(self, wrap: Callable[[Transform], Transform]) -> Phase:
        """This phase with another gradient transform."""
        return replace(self, direction=wrap(self.direction))

    def changed(self, change: Callable[[Phase], Phase]) -> Phase:
        """This phase and the one beside it, changed; one whose steps are no local steps stays as it is."""
        if self.own:
            return self
        changed = change(self)
        if self.beside is None:
            return changed
        return replace(changed, beside=self.beside._replace(phase=change(self.beside.phase)))
