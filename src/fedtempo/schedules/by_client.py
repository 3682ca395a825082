"""Schedules that know the client and its device, and schedules over the clock instead of rounds."""

from __future__ import annotations

import math

from fedtempo.errors import is_count, is_number, require, takes_numbers
from fedtempo.schedules.position import Now
from fedtempo.schedules.schedule import Schedule, registered


def sees_clients(schedule: Schedule) -> bool:
    """Whether the schedule may give clients of one size different numbers. A function of the user's may always.

    >>> sees_clients(finish_by(10.0)), sees_clients(over_time(1.0, 0.5, 60.0))
    (True, False)
    """
    return any(map(_may_tell_apart, schedule.parts()))


def _may_tell_apart(schedule: Schedule) -> bool:
    module = str(getattr(schedule.rule, "__module__", None))
    return not module.startswith("fedtempo.schedules.") or (module == __name__ and schedule.name != "over_time")


@registered()
@takes_numbers
def finish_by(seconds: float, most: int = 1_000_000) -> Schedule:
    """As many steps as the client's device takes in so many seconds, transfers included: all finish together.

    At least one step and at most `most`, which is also what a client without a device takes.

    >>> finish_by(10.0, most=100).at(Now(seconds_per_step=2.0, transfer=1.0))
    4.0
    """
    require(is_number(seconds) and seconds > 0, "seconds", "a number > 0", seconds)
    require(is_count(most), "most", "an int >= 1", most)

    def rule(now: Now) -> float:
        if not now.seconds_per_step:
            return float(most)
        fits = math.floor((seconds - now.transfer) / now.seconds_per_step + 1e-9)
        return float(min(max(fits, 1), most))

    return Schedule("finish_by", {"seconds": seconds, "most": most}, rule)


@registered()
@takes_numbers
def over_time(value: float, factor: float, seconds: float) -> Schedule:
    """`value * factor**(time / seconds)`: falls with the clock instead of with rounds. As K it is decaying K in time.

    >>> over_time(8.0, 0.5, seconds=3600).at(Now(time=7200.0))
    2.0
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(factor) and factor >= 0, "factor", "a number >= 0", factor)
    require(is_number(seconds) and seconds > 0, "seconds", "a number > 0", seconds)
    settings = {"value": value, "factor": factor, "seconds": seconds}
    return Schedule("over_time", settings, lambda now: value * factor ** (now.time / seconds))


@registered()
@takes_numbers
def by_own_loss(value: float, power: float = 1.0, least: float = 1e-6) -> Schedule:
    """`value * max(last loss, least)**power` of the client itself; `value` before its first round.

    >>> by_own_loss(10.0, power=0.5).at(Now(last_loss=0.25)), by_own_loss(10.0).at(Now())
    (5.0, 10.0)
    """
    require(is_number(value), "value", "a finite number", value)
    require(is_number(power), "power", "a finite number", power)
    require(is_number(least) and least > 0, "least", "a number > 0", least)

    def rule(now: Now) -> float:
        return value * max(now.last_loss, least) ** power if now.last_loss else value

    return Schedule("by_own_loss", {"value": value, "power": power, "least": least}, rule)
