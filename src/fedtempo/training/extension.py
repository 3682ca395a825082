"""More rounds for a stored run: settings that depend on the number of rounds are named, and need `as_planned`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedtempo.errors import ConfigError, require
from fedtempo.schedules import Schedule
from fedtempo.training.experiment import Experiment


def check_extension(experiment: Experiment, as_planned: bool, stored: int) -> None:
    """Raise unless nothing depends on the number of rounds, or the user wants it to stay as it was planned."""
    found = list(dependent(experiment, stored))
    if found and not as_planned:
        raise ConfigError(
            f"rounds must be {stored} as planned, since {'; '.join(found)}. To go on to {experiment.rounds} with all "
            "that as it is, add --as-planned (in Python as_planned=True)."
        )


def dependent(experiment: Experiment, stored: int) -> Iterator[str]:
    """What was chosen for this many rounds and would be chosen otherwise for more, a clause each."""
    algorithm, protocol = experiment.federation.algorithm, experiment.evaluation
    # What the user wrote first; the phases of an algorithm of their own may hold a schedule that no setting shows.
    rates = {f"phase {number + 1}: lr": phase.lr for number, phase in enumerate(algorithm.phases)}
    rates |= {f"server: {name}": schedule for name, schedule in algorithm.server.schedules}
    said: set[int] = set()
    for name, schedule in {**algorithm.settings, **rates}.items():
        for rounds in sorted(set(_spans(schedule)) - said):
            if rounds < experiment.rounds:
                said.add(rounds)
                yield f"{name} is a schedule over {rounds} rounds"
    if protocol is not None and protocol.interval(stored) != protocol.interval(experiment.rounds):
        yield f"evaluation.every is a tenth of the rounds, {protocol.interval(stored)}"
    if experiment.federation.private:
        yield f"the privacy that was promised is that of {stored} rounds"


def _spans(value: Any) -> Iterator[int]:
    """The numbers of rounds that schedules inside a setting are made for."""
    if isinstance(value, Schedule):
        if isinstance(value.settings.get("rounds"), int):
            yield value.settings["rounds"]
        yield from _spans(value.settings)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _spans(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _spans(inner)
    elif hasattr(value, "settings"):  # a backbone, or an optimizer
        yield from _spans(value.settings)


def check_of_resumed(name: str, value: object, resume: bool) -> None:
    """A truth value that says how a stored run goes on, and that a new run has no use for."""
    require(isinstance(value, bool), name, "true or false", value)
    require(not value or resume, name, "left out where no run is resumed", value)
