"""Who is compared when an experiment file is run with several algorithms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtempo.algorithms import IN_FILES
from fedtempo.config import ExperimentFile, parse, read, settings_of
from fedtempo.config.own_code import find
from fedtempo.config.pairs import pairs_of
from fedtempo.errors import ConfigError, require
from fedtempo.training.loop import drained
from fedtempo.training.result import Result
from fedtempo.training.run import train

BASELINES = ("fedavg", "local_only")
"""What every comparison should be able to point at: fine-tuned FedAvg, and no federation at all."""
LOCAL_WORK = ("lr", "steps", "epochs", "weighting")
"""Settings that mean the same everywhere. A server's rate or a method's own strength does not."""
Rates = Callable[[str], Mapping[str, object]]
"""A value for every setting of an algorithm that is tuned, by the algorithm's name."""


@dataclass(frozen=True)
class Entrant:
    """A contestant to be run: its label and its experiment."""

    label: str
    file: ExperimentFile


def entrants_of(
    file: ExperimentFile, algorithms: str | None, only: bool = False, rates: Rates = lambda name: {}
) -> list[Entrant]:
    """The algorithms in a text such as `fedavg,feddecay:beta=0.4,steps=5`, or the file's own; and the baselines.

    An algorithm takes its local work from the file's `[algorithm]`, and the rest from the text. `rates` gives the rates
    that neither of them names, for those who tune them afterwards.
    """
    asked = parse_algorithms(algorithms) if algorithms is not None else [(file.algorithm.name, file.algorithm.name, {})]
    entrants = [_entrant(file, label, name, {**_missing(file, name, rates), **own}) for label, name, own in asked]
    present = {entrant.file.algorithm.name for entrant in entrants}
    missing = [] if only else [name for name in BASELINES if name not in present]
    for name in missing:
        try:
            entrants.append(_entrant(file, name, name, _missing(file, name, rates)))
        except ConfigError as error:
            raise ConfigError(f"{error} It is a baseline: give it settings in --algorithms, or use --only.") from error
    return entrants


def entrants_of_files(
    paths: Sequence[Path],
    overrides: Sequence[str],
    algorithms: str | None,
    only: bool = False,
    rates: Rates = lambda name: {},
    allow_code: Sequence[str] = (),
) -> list[Entrant]:
    """The contestants of one experiment file, as `entrants_of`; of several, each file's own algorithm.

    Several files have the baselines of the first one, but for those that are among them.
    """
    files = [read(path, list(overrides), allow_code) for path in paths]
    require(algorithms is None or len(files) == 1, "algorithms", "left out with several experiment files", algorithms)
    if len(files) == 1:
        return entrants_of(files[0], algorithms, only, rates)
    own = [Entrant(path.stem, file) for path, file in zip(paths, files, strict=True)]
    names = [entrant.label for entrant in own]
    require(len(set(names)) == len(names), "experiment files", "of different names", names)
    present = {file.algorithm.name for file in files}
    baselines = [] if only else entrants_of(files[0], None, rates=rates)[1:]
    return [*own, *(entrant for entrant in baselines if entrant.file.algorithm.name not in present)]


def _missing(file: ExperimentFile, name: str, rates: Rates) -> dict[str, Any]:
    """The rates that an algorithm would not get from the file."""
    borrowed = _borrowed(file.algorithm.model_dump(), name)
    return {rate: value for rate, value in rates(name).items() if rate not in borrowed}


def parse_algorithms(text: str) -> list[tuple[str, str, dict[str, object]]]:
    """Label, name and settings of every algorithm in the text.

    >>> parse_algorithms("fedavg,feddecay:beta=0.4,steps=5")
    [('fedavg', 'fedavg', {}), ('feddecay:beta=0.4,steps=5', 'feddecay', {'beta': 0.4, 'steps': 5})]
    """
    labels: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if "=" in part and ":" not in part and labels:
            labels[-1] += f",{part}"
        else:
            labels.append(part)
    if len(set(labels)) != len(labels):
        raise ConfigError(f"algorithms must differ. Got {text!r}.")
    return [(label, *_named(label)) for label in labels]


def _named(label: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = label.partition(":")
    own, _, after = rest.partition(":")
    if own.replace(".", "").isidentifier():  # package.module:name, and then perhaps its settings
        name, rest = f"{name}:{own}", after
    find("algorithm", name, IN_FILES, "")
    if re.search(r"=[^,]*[:;+\s]\s*\w+=", rest):
        raise ConfigError(f"settings in --algorithms must have commas between them (a:lr=0.1,steps=5). Got {label!r}.")
    return name, pairs_of(filter(None, rest.split(",")), "a setting in --algorithms")


def _entrant(file: ExperimentFile, label: str, name: str, settings: Mapping[str, Any]) -> Entrant:
    values = file.model_dump()
    values["algorithm"] = {**_borrowed(values["algorithm"], name), **settings, "name": name}
    try:
        return Entrant(label, parse(values))
    except ConfigError as error:
        plain = f" Write {label}:NAME=VALUE for a setting that the file lacks." if label == name else ""
        raise ConfigError(f"--algorithms {label}: {error}{plain}") from error


def _borrowed(section: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What an algorithm takes from another one's table: its local work. A wrapper wraps the innermost algorithm."""
    if section["name"] == name:
        return dict(section)
    inner: Mapping[str, Any] = section
    while "around" in inner:
        inner = inner["around"]
    build = find("algorithm", name, IN_FILES, "")
    known = inspect.signature(build).parameters if callable(build) else {}
    if "algorithm" in known:
        kept = {key: value for key, value in section.items() if key in known}
        return {**kept, "around": dict(inner)}
    return {key: _even(inner[key]) for key in LOCAL_WORK if key in inner and key in known}


def _even(rate: Any) -> Any:
    """A rate without its decay within the round, which is the method of another algorithm."""
    if not isinstance(rate, Mapping):
        return rate
    if rate.get("schedule") in ("per_step", "linear_in_round"):
        return rate["value"]
    return {**rate, "of": [_even(factor) for factor in rate["of"]]} if "of" in rate else dict(rate)


def stored_result(folder: Path, file: ExperimentFile) -> Result:
    """The result of a finished run folder, for what needs more of it than its rounds; loads the data."""
    return drained(train(**settings_of(file), out=folder, resume=True, progress=False))


def slug(label: str) -> str:
    """A label as the name of a folder.

    >>> slug("feddecay:beta=0.4,steps=5")
    'feddecay-beta-0.4-steps-5'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.") or "run"
