"""Schedules in experiment files: a number, or a table that names the schedule and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtempo.errors import ConfigError, unknown
from fedtempo.schedules.schedule import SCHEDULES, Schedule, constant, product


def to_config(schedule: Schedule) -> dict[str, object] | float:
    """The value that stands for the schedule in a TOML file; a constant is its number.

    >>> from fedtempo.schedules import per_round
    >>> to_config(per_round(0.1, 0.9))
    {'schedule': 'per_round', 'value': 0.1, 'factor': 0.9}
    """
    if schedule.name == "constant":
        return float(schedule.settings["value"])
    if schedule.name == "product":
        return {"schedule": "product", "of": [to_config(s) for s in schedule.settings["of"]]}
    if schedule.name not in SCHEDULES:
        raise ConfigError(f"schedule {schedule.name!r} was made from a function and has no TOML form.")
    settings = {key: to_config(v) if isinstance(v, Schedule) else v for key, v in schedule.settings.items()}
    return {"schedule": schedule.name, **settings}


def from_config(value: float | Mapping[str, Any]) -> Schedule:
    """The schedule that a TOML value stands for: the inverse of `to_config`.

    >>> from_config({"schedule": "per_round", "value": 0.1, "factor": 0.9})
    per_round(value=0.1, factor=0.9)
    """
    if not isinstance(value, Mapping):
        return constant(value)
    settings = dict(value)
    name = settings.pop("schedule", None)
    if name == "product":
        return product(*(from_config(s) for s in settings.get("of", [])))
    if name not in SCHEDULES:
        raise unknown("schedule", name, [*SCHEDULES, "product"])
    settings = {k: from_config(v) if isinstance(v, Mapping) and "schedule" in v else v for k, v in settings.items()}
    try:
        return SCHEDULES[name](**settings)
    except TypeError as error:
        raise ConfigError(f"schedule {name!r} does not take these settings: {error}.") from None
