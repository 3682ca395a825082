"""The form of an experiment file: pydantic models whose field descriptions are the rules that errors quote."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtempo.errors import ConfigError, shown, unknown
from fedtempo.training.checks.settings import MOST, MOST_ROUNDS, MOST_STEPS

COUNT = f"an int in [1, {MOST}]"
FEW = f"an int in [0, {MOST_STEPS}]"
Count = Annotated[int, Field(ge=1, le=MOST)]
Few = Annotated[int, Field(ge=0, le=MOST_STEPS)]
Share = Annotated[float, Field(ge=0, lt=1)]
Part = Annotated[float, Field(ge=0, le=1)]
PART = "a share in [0, 1]"


class FileSection(BaseModel):
    """A part of the file that names something and gives its settings."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: str = Field(description="a string")

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})


class DataSection(FileSection):
    """The data set, how it is split, and which clients are held out."""

    split: FileSection | None = Field(None, description="a table with a name")
    new_clients: Annotated[int, Field(ge=0)] | Share | Literal["untrained"] = Field(
        0, description="a fraction in [0, 1), an int >= 0 or 'untrained'"
    )
    validation: Share | None = Field(None, description="a fraction in [0, 1)")
    test: Share | None = Field(None, description="a fraction in [0, 1)")
    seed: int = Field(0, ge=0, description="an int >= 0")
    min_samples: Count | None = Field(None, description=COUNT)
    relabel: bool = Field(False, description="true or false")


class EvaluationSection(BaseModel):
    """The evaluation protocol; see `fedtempo.Evaluation`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    every: Count | None = Field(None, description=COUNT)
    users: Count | None = Field(None, description=COUNT)
    steps: Few | None = Field(None, description=FEW)
    epochs: Few | None = Field(None, description=FEW)
    lr: float | None = Field(None, ge=0, description="a finite number >= 0")
    trains: Literal["all", "head", "body"] | None = Field(None, description="'all', 'head' or 'body'")
    decays: bool = Field(False, description="true or false")
    patience: Count | None = Field(None, description=COUNT)
    interpolated: bool = Field(False, description="true or false")
    last: Count = Field(1, description=COUNT)


class AdmissionSection(BaseModel):
    """Which uploads count; see `fedtempo.server.admission.Admission`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    max_norm: float | None = Field(None, gt=0, description="a finite number > 0")
    max_ratio: float | None = Field(None, gt=0, description="a finite number > 0")
    checks: bool = Field(True, description="true or false")


class FaultsSection(BaseModel):
    """Shares of clients that fail each round; see `fedtempo.server.fault_injection.Faults`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    drop: Part = Field(0.0, description=PART)
    nan: Part = Field(0.0, description=PART)
    infinite: Part = Field(0.0, description=PART)
    huge: Part = Field(0.0, description=PART)
    misshapen: Part = Field(0.0, description=PART)
    renamed: Part = Field(0.0, description=PART)
    slow: Part = Field(0.0, description=PART)
    delay: float = Field(0.01, ge=0, le=60, description="a finite number in [0, 60]")
    kill: Part = Field(0.0, description=PART)
    until: Few | None = Field(None, description=FEW)


class AvailabilitySection(BaseModel):
    """When clients are available; see `fedtempo.devices.Availability`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    hours: list[float] | None = Field(None, min_length=2, max_length=2, description="a list of two hours in [0, 24]")
    time_zones: list[float] | None = Field(None, min_length=1, description="a list of hours in [-24, 24]")
    stays: float | None = Field(None, gt=0, description="a finite number > 0")
    joins: float = Field(0.0, ge=0, description="a finite number >= 0")


class DevicesSection(FileSection):
    """The devices of clients, and when they are available."""

    availability: AvailabilitySection | None = Field(None, description="a table")


class ExperimentFile(BaseModel):
    """A whole experiment as it stands in a TOML file. Each field's description is the rule that errors quote."""

    model_config = ConfigDict(extra="forbid", strict=True)
    rounds: int = Field(description=f"an int in [1, {MOST_ROUNDS}]", ge=1, le=MOST_ROUNDS)
    data: DataSection = Field(description="a table with a name")
    model: FileSection = Field(description="a table with a name")
    algorithm: FileSection = Field(description="a table with a name")
    cohort: Count | Annotated[float, Field(gt=0, le=1)] | dict[str, Any] = Field(
        1.0,
        description="an int >= 1, a fraction in (0, 1], { bernoulli = 0.1 }, { by_samples = 10 } "
        'or { schedule = "...", ... }',
    )
    batch_size: Count | None = Field(32, description=COUNT)
    full_batch: bool = Field(False, description="true or false")
    batches: Literal["epochs", "in_order", "replace"] = Field("epochs", description="'epochs', 'in_order' or 'replace'")
    seed: int = Field(0, ge=0, description="an int >= 0")
    loss: str | FileSection | None = Field(None, description="a string, or a table with a name")
    metrics: list[str | FileSection] | None = Field(None, description="a list of names, or of tables with a name")
    metric: str | FileSection | None = Field(None, description="a string, or a table with a name")
    augment: str | FileSection | list[str | FileSection] | None = Field(
        None, description="a name, a table with a name, or a list of them"
    )
    dtype: Literal["bfloat16", "float32", "float64"] = Field(
        "float32", description="'bfloat16', 'float32' or 'float64'"
    )
    autocast: bool = Field(False, description="true or false")
    device: str = Field("cpu", description="a string")
    backend: str = Field("auto", description="a string")
    workers: int | None = Field(None, ge=1, le=1024, description="an int in [1, 1024]")
    block: Count | None = Field(None, description=COUNT)
    ray_address: str | None = Field(None, min_length=1, description="an address")
    ray_gpus: float | None = Field(None, ge=0, le=1024, description="a share in [0, 1] or a whole number")
    worker_timeout: float | None = Field(None, gt=0, le=1e7, description="a finite number in (0, 10000000]")
    quorum: Count = Field(1, description=COUNT)
    over_selection: float = Field(0.0, ge=0, le=100, description="a finite number in [0, 100]")
    deadline: float | None = Field(None, gt=0, le=1e7, description="a finite number in (0, 10000000]")
    devices: DevicesSection | None = Field(None, description="a table with a name")
    partial_work: bool = Field(False, description="true or false")
    asynchrony: FileSection | None = Field(None, description="a table with a name")
    aggregator: FileSection | None = Field(None, description="a table with a name")
    admission: AdmissionSection | None = Field(None, description="a table")
    faults: FaultsSection | None = Field(None, description="a table")
    trackers: list[str | FileSection] = Field([], description="a list of names or of tables with a name")
    tune: dict[str, Any] | None = Field(None, exclude=True, description="a table of fields to try")
    """Read by `fedtempo tune` alone."""
    evaluation: EvaluationSection = Field(
        default_factory=lambda: EvaluationSection.model_validate({}), description="a table"
    )


SECTIONS: dict[str, type[BaseModel]] = {
    "data": DataSection,
    "split": FileSection,
    "model": FileSection,
    "algorithm": FileSection,
    "evaluation": EvaluationSection,
    "devices": DevicesSection,
    "availability": AvailabilitySection,
    "asynchrony": FileSection,
    "aggregator": FileSection,
    "admission": AdmissionSection,
    "faults": FaultsSection,
}


def one_line(error: ValidationError) -> ConfigError:
    """The first thing that pydantic found wrong, as field, rule and value; a misspelt key comes before all else."""
    found = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")[0]
    place = [str(part) for part in found["loc"]]
    if found["type"] in ("extra_forbidden", "missing"):
        return _key_error(place, found)
    model: type[BaseModel] | None = ExperimentFile
    path, rule = [], "something else"
    for part in place:  # pydantic goes on with the members of a union, which are no part of the file
        if model is None or part not in model.model_fields:
            break
        path.append(part)
        rule = model.model_fields[part].description or rule
        model = SECTIONS.get(part)
    value = found["input"]
    return ConfigError(f"{'.'.join(path)} must be {rule}. Got {shown(value)}.")


def _key_error(place: list[str], found: Mapping[str, Any]) -> ConfigError:
    """An unknown key, or one that is missing, perhaps because it was misspelt."""
    *parents, key = place
    model = SECTIONS[parents[-1]] if parents else ExperimentFile
    prefix = "".join(f"{parent}." for parent in parents)
    if found["type"] == "extra_forbidden":
        return unknown("setting", prefix + key, [prefix + name for name in model.model_fields])
    unknown_keys = [name for name in found["input"] if name not in model.model_fields]
    near = difflib.get_close_matches(key, unknown_keys, n=1)
    if near:
        return unknown("setting", prefix + near[0], [prefix + key])
    return ConfigError(f"{prefix}{key} must be given. Got nothing.")
