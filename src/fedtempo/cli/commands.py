"""The commands by name. A command's module is imported when the command is used, so that `--help` is quick."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import typer

COMPLETING = "_FEDTEMPO_COMPLETE"
"""The variable by which typer's completion asks the program what may follow."""


class Command(NamedTuple):
    """Where a command is, and what the list of commands says about it: the first line of its own help."""

    module: str
    function: str
    help: str
    epilog: str | None = None
    """A function of the module that makes the text below the command's own help page."""
    examples: tuple[str, ...] = ()
    """Whole command lines, for the end of the help page."""


COMMANDS = {
    "demo": Command(
        "demo",
        "demo",
        "Show what clients can do between two aggregations: eight ways on digits, each at its tuned rate. Offline.",
        examples=(
            "fedtempo demo",
            "fedtempo demo --json",
        ),
    ),
    "new": Command(
        "new",
        "new",
        "Write a commented experiment file to start from, or a study file; ask for what is not given.",
        examples=(
            "fedtempo new",
            "fedtempo new mine.toml --data visits.csv --client patient --target outcome",
        ),
    ),
    "run": Command(
        "runs",
        "run",
        "Train an experiment file and print its table.",
        "algorithms_text",
        examples=(
            "fedtempo run experiment.toml --out runs/a",
            "fedtempo run experiment.toml --set algorithm.beta=0.4 --seed 1 --out runs/b",
        ),
    ),
    "resume": Command(
        "runs",
        "resume",
        "Go on where a run stopped. On the same kind of processor the result is that of the uninterrupted run.",
        examples=(
            "fedtempo resume runs/a",
            "fedtempo resume runs/a --rounds 200",
        ),
    ),
    "export": Command(
        "export",
        "export_model",
        "Write a stored run's model to a file that is used without FedTempo.",
        examples=(
            "fedtempo export runs/a --format safetensors --out model.safetensors",
            "fedtempo export runs/a --format onnx --out model.onnx",
        ),
    ),
    "watch": Command(
        "watch",
        "watch",
        "Serve a live page of a run to this machine's browser. It only reads; stopping it does not stop the run.",
        examples=("fedtempo watch runs/a",),
    ),
    "schedule": Command(
        "plan",
        "schedule",
        "Print learning rate, weight decay, local steps and the personalization ratio R, by round and by step.",
        examples=(
            "fedtempo schedule experiment.toml",
            "fedtempo schedule experiment.toml --algorithms fedavg,feddecay:beta=0.6",
        ),
    ),
    "advise": Command(
        "plan",
        "advise",
        "Measure how much clients differ, and what local steps do to that: diversity, R and drift.",
        examples=("fedtempo advise experiment.toml",),
    ),
    "compare": Command(
        "compare",
        "compare",
        "Compare runs, paired over seeds and users: scores, differences with intervals, costs, cost to a target.",
        examples=(
            "fedtempo compare runs/a runs/b --target 0.8",
            "fedtempo compare experiment.toml --algorithms feddecay,fedprox --seeds 3 --out compared",
            "fedtempo compare experiment.toml --algorithms feddecay,pflego --tune --out decided",
        ),
    ),
    "study": Command(
        "study",
        "study",
        "Tune contestants alike, judge them on fresh seeds, and decide claims, as a study file says.",
        examples=(
            "fedtempo study study.toml --plan",
            "fedtempo study study.toml --out studies/mine --workers 2",
        ),
    ),
    "tune": Command(
        "tune",
        "tune",
        "Try values of an experiment's fields, and write the best experiment into OUT/best.toml.",
        "grids_text",
        examples=("fedtempo tune experiment.toml --grid feddecay --out tuned",),
    ),
    "reproduce": Command(
        "reproduce",
        "reproduce",
        "Run a paper's table or figure; print its values beside ours and a verdict on each claim.",
        examples=(
            "fedtempo reproduce --list --paper pflego --minutes 5",
            "fedtempo reproduce decaying-k-quadratic --scale smoke",
        ),
    ),
    "doctor": Command(
        "doctor",
        "doctor",
        "Check this machine: versions, threads, linear algebra, workers, accelerators, a short run on each backend.",
        examples=("fedtempo doctor",),
    ),
    "data": Command("data", "app", "Data sets: list, get, describe, verify."),
    "deploy": Command("deploy", "app", "Run an experiment on real clients, or try it on this machine."),
}


def add_commands(app: typer.Typer) -> None:
    """List all commands in the program. One that is used is imported then, and takes its arguments as they are."""
    for name, one in COMMANDS.items():
        if COMPLETING in os.environ and one.function == "app":  # a shell asks for what a command takes
            app.add_typer(_alone(name), name=name)
        elif COMPLETING in os.environ:
            _register(app, name)
        else:
            as_they_are = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
            app.command(name, help=one.help, add_help_option=False, context_settings=as_they_are)(_passing_on(name))


def _passing_on(name: str) -> Callable[[typer.Context], None]:
    def pass_on(context: typer.Context) -> None:
        command = imported(name)
        heed_signals()  # until the imports are done, nothing has begun that would have to be ended
        code = command.main(
            args=context.args, prog_name=f"{context.find_root().info_name} {name}", standalone_mode=False
        )
        if code:
            raise typer.Exit(code)

    return pass_on


def heed_signals() -> None:
    """Both signals end the program as Ctrl-C does: the last round is committed, and one line says so."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def imported(name: str) -> Any:
    """The command itself, with its options."""
    return typer.main.get_command(_alone(name))


def _alone(name: str) -> typer.Typer:
    """A program of this command alone."""
    known = COMMANDS[name]
    found = getattr(import_module(f"fedtempo.cli.{known.module}"), known.function)
    if isinstance(found, typer.Typer):
        return found
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    _register(alone, name)
    return alone


def _register(app: typer.Typer, name: str) -> None:
    known = COMMANDS[name]
    module = import_module(f"fedtempo.cli.{known.module}")
    found = getattr(module, known.function)
    text = [getattr(module, known.epilog)()] if known.epilog else []
    if known.examples:
        text.append("\n\n".join(["Examples:", *known.examples]))
    app.command(name, help=_reflowed(found.__doc__), epilog="\n\n".join(text) or None)(found)


def _reflowed(docstring: str | None) -> str:
    """The text with one line per paragraph: typer keeps line breaks, and a terminal may be narrower than our code."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
