"""A reproduction with other settings than its scale's own: fewer rounds, another network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedtempo.errors import ConfigError, unknown
from fedtempo.papers.framework.definitions import PaperRun, Scale, Training
from fedtempo.papers.framework.reproduction import Reproduction

ROUNDS = "rounds"


def with_settings(reproduction: Reproduction, scale: str, changes: Mapping[str, object]) -> Reproduction:
    """The reproduction whose scale has these settings; `model.hidden` is a setting of the network.

    A trial then has at most as many rounds as a judged run.
    """
    if scale not in reproduction.scales:
        raise unknown("scale", scale, reproduction.scales)
    sized = reproduction.scales[scale]
    settings = dict(sized.settings)
    for name, value in changes.items():
        first, *inside = name.split(".")
        if first not in settings:
            raise unknown("setting", first, settings)
        settings[first] = _changed(name, inside, settings[first], value)
    tuning = sized.tuning
    if tuning is not None and ROUNDS in tuning.settings and ROUNDS in settings:
        shorter = {**tuning.settings, ROUNDS: min(tuning.settings[ROUNDS], settings[ROUNDS])}
        tuning = replace(tuning, settings=shorter)
    scales = {**reproduction.scales, scale: replace(sized, settings=settings, tuning=tuning)}
    return replace(reproduction, scales=scales)


def on_device(reproduction: Reproduction, device: str) -> Reproduction:
    """The reproduction whose models train on this device. Its runs are kept as others than the CPU's."""

    def runs(scale: Scale, seed: int) -> list[PaperRun]:
        planned = reproduction.runs(scale, seed)
        return [
            replace(run, settings={**run.settings, "device": device}) if isinstance(run, Training) else run
            for run in planned
        ]

    return replace(reproduction, runs=runs)


def _changed(name: str, inside: list[str], old: object, value: object) -> object:
    """The value in the form of the old one; a dotted name goes into a table, or into that of a network."""
    if not inside:
        return _like(name, old, value)
    if isinstance(old, tuple) and len(old) == 2 and isinstance(old[1], Mapping):  # a network: its name and settings
        return (old[0], _changed(name, inside, old[1], value))
    if not isinstance(old, Mapping):
        raise ConfigError(f"{name} must be a setting. {name.split('.', maxsplit=1)[0]} has no settings of its own.")
    return {**old, inside[0]: _changed(name, inside[1:], old.get(inside[0]), value)}


def _like(name: str, old: object, value: object) -> object:
    if isinstance(old, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # A share of the clients and a number of them are both a cohort.
    numbers = isinstance(old, int | float) and isinstance(value, int | float)
    alike = type(old) is type(value) or (numbers and isinstance(old, bool) == isinstance(value, bool))
    if old is not None and not alike:
        raise ConfigError(f"{name} must be {_kind(old)}, as in {old!r}. Got {value!r}.")
    return value


def _kind(value: object) -> str:
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a string",
        tuple: "a list",
        list: "a list",
    }
    return kinds.get(type(value), "a table")
