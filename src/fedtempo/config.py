"""Experiment files: TOML in, checked by pydantic, with one-line errors that name field, rule and value."""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedtempo.algorithms import ALGORITHMS, Algorithm
from fedtempo.backends import BACKENDS
from fedtempo.data import DATASETS, SPLITS, FederatedData, load
from fedtempo.errors import ConfigError, unknown
from fedtempo.evaluation import Evaluation
from fedtempo.models import MODELS
from fedtempo.schedules import from_config
from fedtempo.tasks import TASKS


class Section(BaseModel):
    """A part of the file that names something and gives its settings."""

    model_config = ConfigDict(extra="allow")
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})


class DataSection(Section):
    """The data set, how it is split, and which clients are held out."""

    split: Section | None = None
    new_clients: float | int = 0
    validation: float | None = Field(None, ge=0, lt=1)
    test: float | None = Field(None, ge=0, lt=1)
    seed: int = Field(0, ge=0)
    min_samples: int | None = Field(None, ge=1)
    relabel: bool = False


class EvaluationSection(BaseModel):
    """The evaluation protocol; see `fedtempo.Evaluation`."""

    model_config = ConfigDict(extra="forbid")
    every: int | None = Field(None, ge=1)
    users: int | None = Field(None, ge=1)
    steps: int | None = Field(None, ge=0)
    epochs: int | None = Field(None, ge=0)
    lr: float | None = Field(None, ge=0)
    trains: Literal["all", "head"] = "all"
    decays: bool = False
    interpolated: bool = False


class ExperimentFile(BaseModel):
    """A whole experiment as it stands in a TOML file."""

    model_config = ConfigDict(extra="forbid", strict=False)
    rounds: int = Field(ge=1)
    data: DataSection
    model: Section
    algorithm: Section
    cohort: float | int | dict[str, Any] = 1.0
    batch_size: int | None = Field(32, ge=1)
    full_batch: bool = False
    batches: Literal["epochs", "replace"] = "epochs"
    seed: int = Field(0, ge=0)
    loss: str | None = None
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    backend: str = "auto"
    block: int | None = Field(None, ge=1)
    evaluation: EvaluationSection = Field(default_factory=lambda: EvaluationSection.model_validate({}))

    @field_validator("rounds", "batch_size", "seed", "block", mode="before")
    @classmethod
    def _no_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("must be an int, not a bool")
        return value

    @field_validator("backend")
    @classmethod
    def _known_backend(cls, value: str) -> str:
        if value not in (*BACKENDS, "auto"):
            raise unknown("backend", value, [*BACKENDS, "auto"])
        return value

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, value: str | None) -> str | None:
        if value is not None and value not in TASKS:
            raise unknown("loss", value, TASKS)
        return value


def read(path: Path, overrides: list[str] | None = None) -> ExperimentFile:
    """The experiment in a TOML file, with `a.b=value` overrides."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"experiment file must be readable. Got {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"experiment file must be UTF-8 text. Got {path}.") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"experiment file {path.name} must be TOML: {error}.") from None
    for override in overrides or []:
        _set(values, override)
    return parse(values)


def parse(values: Mapping[str, Any]) -> ExperimentFile:
    """Check a file's values; the first thing that is wrong is the error."""
    try:
        experiment = ExperimentFile.model_validate(dict(values))
    except ValidationError as error:
        raise _one_line(error) from None
    _check_names(experiment)
    return experiment


def dump(experiment: ExperimentFile) -> str:
    """The file with every default filled in, as TOML."""
    return tomli_w.dumps(_without_none(experiment.model_dump()))


def fingerprint(experiment: ExperimentFile) -> str:
    """A hash of the resolved file."""
    return hashlib.sha256(dump(experiment).encode()).hexdigest()


def settings_of(experiment: ExperimentFile) -> dict[str, Any]:
    """Keyword arguments for `fedtempo.run`."""
    evaluation = Evaluation(**experiment.evaluation.model_dump())
    cohort = experiment.cohort
    return {
        "model": lambda: make("model", experiment.model.name, MODELS, experiment.model.settings),
        "data": make_data(experiment.data),
        "algorithm": make_algorithm(experiment.algorithm.model_dump()),
        "rounds": experiment.rounds,
        "cohort": from_config(cohort) if isinstance(cohort, dict) else cohort,
        "batch_size": None if experiment.full_batch else experiment.batch_size,
        "batches": experiment.batches,
        "seed": experiment.seed,
        "loss": experiment.loss,
        "dtype": getattr(torch, experiment.dtype),
        "device": experiment.device,
        "backend": experiment.backend,
        "block": experiment.block,
        "evaluation": evaluation,
    }


def make_data(section: DataSection) -> FederatedData:
    """Load and split the data set of a file."""
    table = load(section.name, **section.settings)
    split = None
    if section.split is not None:
        split = make("split", section.split.name, SPLITS, section.split.settings)
    return table.split(
        split,
        new_clients=section.new_clients,
        validation=section.validation,
        test=section.test,
        seed=section.seed,
        min_samples=section.min_samples,
        relabel=section.relabel,
    )


def make_algorithm(section: Mapping[str, Any]) -> Algorithm:
    """The algorithm of a file. `around` is the backbone of a wrapper; a table with `schedule` is a schedule."""
    settings = {key: _setting(value) for key, value in section.items() if key not in ("name", "around")}
    if "around" in section:
        settings["algorithm"] = make_algorithm(section["around"])
    algorithm: Algorithm = make("algorithm", section.get("name"), ALGORITHMS, settings)
    return algorithm


def _setting(value: Any) -> Any:
    return from_config(value) if isinstance(value, Mapping) and "schedule" in value else value


def make(kind: str, name: Any, known: Mapping[str, Callable[..., Any]], settings: Mapping[str, Any]) -> Any:
    """Call the function a name stands for; unknown names and settings are errors with the nearest known one."""
    check_settings(kind, name, known, settings)
    return known[name](**settings)


def check_settings(kind: str, name: Any, known: Mapping[str, Callable[..., Any]], settings: Mapping[str, Any]) -> None:
    """The name is known, every setting is one of its parameters, and none that it needs is missing."""
    if name not in known:
        raise unknown(kind, name, known)
    parameters = inspect.signature(known[name]).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for setting in settings:
        if setting not in parameters:
            raise unknown(f"{kind} {name}: setting", setting, parameters)
    missing = [p.name for p in parameters.values() if p.default is p.empty and p.name not in settings]
    if missing:
        raise ConfigError(f"{kind}.{missing[0]} must be given for {name!r}. Got nothing.")


def _check_names(experiment: ExperimentFile) -> None:
    """Everything that can be checked without loading data."""
    if experiment.data.name not in DATASETS:
        raise unknown("data set", experiment.data.name, DATASETS)
    if experiment.data.split is not None:
        check_settings("split", experiment.data.split.name, SPLITS, experiment.data.split.settings)
    check_settings("model", experiment.model.name, MODELS, experiment.model.settings)
    make_algorithm(experiment.algorithm.model_dump())


def _set(values: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    if not separator or not path.strip():
        raise ConfigError(f"--set must be written a.b=value. Got {override!r}.")
    *parents, last = path.strip().split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {path.strip()} must lead into a table. Got {parent!r}, which is a value.")
    try:
        values[last] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        values[last] = text.strip()


def _one_line(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    field = ".".join(
        str(part) for part in first["loc"] if not str(part).endswith(("]", ")")) and part not in ("float", "int")
    )
    if first["type"] == "extra_forbidden":
        known = EvaluationSection.model_fields if field.startswith("evaluation.") else ExperimentFile.model_fields
        return unknown("setting", field.rsplit(".", 1)[-1], known)
    if first["type"] == "missing":
        return ConfigError(f"{field} must be given. Got nothing.")
    rule = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return ConfigError(f"{field} must be {rule}. Got {first['input']!r}.")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return value
