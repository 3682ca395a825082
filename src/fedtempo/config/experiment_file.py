"""Reading and writing experiment files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from pydantic import ValidationError

from fedtempo.backends import BACKEND_NAMES
from fedtempo.config import bounded_toml as toml
from fedtempo.config.construct import (
    make_algorithm,
    make_augment,
    make_devices,
    make_loss,
    make_metric,
    make_model,
    make_schedule,
)
from fedtempo.config.construct_data import check_data, make_data
from fedtempo.config.own_code import file_of, stored_run
from fedtempo.config.pairs import pairs_of, put
from fedtempo.config.schema import ExperimentFile, one_line
from fedtempo.config.settings import checked, make
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, first_line, is_count, is_number, require, unknown, wrong
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.metrics import Metric
from fedtempo.models import MODELS
from fedtempo.models.weights import seeded
from fedtempo.schedules import Schedule
from fedtempo.server.admission import Admission
from fedtempo.server.asynchrony import ASYNCHRONY, Asynchrony
from fedtempo.server.cohort import Cohort, bernoulli, by_samples
from fedtempo.server.fault_injection import Faults
from fedtempo.server.robust import AGGREGATORS, Aggregator, plain_mean
from fedtempo.support.accelerator import device_of
from fedtempo.support.files import read_inside
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.trackers import TRACKERS, Tracker

BERNOULLI, BY_SAMPLES = "bernoulli", "by_samples"
FROM_A_PATH = {"data": ("csv", "parquet", "pfllib", "leaf"), "devices": ("trace",)}
"""Sections that may be made from a file of the user's, with the names that are."""


def read(path: Path, overrides: list[str] | None = None, allow_code: Sequence[str] = ()) -> ExperimentFile:
    """The experiment in a TOML file, with `a.b=value` overrides; it may name modules beside it, and `allow_code`."""
    values = read_values(path)
    for field, value in overrides_of(overrides).items():
        put(values, field, value, "--set")
    with naming_code(path.parent, allow_code):
        return parse(found_beside(values, path.parent))


def naming_code(folder: Path, allow_code: Sequence[str]) -> AbstractContextManager[None]:
    """Inside, the values of a file in this folder are checked: it may name modules beside it, and `allow_code`."""
    # What lies in a run folder was put there by us, or by whoever sent it: there is no code of the user's in it.
    holds_run = os.path.lexists(folder / DATABASE)
    return stored_run(folder, allow_code) if holds_run else file_of(folder, allow_code)


def found_beside(values: Mapping[str, object], folder: Path) -> dict[str, object]:
    """The values of a file in this folder that is to be run: it may name files to read that lie beside it.

    A file is looked for in the current folder first, as every path on a command line is.
    """
    return {
        name: _with_path_beside(value, FROM_A_PATH[name], folder) if name in FROM_A_PATH else value
        for name, value in values.items()
    }


def _with_path_beside(section: Any, kinds: Sequence[str], folder: Path) -> Any:
    """A section whose `path` is that of the file beside the experiment file, where the current folder has none.

    Devices may be classes of devices, each a section of its own.
    """
    if not isinstance(section, dict):
        return section
    if isinstance(section.get("of"), list):
        section = {**section, "of": [_with_path_beside(each, kinds, folder) for each in section["of"]]}
    if section.get("name") not in kinds or not isinstance(section.get("path"), str):
        return section
    here, beside = Path(section["path"]).expanduser(), folder / section["path"]
    return section if here.exists() or not beside.is_file() else {**section, "path": str(beside)}


def overrides_of(texts: list[str] | None) -> dict[str, object]:
    """The fields that `--set a.b=value` sets, with their values."""
    return pairs_of(texts or (), "--set", "a.b=value")


def read_values(path: Path, received: bool = False) -> dict[str, Any]:
    """The values in a TOML file; only its size and depth are checked. One in a received folder must be a plain file."""
    most = 4 * toml.LARGEST  # UTF-8 has at most four bytes a character
    try:
        if received:
            content = read_inside(path.parent, path.name, most)
        else:
            with path.open("rb") as file:
                content = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ConfigError(f"experiment file must be readable. Got {path}: {reason}.") from error
    try:
        return toml.loads(content.decode("utf-8-sig"))  # editors on Windows put a mark in front
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"experiment file must be UTF-8 text. Got {path}: {first_line(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"experiment file must be TOML. Got {path}: {first_line(error)}.") from error


def parse(values: Mapping[str, object]) -> ExperimentFile:
    """Check a file's values; the first thing that is wrong is the error."""
    require(_depth(values) <= toml.DEEPEST, "experiment file", f"at most {toml.DEEPEST} tables deep", "more")
    try:
        experiment = ExperimentFile.model_validate(dict(values))
    except ValidationError as error:
        raise one_line(error) from error
    _check_names(experiment)
    return experiment


def with_values(experiment: ExperimentFile, settings: Mapping[str, object]) -> ExperimentFile:
    """The same experiment with other settings; None takes one away."""
    changed = {**experiment.model_dump(exclude_none=True), **settings}
    return parse({name: value for name, value in changed.items() if value is not None})


def dump(experiment: ExperimentFile) -> str:
    """The file with every default filled in, as TOML."""
    return tomli_w.dumps(_without_none(experiment.model_dump()))


def fingerprint(experiment: ExperimentFile) -> str:
    """A hash of the resolved file. Trackers are left out: they do not change a run."""
    return hashlib.sha256(dump(experiment.model_copy(update={"trackers": []})).encode()).hexdigest()


def settings_of(experiment: ExperimentFile, data: FederatedData | None = None) -> dict[str, Any]:
    """Keyword arguments for `fedtempo.run`; other data may take the place of the file's."""

    def model() -> Any:
        return make_model(experiment.model)

    cohort = experiment.cohort
    with seeded(0, "probe"):
        model()  # a model that cannot be built should not wait for the data
    return {
        "model": model,
        "data": (found := make_data(experiment.data) if data is None else data),
        "algorithm": make_algorithm(experiment.algorithm.model_dump()),
        "rounds": experiment.rounds,
        "cohort": _cohort(cohort, found.sizes()),
        "batch_size": None if experiment.full_batch else experiment.batch_size,
        "batches": experiment.batches,
        "seed": experiment.seed,
        "loss": make_loss(experiment.loss),
        **_metrics(experiment),
        "augment": make_augment(experiment.augment),
        "dtype": getattr(torch, experiment.dtype),
        "autocast": experiment.autocast,
        "device": experiment.device,
        "backend": experiment.backend,
        "workers": experiment.workers,
        "block": experiment.block,
        "ray_address": experiment.ray_address,
        "ray_gpus": experiment.ray_gpus,
        "worker_timeout": experiment.worker_timeout,
        "evaluation": Evaluation(**experiment.evaluation.model_dump()),
        "quorum": experiment.quorum,
        "over_selection": experiment.over_selection,
        "deadline": experiment.deadline,
        "devices": make_devices(experiment.devices),
        "partial_work": experiment.partial_work,
        "asynchrony": _asynchrony(experiment),
        "admission": Admission(**experiment.admission.model_dump()) if experiment.admission else None,
        "faults": Faults(**experiment.faults.model_dump()) if experiment.faults else None,
        "aggregator": _aggregator(experiment),
    }


def trackers_of(experiment: ExperimentFile) -> list[Tracker]:
    """The trackers of a file; one whose library is missing is an error."""
    return [make("trackers", name, TRACKERS, settings) for name, settings in named_trackers(experiment)]


def named_trackers(experiment: ExperimentFile) -> list[tuple[str, dict[str, object]]]:
    """The trackers of a file: their names and settings."""
    return [(each, {}) if isinstance(each, str) else (each.name, each.settings) for each in experiment.trackers]


def _aggregator(experiment: ExperimentFile) -> Aggregator:
    section = experiment.aggregator
    if section is None:
        return plain_mean
    aggregator: Aggregator = make("aggregator", section.name, AGGREGATORS, section.settings)
    return aggregator


def _asynchrony(experiment: ExperimentFile) -> Asynchrony | None:
    section = experiment.asynchrony
    if section is None:
        return None
    rule: Asynchrony = make("asynchrony", section.name, ASYNCHRONY, section.settings)
    return rule


def _metrics(experiment: ExperimentFile) -> dict[str, Any]:
    """The metrics to report and the main one. One of the user's own may be meant by the name it has itself."""
    listed = experiment.metrics
    given = None if listed is None else [make_metric(f"metrics[{place}]", each) for place, each in enumerate(listed)]
    names = {each.name for each in given or () if isinstance(each, Metric)}
    main = experiment.metric
    if main is None or main == "loss" or (isinstance(main, str) and main in names):
        return {"metrics": given, "metric": main}
    return {"metrics": given, "metric": make_metric("metric", main)}


def _cohort(
    value: int | float | dict[str, Any], samples: Sequence[int] | np.ndarray = (1,)
) -> int | float | Schedule | Cohort:
    """A number or a fraction as it is; a table is a schedule, a probability for each client, or a draw by samples."""
    if not isinstance(value, dict):
        return value
    if set(value) == {BERNOULLI}:
        probability = value[BERNOULLI]
        require(is_number(probability) and 0 < probability <= 1, "cohort.bernoulli", "a number in (0, 1]", probability)
        return bernoulli(probability)
    if set(value) == {BY_SAMPLES}:
        size = value[BY_SAMPLES]
        holds = is_count(size) or (isinstance(size, float) and 0 < size <= 1)
        require(holds, "cohort.by_samples", "an int >= 1 or a fraction in (0, 1]", size)
        return by_samples(size, samples)
    if "schedule" not in value:
        forms = 'a number, a fraction, { bernoulli = 0.1 }, { by_samples = 10 } or { schedule = "...", ... }'
        raise wrong("cohort", forms, value)
    return make_schedule("cohort", value)


def _check_names(experiment: ExperimentFile) -> None:
    """Everything that can be checked without loading data."""
    if experiment.backend not in BACKEND_NAMES:
        raise unknown("backend", experiment.backend, BACKEND_NAMES)
    make_loss(experiment.loss)
    _metrics(experiment)
    make_augment(experiment.augment)
    device_of(experiment.device)
    check_data(experiment.data)
    checked("model", experiment.model.name, MODELS, experiment.model.settings)
    make_algorithm(experiment.algorithm.model_dump())
    _aggregator(experiment)
    make_devices(experiment.devices)
    _asynchrony(experiment)
    for name, settings in named_trackers(experiment):
        checked("trackers", name, TRACKERS, settings)
    _cohort(experiment.cohort)
    both = experiment.evaluation.steps is not None and experiment.evaluation.epochs is not None
    require(not both, "evaluation", "given steps or epochs, not both", experiment.evaluation.steps)


def _depth(value: Any) -> int:
    """How deep tables and lists are nested, without recursion: the file may be hostile."""
    level, depth = [value], 0
    while level:
        depth += 1
        tables = [entry for entry in level if isinstance(entry, (Mapping, list))]
        level = [inner for entry in tables for inner in (entry.values() if isinstance(entry, Mapping) else entry)]
    return depth


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return value
