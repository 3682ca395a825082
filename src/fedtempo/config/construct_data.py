"""The data of an experiment file: loaded by name or by the user's function, then split into clients."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from fedtempo.config.own_code import find
from fedtempo.config.schema import DataSection
from fedtempo.config.settings import at, check_types, checked, made_as, make
from fedtempo.data import DATASETS, SPLITS, FederatedData, Split, Table, load
from fedtempo.errors import ConfigError, require, unknown


def check_data(section: DataSection) -> None:
    """The data set is known, and so is every setting: ours, those of `load`, and the loader's own."""
    validation, test = section.validation or 0, section.test or 0
    require(validation + test < 1, "data.validation + data.test", "below 1", validation + test)
    make_split(section)
    if section.name not in DATASETS:
        checked("data", section.name, DATASETS, _own_settings(section))
        return
    loader = DATASETS[section.name].load
    own = [p for p in inspect.signature(loader).parameters if p != "sources"]
    common = [p.name for p in inspect.signature(load).parameters.values() if p.kind is not p.VAR_KEYWORD]
    needed = [p for p in own if inspect.signature(loader).parameters[p].default is inspect.Parameter.empty]
    for setting in needed:
        require(setting in section.settings, f"data.{setting}", f"given for {section.name!r}", "nothing")
    for setting, value in section.settings.items():
        if setting not in (*own, *common):
            raise unknown(f"data {section.name!r}: setting", setting, {*own, *common, *DataSection.model_fields})
        check_types("data", get_type_hints(loader if setting in own else load), {setting: value})


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
    if section.name not in DATASETS:
        return _own_data(section)
    own = inspect.signature(DATASETS[section.name].load).parameters
    given = section.model_dump(include={"validation", "test", "seed"} & set(own), exclude_none=True)
    redrawn = {part: getattr(section, part) for part in ("validation", "test") if part not in own}
    with at("data", section.name, {*own, *DataSection.model_fields}):
        return _split(section, load(section.name, **{**section.settings, **given}), redrawn)


def _split(section: DataSection, table: Table, parts: Mapping[str, float | None]) -> FederatedData:
    return table.split(
        make_split(section),
        new_clients=section.new_clients,
        **parts,
        seed=section.seed,
        min_samples=section.min_samples,
        relabel=section.relabel,
    )


def _own_settings(section: DataSection) -> dict[str, Any]:
    """What a user's data function is called with: its settings, and those of ours that are among its parameters."""
    function = find("data", section.name, DATASETS)
    own = inspect.signature(function).parameters if callable(function) else {}
    _refuse_two_meanings(section, own)
    given = section.model_dump(include={"validation", "test", "seed"} & set(own), exclude_none=True)
    return {**section.settings, **given}


def _refuse_two_meanings(section: DataSection, own: Mapping[str, inspect.Parameter]) -> None:
    """A parameter named like a setting of ours would silently get another value than its own, or none at all."""
    empty = inspect.Parameter.empty
    if "seed" in own and "seed" not in section.model_fields_set and own["seed"].default not in (empty, section.seed):
        rule = f"given for {section.name!r}, whose own seed is {own['seed'].default!r}"
        raise ConfigError(f"data.seed must be {rule}: it also says how rows are divided. Got nothing.")
    # A file that a command has written sets every field, most of them to what they are without it.
    untouched = DataSection.model_validate({"name": section.name})
    for field in ("split", "new_clients", "min_samples", "relabel"):
        if field in own and (own[field].default is empty or getattr(section, field) != getattr(untouched, field)):
            why = f"data.{field} says how rows are divided, and is not passed on"
            raise ConfigError(f"parameter {field!r} of {section.name!r} must have another name: {why}.")


def _own_data(section: DataSection) -> FederatedData:
    """The data of a user's function: a table that is split as usual, or clients as they are."""
    settings = _own_settings(section)
    kinds: tuple[type[Table | FederatedData], ...] = (Table, FederatedData)
    data = made_as("data", section.name, DATASETS, settings, kinds, "a Table or FederatedData")
    if isinstance(data, Table):
        parts = {part: getattr(section, part) for part in ("validation", "test") if part not in settings}
        with at("data", section.name, DataSection.model_fields):
            return _split(section, data, parts)
    untouched = DataSection.model_validate({"name": section.name})
    for field in ("split", "new_clients", "validation", "test", "min_samples", "relabel"):
        value = getattr(section, field)
        if field not in settings and value != getattr(untouched, field):
            rule = f"left out: {section.name!r} returns clients that are divided already"
            raise ConfigError(f"data.{field} must be {rule}. Got {value!r}.")
    return data
