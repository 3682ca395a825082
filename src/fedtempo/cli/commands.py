"""The commands by name. A command's module is imported when the command is used, so that `--help` is quick."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Command(NamedTuple):
    """Where a command is, and what the list of commands says about it: the first line of its own help."""

    module: str
    function: str
    help: str
    epilog: str | None = None
    """A function of the module that makes the text below the command's own help page."""


COMMANDS = {
    "demo": Command(
        "demo",
        "demo",
        "Show what clients can do between two aggregations: eight ways on digits, each at its tuned rate. Offline.",
    ),
    "new": Command("new", "new", "Write a commented experiment file to start from; ask for what is not given."),
    "run": Command("runs", "run", "Train an experiment file and print its table.", "algorithms_text"),
    "resume": Command(
        "runs", "resume", "Go on where a run stopped; the result is that of the uninterrupted run, bit for bit."
    ),
    "export": Command("export", "export_model", "Write a stored run's model to a file that is used without FedTempo."),
    "watch": Command(
        "watch",
        "watch",
        "Serve a live page of a run to this machine's browser. It only reads; the run goes on when it ends.",
    ),
    "schedule": Command(
        "plan",
        "schedule",
        "Print learning rate, weight decay, local steps and the personalization ratio R, by round and by step.",
    ),
    "advise": Command("plan", "advise", "Measure how much clients differ and suggest beta and K decay, with reasons."),
    "compare": Command(
        "compare",
        "compare",
        "Compare runs, paired over seeds and users: scores, differences with intervals, costs, cost to a target.",
    ),
    "tune": Command(
        "tune",
        "tune",
        "Try values of an experiment's fields, and write the best experiment into OUT/best.toml.",
        "grids_text",
    ),
    "reproduce": Command(
        "reproduce",
        "reproduce",
        "Run a paper's table or figure; print its values beside ours and a verdict on each claim.",
    ),
    "doctor": Command(
        "doctor",
        "doctor",
        "Check this machine: versions, threads, linear algebra, workers, accelerators, a short run on each backend.",
    ),
    "data": Command("data", "app", "Data sets: list, get, describe, verify."),
    "deploy": Command("deploy", "app", "Run an experiment on real clients, or try it on this machine."),
}


class LazyCommands(TyperGroup):
    """The group of all commands: it lists them from `COMMANDS`, and imports the one that is used."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.commands = {name: TyperCommand(name, help=one.help) for name, one in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is used, imported."""
        name, listed, rest = super().resolve_command(ctx, args)
        command = None if listed is None else imported(str(name))
        heed_signals()  # until the imports are done, nothing has begun that would have to be ended
        return name, command, rest


def heed_signals() -> None:
    """Both signals end the program as Ctrl-C does: the last round is committed, and one line says so."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def imported(name: str) -> Any:
    """The command itself, with its options."""
    known = COMMANDS[name]
    module = import_module(f"fedtempo.cli.{known.module}")
    found = getattr(module, known.function)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, epilog=known.epilog and getattr(module, known.epilog)())(found)
    return typer.main.get_command(alone)
