"""Schedules: every number of an algorithm may change over rounds and over the steps inside a round.

A schedule is a function of `Now`. Schedules multiply (`per_round(0.1, 0.998) * per_step(1.0, 0.6)`),
print as the call that made them, and go to and from TOML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fedtempo.display import html_of
from fedtempo.errors import ConfigError, is_count, is_number, require, takes_numbers, unknown
from fedtempo.params import Scalar


@dataclass(frozen=True)
class Now:
    """Where one client's training stands. Sent along with the model, so it is the same on every backend."""

    round: int = 0
    step: int = 0
    steps: int = 1
    epoch: int = 0
    ends_epoch: bool = False
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

    def value(self, rule: Callable[[Now], float]) -> Scalar:
        """The rule's value here. A block of clients at different places has one value per client."""
        return rule(self)


class Position(Protocol):
    """Somewhere a schedule can be evaluated: one `Now`, or a block of clients, each with its own."""

    def value(self, rule: Callable[[Now], float]) -> Scalar:
        """The rule's value at this place."""
        ...


@dataclass(frozen=True)
class LanePosition:
    """The places of clients that run side by side under `vmap`; `lane` is this client's index."""

    places: tuple[Now, ...]
    lane: Tensor

    def value(self, rule: Callable[[Now], float]) -> Scalar:
        """One number if all lanes agree, else this lane's entry of a table."""
        values = [rule(place) for place in self.places]
        if all(v == values[0] for v in values):
            return values[0]
        table = torch.tensor(values, dtype=torch.float64, device=self.lane.device)
        return table.gather(0, self.lane.view(1))[0]


@dataclass(frozen=True)
class Schedule:
    """A named rule from `Now` to a number."""

    name: str
    settings: Mapping[str, Any]
    rule: Callable[[Now], float] = field(compare=False)
    __array_ufunc__ = None  # numpy's number times a schedule is a schedule, not numpy's business

    def __call__(self, now: Position) -> Scalar:
        """The value at a place: one number, or one per client where clients stand at different places."""
        return now.value(self.at)

    def at(self, now: Now) -> float:
        """The number at one place; NaN and infinity are errors."""
        value = float(self.rule(now))
        if not math.isfinite(value):
            raise ConfigError(f"schedule {self!r} must be finite. Got {value} at round {now.round}, step {now.step}.")
        return value

    def __mul__(self, other: float | Schedule) -> Schedule:
        return product(self, as_schedule(other))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        if self.name == "product":
            return " * ".join(map(repr, self.settings["of"]))
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"

    def _repr_html_(self) -> str:
        return html_of(self)


Rate = float | Schedule


@takes_numbers
def constant(value: float) -> Schedule:
    """The same number everywhere."""
    require(is_number(value), "value", "a finite number", value)
    return Schedule("constant", {"value": value}, lambda now: value)


@takes_numbers
def per_round(value: float, factor: float) -> Schedule:
    """`value * factor**round`: FedNAR's and decaying-gamma's annealing.

    >>> per_round(0.1, 0.5).at(Now(round=2))
    0.025
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    return Schedule("per_round", {"value": value, "factor": factor}, lambda now: value * factor**now.round)


@takes_numbers
def per_step(value: float, factor: float, per: str = "step") -> Schedule:
    """`value * factor**step` with 0**0 = 1, starting afresh each round: FedDecay's beta (eq. 4).

    `per="epoch"` counts local epochs instead of steps, as the released FedDecay code does.
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    index = _index(per)
    return Schedule(
        "per_step", {"value": value, "factor": factor, "per": per}, lambda now: value * factor ** index(now)
    )


@takes_numbers
def linear_in_round(value: float, beta: float, per: str = "step") -> Schedule:
    """`value * max(1 - step (1 - beta), 0)`: FedDecay's linear decay. beta=1 is FedAvg, beta=0 FedSGD."""
    require(is_number(value), "value", "a finite number", value)
    require(is_number(beta) and 0 <= beta <= 1, "beta", "a number in [0, 1]", beta)
    index = _index(per)
    settings = {"value": value, "beta": beta, "per": per}
    return Schedule("linear_in_round", settings, lambda now: value * max(1 - index(now) * (1 - beta), 0.0))


@takes_numbers
def inverse_time(c: float, d: float) -> Schedule:
    """`c / (round + d)`: the schedule of the convergence theorems (FedDecay's alpha_n)."""
    require(is_number(c), "c", "a finite number", c)
    require(is_number(d) and d > 0, "d", "a number > 0", d)
    return Schedule("inverse_time", {"c": c, "d": d}, lambda now: c / (now.round + d))


@takes_numbers
def cosine(value: float, rounds: int, final: float = 0.0) -> Schedule:
    """Half a cosine from `value` in round 0 to `final` in round `rounds`, flat afterwards."""
    require(is_number(value) and is_number(final), "value", "a finite number", value)
    require(is_count(rounds), "rounds", "an int >= 1", rounds)

    def rule(now: Now) -> float:
        angle = math.pi * min(now.round / rounds, 1.0)
        return final + (value - final) * 0.5 * (1 + math.cos(angle))

    return Schedule("cosine", {"value": value, "rounds": rounds, "final": final}, rule)


@takes_numbers
def piecewise(value: float, steps: Mapping[int | str, float]) -> Schedule:
    """`value`, multiplied by each factor from its round on: `piecewise(0.1, {50: 0.1, 75: 0.1})`."""
    require(is_number(value), "value", "a finite number", value)
    form = isinstance(steps, Mapping) and all(str(r).isdecimal() and is_number(f) for r, f in steps.items())
    require(form, "steps", "factors by round, such as {50: 0.1}", steps)
    factors = {int(r): f for r, f in steps.items()}

    def rule(now: Now) -> float:
        return value * math.prod(f for r, f in sorted(factors.items()) if r <= now.round)

    return Schedule("piecewise", {"value": value, "steps": {str(r): f for r, f in factors.items()}}, rule)


@takes_numbers
def sequence(values: Iterable[float], over: str = "step") -> Schedule:
    """The given numbers one after the other, over `"step"`, `"epoch"` or `"round"`; the last one stays."""
    require(isinstance(values, Iterable) and not isinstance(values, str), "values", "a list of numbers", values)
    numbers = [float(v) if is_number(v) else v for v in values]
    require(bool(numbers) and all(map(is_number, numbers)), "values", "one or more finite numbers", numbers)
    index = (lambda now: now.round) if over == "round" else _index(over)
    return Schedule(
        "sequence", {"values": numbers, "over": over}, lambda now: numbers[min(index(now), len(numbers) - 1)]
    )


@takes_numbers
def by_loss(value: float, power: float = 1 / 3) -> Schedule:
    """`value * min(1, loss / first loss)**power`: shrinks as the smoothed training loss falls."""
    require(is_number(value), "value", "a finite number", value)
    require(is_number(power) and power >= 0, "power", "a number >= 0", power)
    return Schedule("by_loss", {"value": value, "power": power}, lambda now: value * min(1.0, now.loss_ratio) ** power)


@takes_numbers
def on_plateau(value: float, factor: float = 0.1) -> Schedule:
    """`value`, times `factor` for every time the smoothed training loss stopped falling."""
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    return Schedule("on_plateau", {"value": value, "factor": factor}, lambda now: value * factor**now.plateaus)


def decaying_k(k0: int, rate: float) -> Schedule:
    """K_t = ceil(K_0 d^t): fewer local steps each round (decaying-K paper, section 3)."""
    require(is_count(k0), "k0", "an int >= 1", k0)
    require(is_number(rate) and 0 < rate <= 1, "rate", "a number in (0, 1]", rate)
    return per_round(k0, rate)


def decaying_lr(value: float, rate: float) -> Schedule:
    """gamma_t = gamma_0 d^t or eta_t = eta_0 d^t: the decaying client or server learning rate."""
    require(is_number(rate) and 0 < rate <= 1, "rate", "a number in (0, 1]", rate)
    return per_round(value, rate)


def inverse_participation() -> Schedule:
    """I / r: all clients over the expected cohort, PFLEGO's factor that keeps the gradient unbiased."""
    return Schedule("inverse_participation", {}, lambda now: now.clients / now.cohort)


def data_share() -> Schedule:
    """alpha_i = n_i / sum_j n_j: this client's share of all training samples."""
    return Schedule("data_share", {}, lambda now: now.samples / now.total_samples)


def product(*of: Schedule) -> Schedule:
    """The product of schedules; written `a * b`."""
    flat = [f for s in of for f in (s.settings["of"] if s.name == "product" else [s])]
    return Schedule("product", {"of": flat}, lambda now: math.prod(s.rule(now) for s in flat))


def as_schedule(value: float | Schedule | Callable[[Now], float]) -> Schedule:
    """A schedule from a number, a schedule or any function of `Now`."""
    if isinstance(value, Schedule):
        return value
    if callable(value):
        return Schedule(getattr(value, "__name__", "custom"), {}, value)
    return constant(value)


def checked_rate(value: Rate | Callable[[Now], float], name: str, positive: bool = False) -> Schedule:
    """A rate as a schedule; a plain number must be >= 0, or > 0 where `positive`."""
    if not isinstance(value, Schedule) and not callable(value):
        rule = "> 0" if positive else ">= 0"
        holds = is_number(value) and (value > 0 if positive else value >= 0)
        require(holds, name, f"a number {rule} or a schedule", value)
    return as_schedule(value)


def whole_number(value: float) -> int:
    """The ceiling, where 10.000000001 (a rounding error) still counts as 10."""
    return math.ceil(value - 1e-9)


def _index(per: str) -> Callable[[Now], int]:
    require(per in ("step", "epoch"), "per", "'step' or 'epoch'", per)
    return (lambda now: now.step) if per == "step" else (lambda now: now.epoch)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "per_round": per_round,
    "per_step": per_step,
    "linear_in_round": linear_in_round,
    "inverse_time": inverse_time,
    "cosine": cosine,
    "piecewise": piecewise,
    "sequence": sequence,
    "by_loss": by_loss,
    "on_plateau": on_plateau,
    "inverse_participation": inverse_participation,
    "data_share": data_share,
}


def to_config(schedule: Schedule) -> dict[str, Any] | float:
    """What stands for the schedule in a TOML file; a constant is its number."""
    if schedule.name == "constant":
        return float(schedule.settings["value"])
    if schedule.name == "product":
        return {"schedule": "product", "of": [to_config(s) for s in schedule.settings["of"]]}
    if schedule.name not in SCHEDULES:
        raise ConfigError(f"schedule {schedule.name!r} was made from a function and has no TOML form.")
    return {"schedule": schedule.name, **schedule.settings}


def from_config(value: float | Mapping[str, Any]) -> Schedule:
    """The schedule a TOML value stands for: the inverse of `to_config`."""
    if not isinstance(value, Mapping):
        return constant(value)
    settings = dict(value)
    name = settings.pop("schedule", None)
    if name == "product":
        return product(*(from_config(s) for s in settings.get("of", [])))
    if name not in SCHEDULES:
        raise unknown("schedule", name, [*SCHEDULES, "product"])
    try:
        return SCHEDULES[name](**settings)
    except TypeError as error:
        raise ConfigError(f"schedule {name!r} does not take these settings: {error}.") from None


def at_step(now: Now, step: int, steps: int, batches_per_epoch: int) -> Now:
    """`now`, moved to one step of a phase of `steps` steps."""
    epoch, position = divmod(step, batches_per_epoch)
    ends = position == batches_per_epoch - 1 or step == steps - 1
    return replace(now, step=step, steps=steps, epoch=epoch, ends_epoch=ends)
