"""`fedtempo demo`: the four ideas beside FedAvg, FedSGD and local training, each at its own tuned rate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.cli.demo_page import KINDS, DemoFindings
from fedtempo.cli.demo_runs import ROUNDS, SEEDS, run_demo, tune_demo
from fedtempo.cli.options import AsJson, OnDevice, Quiet, workers_on, writable
from fedtempo.errors import is_count, require
from fedtempo.support.accelerator import CPU, device_of
from fedtempo.support.json_text import json_text
from fedtempo.support.terminal import Terminal, say


def demo(
    rounds: Annotated[int, typer.Option(help="Rounds of each run; the rates were tuned for 40.")] = ROUNDS,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = SEEDS,
    out: Annotated[Path, typer.Option(help="Folder for the report page and the chart.")] = Path("demo"),
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time, each in a process; by default one a processor, two at most.")
    ] = None,
    device: OnDevice = None,
    tune: Annotated[bool, typer.Option("--tune", help="Search the rates that the demo uses, and print them.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what clients can do between two aggregations: eight ways on digits, each at its tuned rate. Offline."""
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    require(is_count(seeds), "seeds", "an int >= 1", seeds)
    require(workers is None or is_count(workers), "workers", "an int >= 1", workers)
    place = CPU if device is None else device_of(device)
    writable(out)
    at_once = workers_on(device, workers) or min(2, os.cpu_count() or 1)
    silent = quiet or as_json
    if tune:
        tell = lambda done, total, name: _tell(silent, f"{done}/{total}: {name}")  # noqa: E731
        observed = tune_demo(out, rounds, at_once, tell, place)
        say(json_text({f"{alpha:g}": found for alpha, found in observed.items()}, indent=None if as_json else 1))
        return
    runs = run_demo(
        rounds, seeds, at_once, lambda done, total: _tell(silent or done % seeds > 0, f"{done} of {total} runs"), place
    )
    found = DemoFindings(runs, rounds)
    page = found.write(out, f"fedtempo demo --rounds {rounds} --seeds {seeds}")
    if as_json:
        say(json_text({**found.as_dict(), "report": str(page)}))
        return
    _show(found, page)


def _tell(silent: bool, text: str) -> None:
    if not silent:
        say(text, error=True)


def _show(found: DemoFindings, page: Path) -> None:
    console = Terminal()
    console.print(found.table().terminal(console.width))
    console.print()
    for line in found.sentences():
        say(line)
    console.print(
        f"\nExisting users by beta (0 is FedSGD, 1 is FedAvg); o before, x after fine-tuning, {found.seeds} seeds:\n"
    )
    for line in found.charts():
        say(line)
    console.print()
    for line in found.trade_off():
        say(line)
    kind = next(iter(KINDS.values()))
    console.print(
        f"Every contestant has {found.rounds} rounds, the rate that was best for it on other seeds (fedtempo demo "
        f"--tune) and one epoch of fine-tuning at one rate. The table is for the {kind}. Curves and users: {page}",
        soft_wrap=True,
    )
