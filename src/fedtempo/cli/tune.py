"""`fedtempo tune`: search an experiment file's fields by validation score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.cli.options import (
    AllowCode,
    AsJson,
    ExperimentPath,
    OnDevice,
    Overrides,
    Quiet,
    allowing_code,
    device_override,
    workers_on,
)
from fedtempo.config import overrides_of
from fedtempo.support.terminal import Terminal, say
from fedtempo.training.pool import RunsAtOnce, runs_at_once
from fedtempo.tuning import GRIDS, Found, Record, line_of, plan_search, search, space_of
from fedtempo.tuning.study import SearchPlan


def grids_text() -> str:
    """One line per built-in grid, for the help page."""
    return "Grids:\n\n" + "\n\n".join(f"{name}: {grid.about}" for name, grid in GRIDS.items())


def tune(
    experiment: ExperimentPath,
    grid: Annotated[str | None, typer.Option(help="A paper's algorithm and grid; listed below.")] = None,
    space: Annotated[Path | None, typer.Option(help="A TOML file whose tune table replaces the experiment's.")] = None,
    overrides: Overrides = None,
    device: OnDevice = None,
    allow_code: AllowCode = None,
    method: Annotated[
        str | None, typer.Option(help="grid or hyperband; by default grid if every field is a list of choices.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of hyperband, 30 by default.")] = None,
    sampler: Annotated[
        str, typer.Option(help="How hyperband draws values: random, or tpe, close to those that scored well.")
    ] = "random",
    seeds: Annotated[int, typer.Option(help="Seeds per trial; scores are averaged.")] = 1,
    workers: Annotated[
        int | None, typer.Option(help="Trials at a time, each in one process; by default what is faster.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the search.")] = Path("tune"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the search in the folder.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Try values of an experiment's fields, and write the best experiment into OUT/best.toml.

    The objective is the validation score in the best evaluated round: the mean over existing users after fine-tuning.
    The file's table "tune" says which values are tried, such as "algorithm.lr" = { log = [0.001, 1.0] }; or give a
    --grid.
    """
    found_space = space_of(
        experiment, grid, space, overrides_of([*(overrides or []), *device_override(device)]), allow_code or []
    )
    plan = plan_search(found_space, method, trials, seeds, sampler)
    at_once = _at_once(plan, workers_on(device, workers))
    if not (quiet or as_json):
        say(str(at_once), error=True)

    def show(record: Record, done: int) -> None:
        if not (quiet or as_json):
            say(line_of(record, done, plan.total), error=True)

    try:
        found = search(plan, out, workers=at_once.workers, resume=resume, observe=show)
    except KeyboardInterrupt:
        say(f"fedtempo: go on with the same command and --resume (the search is in {out})", error=True)
        raise
    if as_json:
        say(json.dumps(found.as_dict()))
        return
    _print(found, out)


def _at_once(plan: SearchPlan, workers: int | None) -> RunsAtOnce:
    """Trials side by side where that is faster. Hyperband with several workers would end other trials each time."""
    if plan.method != "grid" and workers is None:
        return RunsAtOnce(1, "hyperband then ends the same trials each time")
    return runs_at_once(workers, plan.total, plan.total * plan.seeds * plan.rounds)


def _print(found: Found, out: Path) -> None:
    console = Terminal()
    console.print(found.table())
    for name, share in found.importances.items():
        console.print(f"importance of {name}: {share:.0%}", soft_wrap=True, highlight=False)
    allowed = allowing_code([dict(found.plan.space.values), found.best.values])
    console.print(f"best: trial {found.best.number}. Run it: fedtempo run {out / 'best.toml'}{allowed}", soft_wrap=True)
