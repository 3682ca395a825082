"""Contestants whose settings are still to be tuned: from experiment files, or from functions in Python."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedtempo.algorithms import IN_FILES, Algorithm
from fedtempo.comparison.entrants import Entrant
from fedtempo.config import ExperimentFile, make_data, parse, settings_of
from fedtempo.config.own_code import find
from fedtempo.config.schema import DataSection
from fedtempo.config.settings import not_given
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, require, unknown
from fedtempo.study.ranges import (
    ADAPTIVE,
    ADAPTIVE_RATES,
    RATES,
    RangeKey,
    default_ranges,
    log_range,
    split_ranges,
)
from fedtempo.tuning.space import Dimension, Space

Make = Callable[[Mapping[str, object], int], dict[str, Any]]
"""(tuned values, seed) -> the settings of a run."""
NOT_TUNED = ("rounds", "seed", "data", "evaluation", "trackers", "metric", "metrics", "loss")
"""Fields that say what is compared, how long and by what: the same for everybody."""


@dataclass(frozen=True)
class Tunable:
    """A contestant: its label, what is tuned, and how a run is made of tuned values and a seed."""

    label: str
    dimensions: tuple[Dimension, ...]
    make: Make


@dataclass(frozen=True)
class FromFile:
    """Makes runs of an experiment file; can be sent to other processes."""

    space: Space
    redraw: bool = False
    """Whether every seed draws its own split of the data."""

    def __call__(self, chosen: Mapping[str, object], seed: int) -> dict[str, Any]:
        """The settings of the run."""
        file = self.file(chosen, seed)
        return settings_of(file, _data(file.data.model_dump_json()))

    def file(self, chosen: Mapping[str, object], seed: int) -> ExperimentFile:
        """The experiment file of the run."""
        file = self.space.experiment(chosen) if self.space.dimensions else parse(self.space.values)
        section = file.data.model_copy(update={"seed": file.data.seed + seed}) if self.redraw else file.data
        return file.model_copy(update={"seed": seed, "data": section})


@functools.lru_cache(maxsize=2)
def _data(section: str) -> FederatedData:
    """The data of a file's section. Runs that follow each other mostly share them, and loading takes time."""
    return make_data(DataSection.model_validate(json.loads(section)))


@dataclass(frozen=True)
class FromFunction:
    """Makes runs of a function that returns an algorithm, or of an algorithm."""

    algorithm: Algorithm | Callable[..., Algorithm]
    settings: Mapping[str, Any]

    def __call__(self, chosen: Mapping[str, object], seed: int) -> dict[str, Any]:
        """The settings of the run."""
        data = self.settings.get("data")
        own = data if isinstance(data, FederatedData) or not callable(data) else _of_seed(data, seed)
        return {**self.settings, "algorithm": self.built(chosen), "data": own, "seed": seed}

    def built(self, chosen: Mapping[str, object]) -> Algorithm:
        """The algorithm with these values."""
        made = self.algorithm if isinstance(self.algorithm, Algorithm) else self.algorithm(**chosen)
        require(isinstance(made, Algorithm), "a contestant", "an Algorithm, or a function that returns one", made)
        return made


@functools.lru_cache(maxsize=2)
def _of_seed(data: Callable[[int], FederatedData], seed: int) -> FederatedData:
    return data(seed)


def middle_rates(name: str) -> dict[str, float]:
    """A value for every rate that is tuned by default, so that a file need not name what is tuned anyway."""
    build = find("algorithm", name, IN_FILES, "")
    if not callable(build):
        return {}
    ranges = {rate: dimension.range for rate, dimension in default_ranges(name, build).items()}
    return {rate: float(f"{(ends.low * ends.high) ** 0.5:.2g}") for rate, ends in ranges.items() if ends is not None}


def first_values(ranges: Mapping[str, Dimension]) -> Callable[[str], dict[str, object]]:
    """Values for what a file does not name because it is tuned: an algorithm's rates, and its settings with a range.

    They only make the file complete; every run has the values of its point.
    """
    asked = split_ranges(ranges)

    def of(name: str) -> dict[str, object]:
        build = find("algorithm", name, IN_FILES, "")
        known = inspect.signature(build).parameters if callable(build) else {}
        found: dict[str, object] = dict(middle_rates(name))
        for (whose, _), dimension in asked.items():
            for field in dimension.fields if whose in (None, name) else ():
                setting = field.removeprefix("algorithm.")
                if setting != field and setting in known:
                    found[setting] = dimension.samples[0]
        return found

    return of


def from_entrants(
    entrants: Sequence[Entrant],
    fixed: Mapping[str, Mapping[str, object]],
    ranges: Mapping[str, Dimension],
    redraw: bool = False,
    optional: bool = False,
) -> list[Tunable]:
    """The contestants of experiment files. `fixed` are the settings that a label names itself; they stay as they are.

    A range is for everybody who has its field, or for one algorithm or label: `"pflego/algorithm.head_lr"`.
    """
    asked, used = split_ranges(ranges), set[RangeKey]()
    found = []
    for entrant in entrants:
        values, own = entrant.file.model_dump(exclude_none=True), fixed.get(entrant.label, {})
        dimensions = _defaults(values, own)
        for (whose, field), dimension in _applying(asked, entrant, values):
            used.add((whose, field))
            # What the label fixes is tuned only by a range that is meant for this contestant.
            if whose is None and {f"algorithm.{key}" for key in own} & set(dimension.fields):
                continue
            others = {name: one for name, one in dimensions.items() if not _same_field(name, dimension.fields)}
            dimensions = {**others, field: dimension}
        if not dimensions and not own and not optional:
            rule = f"given for {entrant.label}, which has no parameter called {' or '.join(RATES)}"
            raise ConfigError(
                f"a range must be {rule}. Got none: write --range 'algorithm.NAME={{ log = [0.01, 1] }}'."
            )
        space = Space(values, tuple(dimensions.values()))
        if dimensions:
            space.check()
        found.append(Tunable(entrant.label, space.dimensions, FromFile(space, redraw)))
    _refuse_unused(asked, used)
    return found


def _applying(
    asked: Mapping[RangeKey, Dimension], entrant: Entrant, values: Mapping[str, Any]
) -> Iterator[tuple[RangeKey, Dimension]]:
    """The ranges for this contestant: those under its label or its algorithm's name, and those whose fields it has."""
    for (whose, field), dimension in asked.items():
        if whose not in (None, entrant.label, entrant.file.algorithm.name):
            continue
        _check_may_vary(field, dimension)
        if whose is not None or all(_has(values, one) for one in dimension.fields):
            yield (whose, field), dimension


def from_functions(
    contestants: Mapping[str, Algorithm | Callable[..., Algorithm]],
    tune: Mapping[str, Dimension] | None,
    settings: Mapping[str, Any],
) -> list[Tunable]:
    """Contestants from Python: what a function asks for and has no default is tuned; an algorithm is as it is."""
    asked, used = split_ranges(tune or {}), set[RangeKey]()
    found = []
    for label, given in contestants.items():
        require(
            callable(given) or isinstance(given, Algorithm), label, "an Algorithm or a function that returns one", given
        )
        dimensions = []
        for name in [] if isinstance(given, Algorithm) else _needed(given):
            key = next(((whose, name) for whose in (label, None) if (whose, name) in asked), None)
            if key is None and (tune is None or name not in RATES):
                raise ConfigError(f"tune must have a range for {name!r}, which {label!r} needs. Got none.")
            if key is not None:
                used.add(key)
            dimensions.append(log_range(name, *RATES[name]) if key is None else asked[key])
        made = FromFunction(given, settings)
        for dimension in dimensions:
            first = {one.name: one.samples[0] for one in dimensions}
            for value in dimension.samples:
                made.built({**first, dimension.name: value})
        found.append(Tunable(label, tuple(dimensions), made))
    _refuse_unused(asked, used)
    return found


def _needed(function: Callable[..., Algorithm]) -> list[str]:
    """The names of the parameters without a default."""
    return [one.name for one in not_given(inspect.signature(function).parameters, ())]


def _refuse_unused(asked: Iterable[RangeKey], used: Collection[RangeKey]) -> None:
    for whose, field in asked:
        if (whose, field) not in used:
            name = field if whose is None else f"{whose}/{field}"
            raise ConfigError(f"a range must be for a field that some contestant has. Got {name!r}.")


def _check_may_vary(field: str, dimension: Dimension) -> None:
    for one in dimension.fields:
        if one.split(".")[0] in NOT_TUNED:
            raise ConfigError(f"a range must be of a contestant's own field: {one} is the same for all. Got {field!r}.")


def _defaults(values: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Dimension]:
    """The default ranges of the innermost algorithm, by field. A schedule keeps its form, its first number is tuned."""
    path, section = "algorithm", values["algorithm"]
    while "around" in section:
        path, section = f"{path}.around", section["around"]
    build = find("algorithm", section["name"], IN_FILES, "")
    if not callable(build):
        return {}
    found = {}
    inside = f"{path}.".removeprefix("algorithm.")
    named = {name.removeprefix(inside) for name in fixed if name.startswith(inside)}
    for rate, dimension in default_ranges(section["name"], build, named).items():
        field = _number_in(section.get(rate), f"{path}.{rate}")
        adaptive = rate == "lr" and _optimizer(section) in ADAPTIVE
        found[field] = log_range(field, *ADAPTIVE_RATES) if adaptive else replace(dimension, name=field)
    return found


def _optimizer(section: Mapping[str, Any]) -> Any:
    given = section.get("optimizer")
    return given.get("name") if isinstance(given, Mapping) else given


def _number_in(rate: Any, field: str) -> str:
    """The field of a rate's number: of a schedule its `value`, of a product that of its first factor."""
    if not isinstance(rate, Mapping):
        return field
    if "of" in rate:
        return _number_in(rate["of"][0], f"{field}.of.0")
    if "value" not in rate:
        raise ConfigError(
            f"{field} must have a value to be tuned. Got {dict(rate)}: give a range for one of its fields."
        )
    return f"{field}.value"


def _has(values: Mapping[str, Any], field: str) -> bool:
    """Whether an experiment has a field: it is written there, or the algorithm takes it."""
    here: Any = values
    *parents, last = field.split(".")
    for parent in parents:
        if isinstance(here, list):
            here = here[int(parent)] if parent.isdecimal() and int(parent) < len(here) else None
        else:
            here = here.get(parent) if isinstance(here, Mapping) else None
    if isinstance(here, list):
        return last.isdecimal() and int(last) < len(here)
    if not isinstance(here, Mapping):
        return False
    if last in here or (here is values and last in ExperimentFile.model_fields):
        return True
    build = find("algorithm", here["name"], IN_FILES, "") if "name" in here and parents[0] == "algorithm" else None
    return callable(build) and last in inspect.signature(build).parameters


def _same_field(name: str, fields: Sequence[str]) -> bool:
    """Whether a range of one of these fields takes the place of this one."""
    return any(name == field or name.startswith(f"{field}.") for field in fields)


def known_label(label: str, labels: Sequence[str], what: str) -> str:
    """The label, which must be one of these."""
    if label not in labels:
        raise unknown(what, label, labels)
    return label
