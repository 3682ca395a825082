"""What a schedule follows besides the round and the step: a plan made before the run cannot know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from fedtempo.errors import ConfigError
from fedtempo.schedules.position import Now
from fedtempo.schedules.schedule import Schedule, constant, product

LOSS, CLOCK, OWN_LOSS = "the training loss", "the clock", "each client's own loss"
_TRIED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "loss_ratio": (LOSS, (2.0, 0.9, 0.5, 0.1, 0.001)),
    "plateaus": (LOSS, (1, 2, 7)),
    "time": (CLOCK, (1.0, 60.0, 3600.0, 86400.0, 1e7)),
    "last_loss": (OWN_LOSS, (1e-3, 0.1, 1.0, 10.0)),
}
"""What only the run can tell, in words, with values to try."""


def follows(value: Callable[[Now], float], places: Iterable[Now]) -> tuple[str, ...]:
    """What the value follows, in words, that only the run can tell; empty where a plan made before the run is exact.

    >>> from fedtempo.schedules import by_loss, per_round
    >>> follows(by_loss(0.1).at, [Now()]), follows(per_round(0.1, 0.5).at, [Now()])
    (('the training loss',), ())
    """
    places = list(places)
    found = dict[str, None]()
    for field, (words, tries) in _TRIED.items():
        if any(_differs(value, place, field, other) for place in places for other in tries):
            found[words] = None
    return tuple(found)


def _differs(value: Callable[[Now], float], place: Now, field: str, other: Any) -> bool:
    plain = value(place)
    try:
        return value(replace(place, **{field: other})) != plain
    except (ConfigError, ArithmeticError):  # no number there, but another one than here
        return True


def at_first_step(schedule: Schedule) -> Schedule:
    """The same rule with each round's value at its first step, under the name of what it then is.

    >>> from fedtempo.schedules import per_round, per_step
    >>> at_first_step(constant(0.1) * per_step(1.0, 0.6))
    constant(value=0.1)
    >>> at_first_step(per_round(0.1, 0.5) * per_step(1.0, 0.6))
    per_round(value=0.1, factor=0.5)
    """

    # One step of one: a rate that makes up for later, smaller steps has none to make up for.
    def rule(now: Now) -> float:
        return schedule.at(replace(now, step=0, steps=1, epoch=0, ends_epoch=False))

    named = _first(schedule)
    return Schedule(named.name, named.settings, rule)


def _first(schedule: Schedule) -> Schedule:
    """What to call a schedule that stays at its first step."""
    settings = schedule.settings
    if schedule.name == "product":
        factors = [_first(each) for each in settings["of"]]
        fixed = [each.settings["value"] for each in factors if each.is_constant]
        others = [each for each in factors if not each.is_constant]
        scale = product(*map(constant, fixed)).at(Now()) if fixed else 1.0
        kept = [*([constant(scale)] if scale != 1.0 or not others else []), *others]
        return kept[0] if len(kept) == 1 else product(*kept)
    if schedule.name in _BY_STEP and settings and settings.get("over") != "round":
        return constant(schedule.at(Now()))
    by_round = schedule.name in _BY_ROUND and settings.get("over") != "step"
    return schedule if by_round else Schedule("at_first_step", {"of": schedule}, schedule.rule)


_BY_STEP = frozenset({"per_step", "linear_in_round", "sequence", "equal_travel"})
_BY_ROUND = frozenset({
    "constant", "per_round", "inverse_time", "cosine", "piecewise", "sequence", "by_loss", "on_plateau",
    "inverse_participation", "data_share", "over_time", "by_own_loss", "warmup", "wsd",
})  # fmt: skip
