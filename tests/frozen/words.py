"""What the program says, frozen in `words.json`: a commit that changes it shows which words.

    python -m tests.frozen.words            compare
    python -m tests.frozen.words --make     make the file anew (each takes about a minute)

Frozen are the help of every command, the error of every setting of `fedtempo.run`, of every algorithm and of every
schedule when it gets a wrong value, the sentences of all errors in the source, and what `fedtempo new` writes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import itertools
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fedtempo as ft
from fedtempo import schedules
from fedtempo.algorithms import ALGORITHMS
from fedtempo.cli.commands import COMMANDS, imported
from tests import ROOT, zoo
from tests.frozen import kept

FILE = Path(__file__).with_name("words.json")
WRONG: tuple[object, ...] = (-1, "wrong", float("nan"), [None], 0.5)


def helps() -> Iterator[tuple[str, object]]:
    """The help of each command, as the terminal shows it."""
    for name in COMMANDS:
        yield from _help_of(f"fedtempo {name}", imported(name))


def _help_of(line: str, command: Any) -> Iterator[tuple[str, object]]:
    options = [f"{'/'.join(one.opts)}: {getattr(one, 'help', None) or ''}".strip() for one in command.params]
    yield f"help: {line}", [*(command.help or "").splitlines(), *options, *(command.epilog or "").splitlines()]
    for name, one in getattr(command, "commands", {}).items():
        yield from _help_of(f"{line} {name}", one)


def base() -> dict[str, Any]:
    usual = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["fedavg"]}
    return {**usual, "rounds": 2, "cohort": 4, "batch_size": 4}


def errors() -> Iterator[tuple[str, object]]:
    """What each call says to wrong values of each of its settings."""
    shared = base()
    yield from _errors_of("run", lambda **given: ft.train(**{**shared, **given}), ft.run, ("out",))
    for name, make in sorted(ALGORITHMS.items()):
        yield from _errors_of(f"algorithms.{name}", _with_needed(make), make)
    for name in schedules.__all__:
        make = getattr(schedules, name)
        if inspect.isfunction(make):
            yield from _errors_of(f"schedules.{name}", _with_needed(make), make)


def _with_needed(make: Callable[..., object]) -> Callable[..., object]:
    """The call with a usable value for every setting that must be given."""
    needed: dict[str, Any] = {}
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            needed[name] = zoo.ALGORITHMS["fedavg"] if name in ("inner", "algorithm", "backbone") else 0.1

    def call(**given: object) -> object:
        lengths = {"steps", "epochs"} & inspect.signature(make).parameters.keys()
        length = {"steps": 2} if len(lengths) == 2 and not lengths & given.keys() else {}
        return make(**{**needed, **length, **given})

    return call


def _errors_of(
    call: str, make: Callable[..., object], signature: Callable[..., object], but: tuple[str, ...] = ()
) -> Iterator[tuple[str, object]]:
    for name, parameter in inspect.signature(signature).parameters.items():
        if name not in but and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            said = {_answer(make, name, value) for value in WRONG} - {""}
            if said:
                yield f"error: {call}, {name}", sorted(said)


def _answer(make: Callable[..., object], name: str, value: object) -> str:
    """The error without the value that was given; empty where there is none."""
    try:
        make(**{name: value})
    except ft.FedTempoError as error:
        return re.sub(r" Got .*", "", str(error), flags=re.S)
    except Exception as error:
        return f"unexpected {type(error).__name__}"
    return ""


def sentences() -> Iterator[tuple[str, object]]:
    """Every error's sentence in the source by its field, wherever its code stands."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("require", "wrong"):
                given = node.args[1:] if ast.unparse(node.func) == "require" else node.args
                if len(given) >= 2:
                    found.setdefault(ast.unparse(given[0]), set()).add(ast.unparse(given[1]))
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = ast.unparse(node.exc.args[0])
                if "'" in text or '"' in text:
                    found.setdefault(ast.unparse(node.exc.func), set()).add(text)
    for field, rules in found.items():
        yield f"sentence: {field}", sorted(rules)


def templates() -> Iterator[tuple[str, object]]:
    """What `fedtempo new` writes for every algorithm."""
    command = imported("new")
    for name in sorted(ALGORITHMS):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            path = Path(folder) / "new.toml"
            try:
                command([str(path), "--data", "digits", "--algorithm", name], standalone_mode=False)
                written = path.read_text(encoding="utf-8").splitlines()
            except ft.FedTempoError as error:
                written = [str(error)]
        yield f"template: {name}", written


def made() -> dict[str, object]:
    return dict(itertools.chain(helps(), errors(), sentences(), templates()))


def compared(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What was said and is said now, entry by entry."""
    lines = []
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            lines.append(name)
            lines += [f"  - {line}" for line in _lines(before.get(name)) if line not in _lines(now.get(name))]
            lines += [f"  + {line}" for line in _lines(now.get(name)) if line not in _lines(before.get(name))]
    return lines


def _lines(entry: object) -> list[str]:
    return [str(line) for line in entry] if isinstance(entry, list) else []


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen.words", description=__doc__.splitlines()[0])
    parser.add_argument("--make", action="store_true", help="write words.json instead of comparing with it")
    if parser.parse_args(arguments).make:
        kept.write(FILE, {}, made())
        print(f"{FILE.relative_to(ROOT)} is written")
        return 0
    lines = compared(kept.read(FILE)[1], made())
    print("\n".join(lines) if lines else "every word is as in words.json")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
