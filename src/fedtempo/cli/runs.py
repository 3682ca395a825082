"""`fedtempo run` and `fedtempo resume`."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.algorithms import IN_FILES
from fedtempo.cli.options import (
    AllowCode,
    AsJson,
    ExperimentPath,
    OnDevice,
    Overrides,
    Quiet,
    new_folder,
    saying_how_to_resume,
    writing,
)
from fedtempo.config import (
    EXPERIMENT,
    ExperimentFile,
    read,
    read_stored,
    trackers_of,
    train_file,
    with_values,
    write_experiment,
)
from fedtempo.deploy.launch.plans import DEPLOYMENT, ServerPlan
from fedtempo.errors import OutputError, require
from fedtempo.report import REPORT, follow, summary
from fedtempo.support.accelerator import device_of
from fedtempo.support.json_text import json_text
from fedtempo.support.terminal import Terminal, say
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.database import DATABASE


def algorithms_text() -> str:
    """One line per algorithm, for the help page."""
    lines = [f"{name}: {(build.__doc__ or '').strip().splitlines()[0]}" for name, build in IN_FILES.items()]
    return "Algorithms:\n\n" + "\n\n".join(lines)


def run(
    experiment: ExperimentPath,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the run: every round, metrics, report, model.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="auto, serial, vectorised, processes or ray.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="A Ray cluster to join: auto, host:port or ray://...")] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes; any number gives the same bits. By default timing the first clients decides."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    device: OnDevice = None,
    trackers: Annotated[
        list[str] | None, typer.Option("--tracker", help="Log rounds to csv, jsonl, tensorboard, mlflow or wandb.")
    ] = None,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train an experiment file and print its table."""
    given = {
        "backend": backend,
        "ray_address": ray_address,
        "workers": workers,
        "seed": seed,
        "device": device,
        "trackers": trackers or None,
    }
    changes = [f"{name}={json.dumps(value)}" for name, value in given.items() if value is not None]
    file = read(experiment, [*(overrides or []), *changes], allow_code or [])
    told = trackers_of(file)
    if out is not None:
        new_folder(out)
    rounds = train_file(file, out, trackers=told)
    with saying_how_to_resume(out, file):
        result = follow(rounds, file.rounds, label=file.algorithm.name, quiet=quiet or as_json)
    _finish(result, out, as_json)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A place outside the folder that its experiment file names and that may be written."),
    ] = None,
    allow_code: AllowCode = None,
    rounds: Annotated[int | None, typer.Option(help="Continue up to this many rounds in all.")] = None,
    as_planned: Annotated[
        bool, typer.Option("--as-planned", help="With --rounds: keep what depended on the number of rounds as it was.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="Go on with auto, serial, vectorised, processes or ray, wherever it began.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="Go on on this Ray cluster: auto, host:port, ray://...")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Go on with so many workers; any number gives the same bits.")
    ] = None,
    same_kind: Annotated[
        bool, typer.Option("--same-kind", help="Refuse another kind of processor, which computes other last bits.")
    ] = False,
    keys: Annotated[Path | None, typer.Option(help="For a deployment: the server's folder of keys.")] = None,
    host: Annotated[str | None, typer.Option(help="For a deployment: the address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="For a deployment: the port to listen on (8000).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="For a deployment: no TLS and no keys; on loopback only.")
    ] = False,
    without: Annotated[
        list[str] | None, typer.Option(help="For a deployment: a node of the run to go on without; repeatable.")
    ] = None,
    device: OnDevice = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on where a run stopped. On the same kind of processor the result is that of the uninterrupted run."""
    if os.path.lexists(folder / DEPLOYMENT):
        from fedtempo.cli import deploy

        require(rounds is None, "rounds", "left out for a deployment: its nodes know the number", rounds)
        require(device is None, "device", "left out for a deployment: its nodes have devices of their own", device)
        elsewhere = {"backend": backend, "ray_address": ray_address, "workers": workers}
        for name, asked in elsewhere.items():
            require(asked is None, name, "left out for a deployment: its nodes compute", asked)
        require(not same_kind, "same_kind", "left out for a deployment: its nodes compute, each on its own", same_kind)
        place = (host or ServerPlan.host, ServerPlan.port if port is None else port)
        deploy.resume_server(folder, keys, *place, insecure, as_json, quiet, allow, allow_code, without)
        return
    given = {"keys": keys, "host": host, "port": port, "insecure": insecure or None, "without": without}
    for name, value in given.items():
        require(value is None, name, "left out for a run that is no deployment", value)
    if not (folder / DATABASE).exists():
        raise OutputError(f"a folder to resume must hold a run. Got {folder}, which does not.")
    moved = _elsewhere(backend, ray_address, workers)
    allowed = [*(allow or []), *([ray_address] if ray_address else [])]
    file = read_stored(folder / EXPERIMENT, allowed, allow_code or [], moved)
    if rounds is not None:
        file = with_values(file, {"rounds": rounds})
    if device is not None:
        file = with_values(file, {"device": device_of(device)})
    training = train_file(
        file, folder, resume=True, trackers=trackers_of(file), as_planned=as_planned, same_kind=same_kind
    )
    with saying_how_to_resume(folder, file):
        if rounds is not None:
            training = _noted(training, folder, file)
        result = follow(training, file.rounds, label=file.algorithm.name, quiet=quiet or as_json)
    _finish(result, folder, as_json)


def _elsewhere(backend: str | None, ray_address: str | None, workers: int | None) -> dict[str, object]:
    """Settings to go on elsewhere: what belongs to Ray is left out where that is not Ray. None changes a bit."""
    given = {"backend": backend, "ray_address": ray_address, "workers": workers}
    left = backend not in (None, "ray") and ray_address is None
    without_ray = {"ray_address": None, "ray_gpus": None} if left else {}
    return {**without_ray, **{name: value for name, value in given.items() if value is not None}}


def _noted(
    training: Generator[RoundReport, None, Result], folder: Path, file: ExperimentFile
) -> Generator[RoundReport, None, Result]:
    """The same rounds; once the store has agreed to more of them, the folder's experiment file says so too."""
    try:
        report = next(training)
    except StopIteration as stop:
        write_experiment(folder, file)
        result: Result = stop.value
        return result
    write_experiment(folder, file)
    yield report
    return (yield from training)


def _finish(result: Result, out: Path | None, as_json: bool) -> None:
    if out is not None:
        with writing(out):
            result.export(out)
    if as_json:
        say(json_text(summary(result)))
        return
    console = Terminal()
    console.print(result.table().terminal(console.width))
    page = f"; report {out / REPORT}" if out is not None else ""
    for note in result.notes:
        say(note)
    console.print(f"{result.ran_as}; digest {result.digest()[:16]}{page}", soft_wrap=True)
