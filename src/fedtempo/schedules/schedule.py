"""Schedules: every number of an algorithm may change over rounds and over the steps inside a round.

A schedule is a function of `Now`. Schedules multiply, print as the call that made them, and go to and from TOML.

>>> lr = per_round(0.1, 0.5) * per_step(1.0, 0.6)
>>> lr
per_round(value=0.1, factor=0.5) * per_step(value=1.0, factor=0.6, per='step')
>>> round(lr.at(Now(round=1, step=2)), 6)
0.018
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from fedtempo.errors import ConfigError, is_count, is_number, require, takes_numbers
from fedtempo.params import Scalar
from fedtempo.schedules.position import Now, Position
from fedtempo.support.display import html_of

P = ParamSpec("P")


@dataclass(frozen=True)
class Schedule:
    """A named rule from `Now` to a number."""

    name: str
    settings: Mapping[str, Any]
    rule: Callable[[Now], float] = field(compare=False)
    __array_ufunc__ = None  # a numpy number times a schedule must come to `__rmul__`, not become an array

    def __call__(self, now: Position) -> Scalar:
        """The value at a position: one number, or one per client where clients stand at different positions."""
        return self.at(now) if isinstance(now, Now) else now.value(self.at)

    def at(self, now: Now) -> float:
        """The number at one position; NaN and infinity are errors."""
        try:
            found = self.rule(now)
            if isinstance(found, str):  # `float` would read the number in a text, and settings refuse such texts
                raise TypeError(f"a text, {found!r}")
            value = float(found)
        except OverflowError:  # Python raises where a power of floats is infinite
            value = math.inf
        if not math.isfinite(value):
            raise ConfigError(f"schedule {self!r} must be finite. Got {value} at round {now.round}, step {now.step}.")
        return value

    @property
    def is_constant(self) -> bool:
        """Whether it is the same number everywhere, by `constant`."""
        return self.name == "constant" and "value" in self.settings

    def parts(self) -> Iterator[Schedule]:
        """This schedule and all that it is made from."""
        yield self
        of = self.settings.get("of", ())
        for each in (*self.settings.values(), *(of if isinstance(of, (list, tuple)) else ())):
            if isinstance(each, Schedule):
                yield from each.parts()

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


SCHEDULES: dict[str, Callable[..., Schedule]] = {}
"""What an experiment file may name as a schedule; `registered` adds to it."""
FROM_ROUNDS = {"product"}
"""Those whose number follows from the round alone, if the schedules that they are made from do."""


def registered(from_round: bool = False) -> Callable[[Callable[P, Schedule]], Callable[P, Schedule]]:
    """Make a function one of our schedules: a file may name it, and a user's function may not go by its name.

    `from_round` says that its number is the same for every client and every step of a round. Sums over earlier rounds
    are then kept; for a schedule without it they are added up anew.
    """

    def register(function: Callable[P, Schedule]) -> Callable[P, Schedule]:
        name = getattr(function, "__name__", "")
        SCHEDULES[name] = function
        if from_round:
            FROM_ROUNDS.add(name)
        return function

    return register


@registered(from_round=True)
@takes_numbers
def constant(value: float) -> Schedule:
    """The same number everywhere.

    >>> constant(0.1).at(Now(round=5))
    0.1
    """
    require(is_number(value), "value", "a finite number", value)
    return Schedule("constant", {"value": value}, lambda now: value)


@registered(from_round=True)
@takes_numbers
def per_round(value: float, factor: float) -> Schedule:
    """`value * factor**round`: FedNAR's and decaying-gamma's annealing.

    >>> per_round(0.1, 0.5).at(Now(round=2))
    0.025
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    return Schedule("per_round", {"value": value, "factor": factor}, lambda now: value * factor**now.round)


@registered()
@takes_numbers
def per_step(value: float, factor: float, per: str = "step") -> Schedule:
    """`value * factor**step` with 0**0 = 1, from the start in every round: FedDecay's beta (eq. 4).

    `per="epoch"` counts local epochs instead of steps, as the released FedDecay code does.

    >>> [per_step(0.4, 0.5).at(Now(round=7, step=step)) for step in range(3)]
    [0.4, 0.2, 0.1]
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    index = _index(per)
    return Schedule(
        "per_step", {"value": value, "factor": factor, "per": per}, lambda now: value * factor ** index(now)
    )


@registered()
@takes_numbers
def linear_in_round(value: float, beta: float, per: str = "step") -> Schedule:
    """`value * max(1 - step (1 - beta), 0)`: FedDecay's linear decay. beta=1 is FedAvg, beta=0 FedSGD.

    >>> [linear_in_round(1.0, 0.5).at(Now(step=step)) for step in range(4)]
    [1.0, 0.5, 0.0, 0.0]
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(beta) and 0 <= beta <= 1, "beta", "a number in [0, 1]", beta)
    index = _index(per)
    settings = {"value": value, "beta": beta, "per": per}
    return Schedule("linear_in_round", settings, lambda now: value * max(1 - index(now) * (1 - beta), 0.0))


@registered(from_round=True)
@takes_numbers
def inverse_time(c: float, d: float) -> Schedule:
    """`c / (round + d)`: the schedule of the convergence theorems (FedDecay's alpha_n).

    >>> [inverse_time(1.0, 2.0).at(Now(round=n)) for n in (0, 2)]
    [0.5, 0.25]
    """
    require(is_number(c), "c", "a finite number", c)
    require(is_number(d) and d > 0, "d", "a number > 0", d)
    return Schedule("inverse_time", {"c": c, "d": d}, lambda now: c / (now.round + d))


@registered(from_round=True)
@takes_numbers
def cosine(value: float, rounds: int, final: float = 0.0) -> Schedule:
    """Half a cosine from `value` in round 0 to `final` in round `rounds`, constant afterwards.

    >>> [round(cosine(1.0, 10).at(Now(round=n)), 3) for n in (0, 5, 10, 11)]
    [1.0, 0.5, 0.0, 0.0]
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(final), "final", "a finite number", final)
    require(is_count(rounds), "rounds", "an int >= 1", rounds)

    def rule(now: Now) -> float:
        angle = math.pi * min(now.round / rounds, 1.0)
        return final + (value - final) * 0.5 * (1 + math.cos(angle))

    return Schedule("cosine", {"value": value, "rounds": rounds, "final": final}, rule)


@registered(from_round=True)
@takes_numbers
def piecewise(value: float, steps: Mapping[int | str, float]) -> Schedule:
    """`value`, multiplied by each factor from its round on.

    >>> [piecewise(1.0, {50: 0.5, 75: 0.5}).at(Now(round=n)) for n in (49, 50, 75)]
    [1.0, 0.5, 0.25]
    """
    require(is_number(value), "value", "a finite number", value)
    form = isinstance(steps, Mapping) and all(str(r).isdecimal() and is_number(f) for r, f in steps.items())
    require(form, "steps", "factors by round, such as {50: 0.1}", steps)
    factors = {int(r): f for r, f in steps.items()}

    def rule(now: Now) -> float:
        return value * math.prod(f for r, f in sorted(factors.items()) if r <= now.round)

    return Schedule("piecewise", {"value": value, "steps": {str(r): f for r, f in factors.items()}}, rule)


@registered(from_round=True)
@takes_numbers
def sequence(values: Iterable[float], over: str = "step") -> Schedule:
    """The given numbers in order, over `"step"`, `"epoch"` or `"round"`; the last one stays.

    >>> [sequence([3, 2], over="round").at(Now(round=n)) for n in range(3)]
    [3.0, 2.0, 2.0]
    """
    require(isinstance(values, Iterable) and not isinstance(values, str), "values", "a list of numbers", values)
    numbers = [float(v) if is_number(v) else v for v in values]
    require(bool(numbers) and all(map(is_number, numbers)), "values", "one or more finite numbers", numbers)
    require(over in ("step", "epoch", "round"), "over", "'step', 'epoch' or 'round'", over)
    index = (lambda now: now.round) if over == "round" else _index(over)
    return Schedule(
        "sequence", {"values": numbers, "over": over}, lambda now: numbers[min(index(now), len(numbers) - 1)]
    )


@registered()
@takes_numbers
def by_loss(value: float, power: float = 1 / 3) -> Schedule:
    """`value * min(1, loss / first loss)**power`: falls with the smoothed training loss.

    >>> by_loss(0.1, power=1).at(Now(loss_ratio=0.5))
    0.05
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(power) and power >= 0, "power", "a number >= 0", power)
    return Schedule("by_loss", {"value": value, "power": power}, lambda now: value * min(1.0, now.loss_ratio) ** power)


@registered()
@takes_numbers
def on_plateau(value: float, factor: float = 0.1) -> Schedule:
    """`value`, times `factor` for every time that the smoothed training loss stopped falling.

    >>> on_plateau(1.0, 0.5).at(Now(plateaus=2))
    0.25
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    return Schedule("on_plateau", {"value": value, "factor": factor}, lambda now: value * factor**now.plateaus)


@registered()
def decaying_k(k0: int, rate: float) -> Schedule:
    """K_t = ceil(K_0 d^t): fewer local steps each round (decaying-K paper, section 3). `Length` takes the ceiling.

    >>> [whole_number(decaying_k(10, 0.5).at(Now(round=n))) for n in range(4)]
    [10, 5, 3, 2]
    """
    require(is_count(k0), "k0", "an int >= 1", k0)
    require(is_number(rate) and 0 < rate <= 1, "rate", "a number in (0, 1]", rate)
    return per_round(k0, rate)


@registered()
def decaying_lr(value: float, rate: float) -> Schedule:
    """gamma_t = gamma_0 d^t or eta_t = eta_0 d^t: the decaying client or server learning rate.

    >>> decaying_lr(1.0, 0.5).at(Now(round=3))
    0.125
    """
    require(is_number(rate) and 0 < rate <= 1, "rate", "a number in (0, 1]", rate)
    return per_round(value, rate)


@registered()
def inverse_participation() -> Schedule:
    """I / r: all clients over the expected cohort, the factor that keeps PFLEGO's gradient unbiased.

    >>> inverse_participation().at(Now(clients=100, cohort=20))
    5.0
    """
    return Schedule("inverse_participation", {}, lambda now: now.clients / now.cohort)


@registered()
def data_share() -> Schedule:
    """alpha_i = n_i / sum_j n_j: this client's share of all training samples.

    >>> data_share().at(Now(samples=50, total_samples=200))
    0.25
    """
    return Schedule("data_share", {}, lambda now: now.samples / now.total_samples)


def product(*of: Schedule) -> Schedule:
    """The product of schedules; written `a * b`.

    >>> product(constant(2.0), per_round(1.0, 0.5)).at(Now(round=1))
    1.0
    """
    flat = [f for s in of for f in (s.settings["of"] if s.name == "product" else [s])]
    others = [f for f in flat if f.name != "qsr" and not f.is_constant]
    if others and any(f.name == "qsr" for f in flat):
        # Its steps grow as the rate falls. A factor that falls as well would undo what the rule is for.
        raise ConfigError(f"qsr must be the only schedule of the steps. Got it times {others[0]!r}.")
    return Schedule("product", {"of": flat}, lambda now: math.prod(s.rule(now) for s in flat))


def as_schedule(value: float | Schedule | Callable[[Now], float]) -> Schedule:
    """A schedule from a number, a schedule or any function of `Now`.

    >>> as_schedule(lambda now: 0.1 * (now.round + 1)).at(Now(round=1))
    0.2
    """
    if isinstance(value, Schedule):
        return value
    if callable(value):
        name = str(getattr(value, "__name__", "custom"))
        return Schedule(f"own_{name}" if name in {*SCHEDULES, "product"} else name, {}, value)
    return constant(value)


def checked_rate(value: Rate | Callable[[Now], float], name: str, positive: bool = False) -> Schedule:
    """A rate as a schedule; a plain number must be >= 0, or > 0 where `positive`."""
    if not isinstance(value, Schedule) and not callable(value):
        rule = "> 0" if positive else ">= 0"
        holds = is_number(value) and (value > 0 if positive else value >= 0)
        require(holds, name, f"a number {rule} or a schedule", value)
    return as_schedule(value)


def whole_number(value: float) -> int:
    """The ceiling, except that 10.000000001 counts as 10: it is a rounding error of a product.

    >>> whole_number(2.1), whole_number(10.000000001)
    (3, 10)
    """
    return math.ceil(value - 1e-9)


def _index(per: str) -> Callable[[Now], int]:
    require(per in ("step", "epoch"), "per", "'step' or 'epoch'", per)
    return (lambda now: now.step) if per == "step" else (lambda now: now.epoch)
