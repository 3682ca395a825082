"""Places outside a run folder that its file names: a folder may come from anywhere, so its file may not choose them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedtempo.config.experiment_file import named_trackers, parse, read_values, with_values
from fedtempo.config.own_code import stored_run
from fedtempo.config.schema import ExperimentFile
from fedtempo.errors import ConfigError, shown

MLFLOW_STORE = "MLFLOW_TRACKING_URI"
HERE = (None, "auto", "local")
"""Ray addresses that name no machine."""


def stored_file(path: Path, allow_code: Sequence[str] = ()) -> ExperimentFile:
    """The experiment file of a run folder. Code of its own must be in a module that the user allows now."""
    values = read_values(path, received=True)
    with stored_run(path.parent, allow_code):
        return parse(values)


def read_stored(
    path: Path,
    allow: Sequence[str] = (),
    allow_code: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> ExperimentFile:
    """The same, to go on with: a place outside the folder must also be one that the user allows now.

    `settings` take the place of the file's; None takes one away.
    """
    experiment = with_values(stored_file(path, allow_code), settings or {})
    for field, place in places_outside(experiment, path.parent):
        if place not in allow and not any(_same(place, allowed) for allowed in allow):
            raise ConfigError(
                f"{field} must be inside the run folder, or allowed on this command line (--allow {place}). "
                f"Got {shown(place)}."
            )
    return experiment


def places_outside(experiment: ExperimentFile, folder: Path) -> Iterator[tuple[str, str]]:
    """Fields of an experiment file by which a run would write or send outside its folder, and what they name."""
    for index, (name, settings) in enumerate(named_trackers(experiment)):
        path = settings.get("path")
        if path is not None and not _inside(str(path), folder):
            yield f"trackers[{index}].path", str(path)
        uri = settings.get("uri") or (os.environ.get(MLFLOW_STORE) if name == "mlflow" else None)
        if uri and not _inside(str(uri).removeprefix("sqlite:///"), folder):
            yield f"trackers[{index}].uri", str(uri)
    cache = experiment.data.settings.get("cache_dir")
    if cache is not None and not _inside(str(cache), folder):
        yield "data.cache_dir", str(cache)
    if experiment.ray_address not in HERE:
        yield "ray_address", str(experiment.ray_address)


def without_places(experiment: ExperimentFile) -> ExperimentFile:
    """The same run without trackers, with its data in the user's own cache and its clients on this machine."""
    data = {name: value for name, value in experiment.data.model_dump().items() if name != "cache_dir"}
    section = type(experiment.data).model_validate(data)
    return experiment.model_copy(update={"trackers": [], "data": section, "ray_address": None})


def _inside(place: str, folder: Path) -> bool:
    """Whether a path stays in the folder when links and dots are followed. An address is no path in it."""
    try:
        return Path(place).expanduser().resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _same(place: str, allowed: str) -> bool:
    try:
        return Path(place).expanduser().resolve() == Path(allowed).expanduser().resolve()
    except (OSError, ValueError, RuntimeError):
        return False
