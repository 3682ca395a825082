"""Schedules that go through stages: a warm-up, warm-up with a plateau and a decay, one schedule after another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from fedtempo.errors import ConfigError, is_count, is_number, require, takes_numbers
from fedtempo.schedules.position import Now
from fedtempo.schedules.schedule import Rate, Schedule, as_schedule, registered

Over = Literal["round", "step"]
"""What a stage is counted in: rounds, or the local steps of the whole run."""
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda p: 1 - p,
    "sqrt": lambda p: 1 - math.sqrt(p),
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,
}
"""What is left of the peak after a share p of the decay."""


@registered(from_round=True)
@takes_numbers
def warmup(value: float, rounds: int, over: Over = "round") -> Schedule:
    """`value * (t + 1) / rounds` in the first rounds, then `value`. As a factor it warms another schedule up.

    `over="step"` counts the local steps of the whole run instead of rounds.

    >>> [warmup(1.0, 4).at(Now(round=t)) for t in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    place = _place(over)
    settings = {"value": value, "rounds": rounds, "over": over}
    return Schedule("warmup", settings, lambda now: value * min(place(now) + 1, rounds) / rounds)


@registered(from_round=True)
@takes_numbers
def wsd(
    peak: float,
    rounds: int,
    warmup: int = 0,
    decay: int = 0,
    final: float = 0.0,
    shape: str = "linear",
    over: Over = "round",
) -> Schedule:
    """Warm-up, stable, decay: `peak (t + 1) / warmup`, then `peak`, then down to `final * peak` in round `rounds`.

    That is the first round after the run, so that no round has a rate of 0. In the decay the rate is
    peak (final + (1 - final) left(p)) with p = min(1, (t + 1 - (rounds + 1 - decay)) / decay) and left(p) = 1 - p
    (`linear`), 1 - sqrt(p) (`sqrt`) or (1 + cos(pi p)) / 2 (`cosine`): torchtitan's rule. `over="step"` counts the
    local steps of the whole run; `rounds`, `warmup` and `decay` are then steps.

    >>> [round(wsd(1.0, 6, warmup=2, decay=4, final=0.2).at(Now(round=t)), 6) for t in range(8)]
    [0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]
    """
    require(is_number(peak), "peak", "a finite number", peak)
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    for name, value in (("warmup", warmup), ("decay", decay)):
        require(is_count(value, 0), name, "an int >= 0", value)
    if warmup + decay > rounds:
        raise ConfigError(f"warmup + decay must be at most rounds ({rounds}). Got {warmup} + {decay}.")
    require(is_number(final) and 0 <= final <= 1, "final", "a share of the peak in [0, 1]", final)
    require(shape in SHAPES, "shape", " or ".join(map(repr, SHAPES)), shape)
    place, left = _place(over), SHAPES[shape]

    def rule(now: Now) -> float:
        t = place(now)
        if t < warmup:
            return peak * (t + 1) / warmup
        first = rounds + 1 - decay
        if not decay or t < first:
            return peak
        share = min(1.0, (t + 1 - first) / decay)
        return peak * (final + (1 - final) * left(share))

    settings = {"peak": peak, "rounds": rounds, "warmup": warmup, "decay": decay, "final": final, "shape": shape}
    return Schedule("wsd", {**settings, "over": over}, rule)


@registered(from_round=True)
@takes_numbers
def then(first: Rate, until: int, after: Rate) -> Schedule:
    """`first` before round `until`, `after` from that round on. Both see the run's rounds.

    >>> from fedtempo.schedules import per_round
    >>> [then(0.1, 2, per_round(1.0, 0.5)).at(Now(round=t)) for t in range(4)]
    [0.1, 0.1, 0.25, 0.125]
    """
    require(is_count(until), "until", "an int >= 1", until)
    one, other = as_schedule(first), as_schedule(after)
    return Schedule(
        "then",
        {"first": one, "until": until, "after": other},
        lambda now: one.rule(now) if now.round < until else other.rule(now),
    )


def counts_steps(schedule: Schedule) -> bool:
    """Whether the number depends on how many local steps the run has taken so far.

    >>> counts_steps(warmup(1.0, 4)), counts_steps(warmup(1.0, 4, over="step") * 2.0)
    (False, True)
    """
    return any(s.name in ("warmup", "wsd") and s.settings.get("over") == "step" for s in schedule.parts())


def _place(over: str) -> Callable[[Now], int]:
    require(over in ("round", "step"), "over", "'round' or 'step'", over)
    return (lambda now: now.round) if over == "round" else (lambda now: now.earlier + now.step)
