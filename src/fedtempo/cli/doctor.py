"""`fedtempo doctor`: what this machine computes with, and whether every backend gives the same numbers on it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from fedtempo.cli.options import AsJson
from fedtempo.contracts.machine import BackendTrial, Examination, examine
from fedtempo.support.terminal import Terminal, say

UNSOUND = 1


def doctor(
    ray: Annotated[
        bool, typer.Option("--ray/--no-ray", help="Also try Ray if it is installed; it starts slowly.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check this machine: versions, threads, linear algebra, workers, accelerators, a short run on each backend.

    The exit code is 0 if every backend that can run here gives the numbers of the serial run, else 1.
    """
    found = examine(ray)
    if as_json:
        say(json.dumps(_plain(found), indent=2))
    else:
        _show(found)
    if not found.sound:
        raise typer.Exit(UNSOUND)


def _plain(found: Examination) -> dict[str, object]:
    return {"sound": found.sound, "machine": found.facts, "backends": [trial._asdict() for trial in found.trials]}


def _show(found: Examination) -> None:
    table = Table(box=None, show_header=False)
    for what, words in found.facts.items():
        table.add_row(what, words)
    runs = Table("backend", "seconds", "digest", "", box=None)
    for trial in found.trials:
        runs.add_row(*_row(trial))
    terminal = Terminal()
    terminal.print(table)
    terminal.print()
    terminal.print(runs)
    terminal.print()
    wrong = [trial.name for trial in found.trials if not trial.sound]
    say("All that can run here gives the same numbers." if not wrong else f"Not sound: {', '.join(wrong)}.")


def _row(trial: BackendTrial) -> tuple[str, str, str, str]:
    seconds = "" if trial.seconds is None else f"{trial.seconds:.2f}"
    return trial.name, seconds, trial.digest[:12], trial.verdict
