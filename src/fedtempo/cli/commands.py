"""The commands by name. A command's module is imported when the command is used, so that `--help` is quick."""

from __future__ import annotations

import inspect
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
    text = [getattr(module, known.epilog)()] if known.epilog else []
    if known.examples:
        text.append("\n\n".join(["Examples:", *known.examples]))
    alone.command(name, help=_reflowed(found.__doc__), epilog="\n\n".join(text) or None)(found)
    return typer.main.get_command(alone)


def _reflowed(docstring: str | None) -> str:
    """The text with one line per paragraph: typer keeps line breaks, and a terminal may be narrower than our code."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
