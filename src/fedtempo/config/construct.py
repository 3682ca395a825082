"""From names and settings in a file to algorithms, models, splits and data: called only after they are checked."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

from fedtempo.algorithms import ALGORITHMS, Algorithm
from fedtempo.config.schema import DataSection
from fedtempo.data import DATASETS, SPLITS, FederatedData, Split, load
from fedtempo.errors import ConfigError, FedTempoError, first_line, fits, require, unknown, wording
from fedtempo.optimizers import OPTIMIZERS, Optimizer
from fedtempo.params import Selector, matching, submodule
from fedtempo.schedules import SCHEDULES, Schedule, from_config, product

Makers = Mapping[str, Callable[..., Any]]

SELECTORS: dict[str, Callable[[str], Selector]] = {"submodule": submodule, "matching": matching}
COMBINED: dict[str, Callable[[Selector, Selector], Selector]] = {"any": operator.or_, "all": operator.and_}
WORDS: dict[Any, str] = {
    Schedule: '{ schedule = "...", ... }',
    Selector: '{ submodule = "..." } or { matching = "..." }',
    Optimizer: '{ name = "adamw", ... }',
    Algorithm: "a table with a name",
    Path: "a path",
}
"""How the values that TOML has no type for are written in a file."""


def make(field: str, name: Any, known: Makers, settings: Mapping[str, Any], key: str = "name") -> Any:
    """Call the function a name stands for; what is wrong is named by its place in the file."""
    check_settings(field, name, known, settings, key)
    with _at(field, name, inspect.signature(known[name]).parameters):
        return known[name](**settings)


def check_settings(field: str, name: Any, known: Makers, settings: Mapping[str, Any], key: str = "name") -> None:
    """The name is known, every setting is one of its parameters and of its type, and none that it needs is missing."""
    if not isinstance(name, str) or name not in known:
        raise unknown(f"{field}.{key}", name, known)
    parameters = inspect.signature(known[name]).parameters
    for setting in settings:
        if setting not in parameters:
            raise unknown(f"{field} {name!r}: setting", setting, parameters)
    _check_types(field, known[name], settings)
    missing = [p.name for p in parameters.values() if p.default is p.empty and p.name not in settings]
    if missing:
        raise ConfigError(f"{field}.{missing[0]} must be given for {name!r}. Got nothing.")


def _check_types(field: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    kinds = get_type_hints(function)
    for setting, value in settings.items():
        kind = kinds.get(setting, Any)
        require(fits(value, kind), f"{field}.{setting}", wording(kind, WORDS), value)


@contextmanager
def _at(field: str, name: str, known: Iterable[str]) -> Iterator[None]:
    """Errors from in here name the setting by its place in the file, whoever raised them."""
    try:
        yield
    except ConfigError as error:
        place = f"{field}." if str(error).split(" ", 1)[0] in known else f"{field} {name!r}: "
        raise ConfigError(f"{place}{error}") from error
    except FedTempoError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RuntimeError) as error:
        raise ConfigError(f"{field} {name!r} cannot be made from these settings: {first_line(error)}.") from error


def make_algorithm(section: Mapping[str, Any], field: str = "algorithm") -> Algorithm:
    """The algorithm of a file. `around` is the backbone of a wrapper; tables stand for schedules and selectors."""
    name = section.get("name")
    settings = {key: _setting(f"{field}.{key}", key, value) for key, value in section.items() if key != "name"}
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise unknown(f"{field}.name", name, ALGORITHMS)
    wraps = "algorithm" in inspect.signature(ALGORITHMS[name]).parameters
    if wraps and "algorithm" in settings:
        raise unknown(f"{field} {name!r}: setting", "algorithm", ["around"])
    if wraps:
        backbone = settings.pop("around", None)
        require(isinstance(backbone, Mapping), f"{field}.around", "the table of the algorithm to wrap", backbone)
        settings["algorithm"] = make_algorithm(backbone, f"{field}.around")
    elif "around" in settings:
        raise ConfigError(f"{field}.around must be left out: {name!r} is no wrapper. Got {settings['around']!r}.")
    algorithm: Algorithm = make(field, name, ALGORITHMS, settings)
    return algorithm


def _setting(field: str, key: str, value: Any) -> Any:
    return make_optimizer(field, value) if key == "optimizer" else make_value(field, value)


def make_optimizer(field: str, value: Any) -> Optimizer:
    """The optimizer of a name or of a table such as `{ name = "adamw", weight_decay = 0.01, state = "keep" }`."""
    section = {"name": value} if isinstance(value, str) else value
    require(isinstance(section, Mapping), field, WORDS[Optimizer], value)
    settings = {key: make_value(f"{field}.{key}", entry) for key, entry in section.items() if key != "name"}
    optimizer: Optimizer = make(field, section.get("name"), OPTIMIZERS, settings)
    return optimizer


def make_value(field: str, value: Any) -> Any:
    """A value of a file: a table with `schedule` is a schedule, one with `submodule`, `matching`, ... a selector."""
    if not isinstance(value, Mapping):
        return value
    if "schedule" in value:
        return make_schedule(field, value)
    if len(value) == 1 and set(value) <= {*SELECTORS, *COMBINED, "not"}:
        return make_selector(field, value)
    return value


def make_selector(field: str, value: Any) -> Selector:
    """The selector of a table: `{ matching = "*.bias" }`, `{ not = {...} }`, `{ any = [{...}, {...}] }`."""
    form = isinstance(value, Mapping) and len(value) == 1 and set(value) <= {*SELECTORS, *COMBINED, "not"}
    require(form, field, WORDS[Selector], value)
    ((kind, content),) = value.items()
    if kind == "not":
        return ~make_selector(f"{field}.not", content)
    if kind in COMBINED:
        parts = content if isinstance(content, list) else []
        require(bool(parts), f"{field}.{kind}", "a list of selectors", content)
        return functools.reduce(COMBINED[kind], (make_selector(f"{field}.{kind}", part) for part in parts))
    patterns = [content] if isinstance(content, str) else content
    holds = fits(patterns, list[str]) and bool(patterns) and all(patterns)
    require(holds, f"{field}.{kind}", "a string or a list of strings", content)
    return functools.reduce(operator.or_, (SELECTORS[kind](pattern) for pattern in patterns))


def make_schedule(field: str, value: Any) -> Schedule:
    """The schedule of a table such as `{ schedule = "per_round", value = 0.1, factor = 0.99 }`."""
    if not isinstance(value, Mapping):
        require(fits(value, float), field, wording(float | Schedule, WORDS), value)
        return from_config(value)
    settings = {key: entry for key, entry in value.items() if key != "schedule"}
    if value.get("schedule") != "product":
        schedule: Schedule = make(field, value.get("schedule"), SCHEDULES, settings, key="schedule")
        return schedule
    for key in settings:
        if key != "of":
            raise unknown(f"{field} 'product': setting", key, ["of"])
    factors = settings.get("of")
    require(isinstance(factors, list) and bool(factors), f"{field}.of", "a list of schedules", factors)
    return product(*(make_schedule(f"{field}.of", factor) for factor in factors or []))


def check_data(section: DataSection) -> None:
    """The data set is known, and so is every setting: ours, those of `load`, and the loader's own."""
    if section.name not in DATASETS:
        raise unknown("data.name", section.name, DATASETS)
    loader = DATASETS[section.name].load
    own = [p for p in inspect.signature(loader).parameters if p != "sources"]
    common = [p.name for p in inspect.signature(load).parameters.values() if p.kind is not p.VAR_KEYWORD]
    for setting, value in section.settings.items():
        if setting not in (*own, *common):
            raise unknown(f"data {section.name!r}: setting", setting, {*own, *common, *DataSection.model_fields})
        _check_types("data", loader if setting in own else load, {setting: value})
    validation, test = section.validation or 0, section.test or 0
    require(validation + test < 1, "data.validation + data.test", "below 1", validation + test)
    make_split(section)


def make_split(section: DataSection) -> Split | None:
    """The split of a file; None for the natural clients."""
    if section.split is None:
        return None
    split: Split = make("data.split", section.split.name, SPLITS, section.split.settings)
    return split


def make_data(section: DataSection) -> FederatedData:
    """Load and split the data set of a file.

    `seed`, `validation` and `test` also go to a loader that takes them. One that makes the parts itself knows where
    they may be cut (between a text's windows, for instance), so the split then keeps its parts.
    """
    own = inspect.signature(DATASETS[section.name].load).parameters
    given = section.model_dump(include={"validation", "test", "seed"} & set(own), exclude_none=True)
    redrawn = {part: getattr(section, part) for part in ("validation", "test") if part not in own}
    with _at("data", section.name, {*own, *DataSection.model_fields}):
        table = load(section.name, **{**section.settings, **given})
        return table.split(
            make_split(section),
            new_clients=section.new_clients,
            **redrawn,
            seed=section.seed,
            min_samples=section.min_samples,
            relabel=section.relabel,
        )
