"""The shape of the house in figures, which `make check` prints: nothing fails here, people decide.

python -m tests.counts
"""

from __future__ import annotations

import ast
import inspect
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import fedtempo as ft
from fedtempo.training.log import LOGGER
from tests import ROOT, zoo

SOURCE = ROOT / "src" / "fedtempo"
LAB = ("study", "comparison", "tuning", "papers", "theory", "contracts", "report")
OTHERS = ("deploy", "cli")
MANY = 7
LISTED = 15
"""Settings of `run` that a list must name to count as a list of settings."""


def ring(path: Path) -> str:
    """The ring that a file of the library stands in."""
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "lab" if room in LAB else room if room in OTHERS else "core"


def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.arg not in ("self", "cls")]


def called_once(trees: dict[Path, ast.Module]) -> int:
    """Private functions whose name stands once in their file, besides its definition."""
    found = 0
    for tree in trees.values():
        used = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        used += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        found += sum(one.name.startswith("_") and used[one.name] == 1 for one in functions(tree))
    return found


def lists_of_settings(trees: dict[Path, ast.Module]) -> list[str]:
    """Where most settings of `run` are named one by one: signatures, classes' fields, tables."""
    known = set(inspect.signature(ft.run).parameters)
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.FunctionDef):
                names = parameters(node)
            elif isinstance(node, ast.ClassDef):
                names = [one.target.id for one in node.body if _is_field(one)]
            elif isinstance(node, ast.Dict):
                names = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
            if len(known & set(names)) >= LISTED:
                found.append(f"{path.relative_to(SOURCE)}:{getattr(node, 'name', 'a table')}")
    return found


def _is_field(node: ast.stmt) -> Any:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def opening(trees: dict[Path, ast.Module], name: str) -> list[str]:
    """The files that call a function or a class of this name."""
    return [
        str(path.relative_to(SOURCE))
        for path, tree in trees.items()
        if any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == name for node in ast.walk(tree))
    ]


def heirs(trees: dict[Path, ast.Module], *parents: str) -> list[str]:
    """The classes that have one of these parents."""
    classes = (node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return [node.name for node in classes if {ast.unparse(base) for base in node.bases} & set(parents)]


def on_the_way() -> tuple[int, int]:
    """Files and functions of the library that one plain round enters: FedAvg, serial, without evaluation."""
    plain = ft.algorithms.fedavg(lr=0.1, steps=2)
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": plain, "rounds": 3, "cohort": 2}
    rounds = ft.train(**settings, backend="serial", evaluation=None, batch_size=4)
    next(rounds)
    entered: set[tuple[str, str]] = set()

    def seen(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(seen)
    try:
        next(rounds)
    finally:
        sys.setprofile(None)
        rounds.close()
    named = {one for one in entered if "<" not in one[1].rpartition(".")[2]}
    return len({file for file, _ in entered}), len(named)


def report() -> Iterator[str]:
    trees = parsed()
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    for name in ("core", "lab", *OTHERS):
        own = [path for path in trees if ring(path) == name]
        yield f"{name:7}{len(own):4d} files {sum(lines[path] for path in own):6d} lines"
    everything = [one for tree in trees.values() for one in functions(tree)]
    many = sum(len(parameters(one)) >= MANY for one in everything)
    once = called_once(trees)
    yield f"{len(everything)} functions; {once} private ones with one caller, {many} with {MANY} parameters or more"
    pools, views = opening(trees, "Pool"), heirs(trees, "RunHistory", "FinishedRun")
    yield f"{len(pools)} places start processes for runs: {', '.join(pools)}"
    yield f"{len(views)} views of a run: {', '.join(views)}"
    listed = lists_of_settings(trees)
    yield f"{len(listed)} lists of settings: {', '.join(listed)}"
    files, entered = on_the_way()
    yield f"a plain round enters {entered} functions in {files} files"


if __name__ == "__main__":
    LOGGER.setLevel(logging.ERROR)
    print("\n".join(report()))
