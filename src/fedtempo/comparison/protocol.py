"""Which runs may be compared, and which of them are seeds of one contestant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedtempo.errors import ConfigError, shown
from fedtempo.training.experiment import CONTENT
from fedtempo.training.labels import HARMLESS, TELLING, code_differs, differs, own_codes, told_apart
from fedtempo.training.view import Run

Reading = Callable[[Run], str]


@dataclass(frozen=True)
class Contestant:
    """One algorithm with its settings, and its runs by seed."""

    label: str
    runs: Mapping[int, Run]

    @property
    def seeds(self) -> list[int]:
        """Its seeds, in ascending order."""
        return sorted(self.runs)


def contestants_of(runs: Sequence[Run]) -> list[Contestant]:
    """Runs that differ in nothing but their seed become one contestant; those that cannot be compared are refused."""
    if not runs:
        raise ConfigError("runs must be at least one. Got none.")
    _check_shared(runs)
    grouped: dict[str, dict[int, Run]] = {}
    for label, run in zip(labels_of(runs), runs, strict=True):
        if run.seed is None:
            raise ConfigError(f"seed must be known in a run that is compared. Got {run.place}, which has none.")
        group = grouped.setdefault(label, {})
        _check_group([*group.values(), run])
        if run.seed in group:
            both = f"{group[run.seed].place} and {run.place}"
            raise ConfigError(f"seed must differ between the runs of {label}. Got {run.seed} in {both}.")
        group[run.seed] = run
    contestants = [Contestant(label, group) for label, group in grouped.items()]
    _check_data(contestants)
    return contestants


def labels_of(runs: Sequence[Run]) -> list[str]:
    """The label of each run's contestant: its own, or its algorithm and whatever else tells contestants apart."""
    apart = told_apart([run.identity for run in runs])
    return [run.label or label for run, label in zip(runs, apart, strict=True)]


def _check_group(runs: Sequence[Run]) -> None:
    """Runs with the same label that the user gave are seeds of one thing."""
    for field in TELLING:
        for other in runs[1:]:
            if _field(field)(other) != _field(field)(runs[0]):
                raise _different(field, _field(field), runs[0], other)
    for field in own_codes([run.identity for run in runs]):
        for other in runs[1:]:
            if code_differs([runs[0].identity, other.identity], field):
                raise _different(field, _field(field), runs[0], other)


def notes_on(runs: Sequence[Run]) -> list[str]:
    """What differs between the runs without forbidding the comparison, in words."""
    notes = []
    for name, reading in [*((field, _field(field)) for field in HARMLESS), ("evaluation.every", _every)]:
        values = list(dict.fromkeys(reading(run) for run in runs))
        if len(values) > 1:
            notes.append(f"{name} differs between runs: {' and '.join(shown(value) for value in values)}")
    return notes


def _check_shared(runs: Sequence[Run]) -> None:
    readings: dict[str, Reading] = {
        "loss": _field("loss"),
        f"loss{CONTENT}": _field(f"loss{CONTENT}"),
        "evaluation": _protocol,
        "the scored part": lambda run: run.judged.part,
        "the metric": lambda run: run.judged.metric,
        "which way the metric is better": lambda run: "lower" if run.judged.lower_is_better else "higher",
    }
    for name, reading in readings.items():
        first = runs[0]
        for other in runs[1:]:
            if reading(other) != reading(first):
                raise _different(name, reading, first, other)


def _check_data(contestants: Sequence[Contestant]) -> None:
    """Everybody has the same data, or seed by seed the same and the same seeds."""
    runs = [run for contestant in contestants for run in contestant.runs.values()]
    if not differs([run.identity for run in runs], "data"):
        return
    data = _field("data")
    by_seed: dict[int, Run] = {}
    for run in runs:
        first = by_seed.setdefault(run.seed or 0, run)
        if data(first) != data(run):
            raise _different("data", data, first, run)
    for contestant in contestants:
        missing = sorted(set(by_seed) - set(contestant.runs))
        if missing:
            without = f"{contestant.label} without {missing[0]}"
            raise ConfigError(f"seeds must be the same for all where data differ by seed. Got {without}.")


def _different(name: str, reading: Reading, first: Run, other: Run) -> ConfigError:
    return ConfigError(
        f"{name} must be the same in all runs that are compared. "
        f"Got {shown(reading(first))} in {first.place} and {shown(reading(other))} in {other.place}."
    )


def _field(name: str) -> Reading:
    return lambda run: run.identity.get(name, "none")


def _protocol(run: Run) -> str:
    """How users are scored; how often they are is left out."""
    return re.sub(r"\bevery=[^,)]*(, )?", "", run.identity["evaluation"])


def _every(run: Run) -> str:
    found = re.search(r"\bevery=([^,)]*)", run.identity["evaluation"])
    return found.group(1) if found else "None"
