"""From names and settings in a file to algorithms, models, devices, losses and metrics: called after the checks."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from torch import nn

from fedtempo.algorithms import IN_FILES, Algorithm, with_server
from fedtempo.algorithms.named import TRAFFIC
from fedtempo.client.compression import COMPRESSORS, Compressor
from fedtempo.client.optimizers import OPTIMIZERS, Optimizer
from fedtempo.client.transforms import Transform, momentum, scale_by_adagrad, scale_by_adam, scale_by_yogi
from fedtempo.config.own_code import find
from fedtempo.config.schema import AvailabilitySection, DevicesSection, FileSection
from fedtempo.config.settings import WORDS, at, function_or_made, made_as, make
from fedtempo.data.augment import AUGMENTATIONS, Augment, as_augment, chain
from fedtempo.devices import DEVICES, Devices, as_devices, classes
from fedtempo.errors import ConfigError, fits, require, unknown, wording, wrong
from fedtempo.metrics import METRICS, Metric
from fedtempo.models import MODELS
from fedtempo.params import Selector, matching, submodule
from fedtempo.schedules import SCHEDULES, Schedule, as_schedule, from_config, product
from fedtempo.tasks import TASKS, PerSample, Task, classification
from fedtempo.tasks.choice import OWN

SELECTORS: dict[str, Callable[[str], Selector]] = {"submodule": submodule, "matching": matching}
SERVER_OPTIMIZERS: dict[str, Callable[..., Optimizer | Transform]] = {
    **OPTIMIZERS,
    "momentum": momentum,
    "scale_by_adam": scale_by_adam,
    "scale_by_yogi": scale_by_yogi,
    "scale_by_adagrad": scale_by_adagrad,
}
"""What `with_server` takes: the clients' optimizers, and the transforms of FedAvgM, FedAdam, FedYogi and FedAdagrad."""
COMBINED: dict[str, Callable[[Selector, Selector], Selector]] = {"any": operator.or_, "all": operator.and_}


def make_algorithm(section: Mapping[str, object], field: str = "algorithm") -> Algorithm:
    """The algorithm of a file. `around` is the backbone of a wrapper; tables stand for schedules and selectors."""
    name = section.get("name")
    build = find(field, name, IN_FILES)
    optimizers = SERVER_OPTIMIZERS if build is with_server else OPTIMIZERS
    settings = {
        key: _setting(f"{field}.{key}", key, value, optimizers) for key, value in section.items() if key != "name"
    }
    settings |= _functions(field, build, settings)
    wraps = callable(build) and "algorithm" in inspect.signature(build).parameters
    if wraps and "algorithm" in settings:
        raise unknown(f"{field} {name!r}: setting", "algorithm", ["around"])
    if wraps:
        backbone = settings.pop("around", None)
        require(isinstance(backbone, Mapping), f"{field}.around", "the table of the algorithm to wrap", backbone)
        settings["algorithm"] = make_algorithm(backbone, f"{field}.around")
    elif "around" in settings:
        raise ConfigError(f"{field}.around must be left out: {name!r} is no wrapper. Got {settings['around']!r}.")
    return made_as(field, name, IN_FILES, settings, Algorithm, "an Algorithm")


def _functions(field: str, build: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The user's functions among the settings, where an algorithm takes functions: each by its name in the file."""
    kinds = getattr(build, "__annotations__", {})
    takes = [
        key for key in settings if any(get_origin(k) is Callable for k in (kinds.get(key), *get_args(kinds.get(key))))
    ]
    return {key: find(f"{field}.{key}", settings[key], {}, "") for key in takes if isinstance(settings[key], str)}


def _setting(field: str, key: str, value: Any, optimizers: Mapping[str, Callable[..., Optimizer | Transform]]) -> Any:
    if key in TRAFFIC:
        return make_compressor(field, value)
    return make_optimizer(field, value, optimizers) if key == "optimizer" else make_value(field, value)


def make_compressor(field: str, value: object) -> Compressor:
    """The compressor of a name or of a table such as `{ name = "top_k", fraction = 0.01 }`; a list is a chain."""
    if isinstance(value, list):
        return make_compressor(field, {"name": "chain", "of": value})
    require(isinstance(value, (str, Mapping)), field, WORDS[Compressor], value)
    section = dict(value) if isinstance(value, Mapping) else {"name": value}
    settings = {key: entry for key, entry in section.items() if key != "name"}
    name, of = section.get("name"), settings.get("of")
    if name == "chain" and isinstance(of, list):
        settings["of"] = [make_compressor(f"{field}.of[{place}]", each) for place, each in enumerate(of)]
    return made_as(field, name, COMPRESSORS, settings, Compressor, "a Compressor", kind="compressor")


def make_optimizer(
    field: str, value: object, known: Mapping[str, Callable[..., Optimizer | Transform]] = OPTIMIZERS
) -> Optimizer | Transform:
    """The optimizer of a name or of a table such as `{ name = "adamw", weight_decay = 0.01, state = "keep" }`."""
    section = {"name": value} if isinstance(value, str) else value
    if not isinstance(section, Mapping):
        raise wrong(field, WORDS[Optimizer], value)
    settings = {key: make_value(f"{field}.{key}", entry) for key, entry in section.items() if key != "name"}
    name = section.get("name")
    if known is OPTIMIZERS:
        return made_as(field, name, known, settings, Optimizer, "an Optimizer", kind="optimizer")
    either: tuple[type[Any], ...] = (Optimizer, Transform)
    made: Optimizer | Transform = made_as(
        field, name, known, settings, either, "an Optimizer or a Transform", kind="optimizer"
    )
    return made


def make_value(field: str, value: object) -> object:
    """A value of a file: a table with `schedule` is a schedule, one with `submodule`, `matching`, ... a selector."""
    if not isinstance(value, Mapping):
        return value
    if "schedule" in value:
        return make_schedule(field, value)
    if len(value) == 1 and set(value) <= {*SELECTORS, *COMBINED, "not"}:
        return make_selector(field, value)
    return value


def make_selector(field: str, value: object) -> Selector:
    """The selector of a table: `{ matching = "*.bias" }`, `{ not = {...} }`, `{ any = [{...}, {...}] }`."""
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) <= {*SELECTORS, *COMBINED, "not"}:
        raise wrong(field, WORDS[Selector], value)
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


def make_schedule(field: str, value: float | Mapping[str, object]) -> Schedule:
    """The schedule of a table such as `{ schedule = "per_round", value = 0.1, factor = 0.99 }`."""
    if not isinstance(value, Mapping):
        require(fits(value, float), field, wording(float | Schedule, WORDS), value)
        return from_config(value)
    settings = {key: entry for key, entry in value.items() if key != "schedule"}
    if value.get("schedule") != "product":
        # A schedule may be made from another one: QSR's steps follow a learning rate.
        made = {key: make_value(f"{field}.{key}", entry) for key, entry in settings.items()}
        return _schedule(field, value.get("schedule"), made)
    for key in settings:
        if key != "of":
            raise unknown(f"{field} 'product': setting", key, ["of"])
    factors = settings.get("of")
    if not isinstance(factors, list) or not factors:
        raise wrong(f"{field}.of", "a list of schedules", factors)
    return product(*(make_schedule(f"{field}.of", factor) for factor in factors))


def _schedule(field: str, name: Any, settings: Mapping[str, Any]) -> Schedule:
    """A built-in, or a user's: a function of `Now` with settings bound, a schedule, or a function that makes one."""
    if isinstance(name, str) and name in SCHEDULES:
        schedule: Schedule = make(field, name, SCHEDULES, settings, key="schedule")
        return schedule
    found = find(field, name, SCHEDULES, "schedule", "schedule")
    made = found if isinstance(found, Schedule) else function_or_made(field, name, SCHEDULES, settings, "schedule", 1)
    require(isinstance(made, Schedule) or callable(made), f"{field} {name!r}", "a schedule or a function of Now", made)
    if isinstance(made, Schedule):
        return made
    # The settings are part of what it prints as, which tells two runs apart.
    return Schedule(name, dict(settings), as_schedule(made).rule)


def make_devices(section: DevicesSection | None) -> Devices | None:
    """The devices of a file; `of` of `classes` is a list of tables with a share each."""
    if section is None:
        return None
    found = _kind_of_devices("devices", section.name, section.settings)
    if section.availability is None:
        return found
    with at("devices", section.name, AvailabilitySection.model_fields):
        return found.available(**section.availability.model_dump())


def _kind_of_devices(field: str, name: Any, settings: dict[str, Any]) -> Devices:
    if name != "classes":
        made = function_or_made(field, name, DEVICES, settings, "devices", 2)
        with at(field, name, ()):
            devices = as_devices(made)
        assert devices is not None
        return devices
    tables = settings.pop("of", None)
    form = isinstance(tables, list) and bool(tables) and all(isinstance(table, Mapping) for table in tables)
    require(form, f"{field}.of", "a list of tables with a share and a name", tables)
    pairs = []
    for place, table in enumerate(tables or []):
        own = {key: value for key, value in table.items() if key not in ("share", "name")}
        pairs.append((table.get("share"), _kind_of_devices(f"{field}.of[{place}]", table.get("name"), own)))
    with at(field, name, ("of",)):
        return classes(pairs, **settings)


def make_model(section: FileSection) -> nn.Module:
    """The model of a file."""
    model = made_as("model", section.name, MODELS, section.settings, nn.Module, "an nn.Module")
    return copy.deepcopy(model) if model is find("model", section.name, MODELS) else model


def make_loss(given: str | FileSection | None) -> str | Task | PerSample | None:
    """The task by its name, made with settings such as `class_weights`, or a loss of the user's own."""
    if given is None or (isinstance(given, str) and given in (*TASKS, OWN)):
        return given
    name, settings = (given, {}) if isinstance(given, str) else (given.name, given.settings)
    known = {"classification": _classification} if settings or not isinstance(given, str) else {}
    if not known:
        find("loss", name, {**TASKS, OWN: None}, "")  # so that a misspelt name is told all of them
    task: Task | PerSample = function_or_made("loss", name, known, settings, "loss", 2)
    require(isinstance(task, Task) or callable(task), f"loss {name!r}", "a Task or a function of two", task)
    return task


def _classification(class_weights: list[float] | None = None, label_smoothing: float = 0.0) -> Task:
    """With the types that a file has."""
    return classification(class_weights, label_smoothing)


def make_metric(field: str, given: str | FileSection) -> str | Metric:
    """A metric by its name, or the user's own."""
    if isinstance(given, str) and given in METRICS:
        return given
    name, settings = (given, {}) if isinstance(given, str) else (given.name, given.settings)
    made: Metric = function_or_made(field, name, METRICS, settings, "metric", 2)
    if not isinstance(made, Metric):
        rule = "a Metric, which says what is better: Metric(function, higher_is_better=...)"
        raise ConfigError(f"{field} {name!r} must be {rule}. Got a {type(made).__name__}.")
    return made


def make_augment(given: str | FileSection | list[str | FileSection] | None) -> Augment | None:
    """The augmentation of a name or a table; a list is one after the other."""
    if given is None:
        return None
    if isinstance(given, list):
        require(bool(given), "augment", "one or more augmentations", given)
        parts = [_augment(f"augment[{place}]", each) for place, each in enumerate(given)]
        return parts[0] if len(parts) == 1 else chain(*parts)
    return _augment("augment", given)


def _augment(field: str, given: str | FileSection) -> Augment:
    name, settings = (given, {}) if isinstance(given, str) else (given.name, given.settings)
    made = as_augment(function_or_made(field, name, AUGMENTATIONS, settings, "augment", 2))
    assert made is not None  # only None becomes None
    return made
