"""Which functions of the library a piece of a program enters; `python -m tests.tracing` prints those of a round."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import fedtempo as ft
from tests.one_weight import OneWeight, clients_of

SOURCE = Path(ft.__file__).parent
UNNAMED = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>")


class Trace(NamedTuple):
    """What was entered, in the order of first entry, and how often control passed to another file."""

    functions: list[tuple[str, str]]
    """File, below the package, and qualified name."""
    changes: int
    depth: int

    @property
    def files(self) -> list[str]:
        """The files, in the order of first entry."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    @property
    def named(self) -> list[tuple[str, str]]:
        """The functions that have a name."""
        return [(file, name) for file, name in self.functions if not name.endswith(UNNAMED)]


def traced(piece: Callable[[], object]) -> Trace:
    """Run a piece of a program and say what it entered."""
    seen: dict[tuple[str, str], None] = {}
    stack: list[str] = []
    changes = deepest = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes, deepest
        place = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not place.is_relative_to(SOURCE):
            return
        file = str(place.relative_to(SOURCE))
        if event == "return":
            if stack:
                stack.pop()
            return
        changes += bool(stack) and stack[-1] != file
        stack.append(file)
        deepest = max(deepest, len(stack))
        seen.setdefault((file, frame.f_code.co_qualname))

    sys.setprofile(watch)
    try:
        piece()
    finally:
        sys.setprofile(None)
    return Trace(list(seen), changes, deepest)


def plain_round(**settings: Any) -> Trace:
    """A later round of plain FedAvg: three clients one by one, no evaluation, no folder.

    The rounds before it have made what is made once, such as recordings of gradients.
    """
    usual = {"rounds": 9, "batch_size": 2, "evaluation": None, "backend": "serial", "workers": 1}
    algorithm = settings.pop("algorithm", None) or ft.algorithms.fedavg(lr=0.25, steps=2)
    data = clients_of([1.0, 2.0], [3.0, 1.0], [5.0, 6.0])
    rounds = ft.train(model=OneWeight(), data=data, algorithm=algorithm, **{**usual, **settings})
    for _ in range(4):
        next(rounds)
    trace = traced(lambda: next(rounds))
    rounds.close()
    return trace


if __name__ == "__main__":
    trace = plain_round()
    for file, name in trace.functions:
        print(f"{file:40} {name}")
    print(
        f"{len(trace.files)} files, {len(trace.named)} named functions of {len(trace.functions)}, "
        f"{trace.changes} changes of file, depth {trace.depth}"
    )
