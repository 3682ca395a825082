"""`fedtempo study`: a study file, carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtempo.cli.fair import show_fair, told_by
from fedtempo.cli.options import AllowCode, AsJson, Quiet
from fedtempo.study import PLAN, compare_fairly
from fedtempo.study.estimate import duration, seconds_of_study
from fedtempo.study.file import read_study
from fedtempo.support.files import write_atomically
from fedtempo.support.terminal import say
from fedtempo.training.pool import runs_at_once

STUDY = "study.toml"


def study(
    file: Annotated[Path, typer.Argument(help="The study, a TOML file; `fedtempo new --study` writes one.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the study; studies/NAME by default, NAME being the file's.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time, each in one process; by default what is faster.")
    ] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Check the file, print the plan and an estimate of its time, and stop.")
    ] = False,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tune contestants alike, judge them on fresh seeds, and decide claims, as a study file says.

    The whole file is checked before anything runs. The plan and an estimate of the time come first. Finished runs are
    kept in --out: the same command goes on where it was interrupted. While it runs, report.html in the folder shows how
    far it is.
    """
    found = read_study(file, allow_code or [])
    plan = found.plan()
    folder = out or Path("studies") / file.stem
    judged = len(plan.contestants) * len(plan.seeds)
    runs = plan.trials + judged
    at_once = runs_at_once(workers, runs, plan.trials * plan.tuning_rounds + judged * plan.rounds)
    if only_plan or not (quiet or as_json):
        for line in plan.in_words() if only_plan else []:
            say(line)
        took = duration(seconds_of_study(found.tunables, plan, at_once.workers))
        say(f"{runs} runs, at most about {took} ({at_once})", error=not only_plan)
    if only_plan:
        return
    told = told_by(folder / PLAN, quiet or as_json)
    try:
        ended = compare_fairly(found.tunables, plan, folder, workers=at_once.workers, observe=told)
    except KeyboardInterrupt:
        say(f"fedtempo: go on with the same command (what is done is in {folder})", error=True)
        raise
    write_atomically(folder / STUDY, file.read_text(encoding="utf-8-sig"), "out")
    say(ended.json()) if as_json else show_fair(ended, folder)
    if ended.missing:
        raise typer.Exit(1)
