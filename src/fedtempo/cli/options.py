"""What several commands share: options, and what they say about folders."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.config import ExperimentFile, places_outside
from fedtempo.config.own_code import own_names
from fedtempo.errors import FedTempoError, OutputError, WorkersLostError, first_line
from fedtempo.report.folder import WRITTEN
from fedtempo.support.accelerator import CPU
from fedtempo.support.terminal import say
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.storage.folders import require_unwritten

ExperimentPath = Annotated[Path, typer.Argument(help="The experiment, a TOML file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set algorithm.beta=0.4")]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(help="A module (package.module) that may be named although it is not beside the file; repeatable."),
]
OnDevice = Annotated[
    str | None,
    typer.Option("--device", help="Where models train: cpu, cuda, ..., or auto, the accelerator that torch finds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def device_override(device: str | None) -> list[str]:
    """The `--set` of a device, if one is given."""
    return [] if device is None else [f"device={json.dumps(device)}"]


def workers_on(device: str | None, workers: int | None) -> int | None:
    """How many runs at a time: those on an accelerator share its memory, so by default one."""
    return 1 if workers is None and device not in (None, CPU) else workers


def new_folder(out: Path) -> None:
    """Check that the folder holds no run and can be made. It is made later, once the experiment has been checked."""
    if (out / DATABASE).exists():
        raise OutputError(f"out must be a new folder. Got {out}, which holds a run already.")
    # The experiment file itself, or a comparison's report, may lie there.
    require_unwritten(out, WRITTEN)
    nearest = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        reason = "cannot be written" if nearest.is_dir() else "is not a folder"
        raise OutputError(f"out must be a folder that can be written. Got {out}: {nearest} {reason}.")


def allowing_code(values: object) -> str:
    """The options that allow the modules which a file's values name, for a command line to copy."""
    modules = sorted({name.partition(":")[0] for name in own_names(values)})
    return "".join(f" --allow-code {module}" for module in modules)


@contextmanager
def saying_how_to_resume(
    folder: Path | None, file: ExperimentFile | None = None, options: Iterable[str] = ()
) -> Iterator[None]:
    """After Ctrl-C, or if the workers are lost, print the command that resumes the run, with all that it must allow."""
    try:
        yield
    except (KeyboardInterrupt, WorkersLostError):
        if folder is not None:
            outside = [] if file is None else places_outside(file, folder)
            allowed = "".join(f" --allow {shlex.quote(place)}" for _, place in outside)
            allowed += "" if file is None else allowing_code(file.model_dump())
            given = "".join(f" {option}" for option in options)
            say(f"fedtempo: go on with: fedtempo resume {shlex.quote(str(folder))}{given}{allowed}", error=True)
        raise


def writable(folder: Path) -> None:
    """Make the folder, and check that a file can be written into it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()


@contextmanager
def writing(out: Path | None) -> Iterator[None]:
    """Turn a failed write inside the block, such as one to a full disk, into an `OutputError`."""
    try:
        yield
    except FedTempoError:
        raise
    except OSError as error:
        if out is None:
            raise
        raise OutputError(
            f"out must be a folder that can be written. Got {out}: {error.strerror or first_line(error)}."
        ) from error
