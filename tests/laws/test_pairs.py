"""Which wrapper goes around which algorithm. `python -m` this file writes the tables of docs/wrappers.md anew, and the
column "goes with" of docs/methods.md."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.client.transforms import momentum
from tests import zoo
from tests.slow import slow_but

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wrappers.md"
MAP = PAGE.with_name("methods.md")
Wrap = Callable[[ft.Algorithm], ft.Algorithm]
NEED = {
    "fednar": {"weight_decay": 0.05, "max_norm": 0.5},
    "clip_then_decay": {"weight_decay": 0.05, "max_norm": 0.5},
    "stop_early": {"relative": 0.5},
    # What an algorithm with an upload of its own needs; around the others both ways are possible.
    "fedinit": {"sends": "displacements"},
    "fedhyper_client": {"step": 0.01},
    "adaptive_decay": {"rate": zoo.half, "decay": zoo.tenth},
    "server_decay": {"decay": 0.01},
    "loss_weighted": {"power": 1.0},
}
"""Settings of wrappers that have no default, or whose default is not the one that fits most."""
GIVEN = {"fedavg": a.fedavg(lr=0.1, epochs=2)}
"""Algorithms whose example in the zoo has a rate that changes over rounds."""


def is_wrapper(name: str) -> bool:
    return "algorithm" in inspect.signature(ft.algorithms.ALGORITHMS[name]).parameters


def _wrap(name: str) -> Wrap:
    return lambda algorithm: ft.algorithms.ALGORITHMS[name](algorithm, **NEED.get(name, {}))


BASES = {
    name: GIVEN.get(name) or next(each for each in zoo.EVERYTHING.values() if each.name == name)
    for name in ft.algorithms.ALGORITHMS
    if not is_wrapper(name)
}
WRAPPERS: dict[str, Wrap] = {name: _wrap(name) for name in ft.algorithms.ALGORITHMS if is_wrapper(name)}
WRAPPERS["with_server"] = lambda algorithm: a.with_server(algorithm, momentum(0.5), 0.9)
WRAPPERS["with_head"] = a.with_head
INNER = {**BASES, **{name: wrap(GIVEN["fedavg"]) for name, wrap in WRAPPERS.items()}}
PAIRS = [(inner, outer) for inner in INNER for outer in WRAPPERS]


def refusal(inner: str, outer: str) -> str | None:
    """Why the pair is refused; None where it is not."""
    try:
        WRAPPERS[outer](INNER[inner])
    except ft.ConfigError as error:
        return str(error)
    return None


def _in_short(reason: str | None, outer: str) -> str | None:
    """The rule alone, without the names of the two."""
    return None if reason is None else reason.partition(" Got ")[0].replace(outer, "The wrapper", 1)


def tables() -> str:
    """Both tables and the reasons, in Markdown."""
    reasons: dict[str, int] = {}
    lines: list[str] = []
    for title, inners in (("algorithm", BASES), ("wrapper, around FedAvg", WRAPPERS)):
        lines += [
            f"| {title} | " + " | ".join(f"`{name}`" for name in WRAPPERS) + " |",
            "|---" * (len(WRAPPERS) + 1) + "|",
        ]
        for inner in inners:
            cells = []
            for outer in WRAPPERS:
                reason = _in_short(refusal(inner, outer), outer)
                cells.append("yes" if reason is None else f"no ({reasons.setdefault(reason, len(reasons) + 1)})")
            lines.append(f"| `{inner}` | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, *(f"{number}. {reason}" for reason, number in reasons.items())])


MODEL = {
    "moon": "needs a body and a head",
    "fedbn": "needs BatchNorm",
    **dict.fromkeys(("fedsa_lora", "ffa_lora", "fedex_lora"), "needs adapters"),
}
"""What methods need of the model."""


def goes_with(name: str) -> str:
    """A method's place in the tables in words: every wrapper, or every algorithm, but those that are refused."""
    if name in WRAPPERS:
        inside, outside = ([i for i in some if refusal(i, name)] for some in (BASES, WRAPPERS))
        parts = ["every algorithm" + _but(inside), *([f"not around {_list(outside)}"] if outside else [])]
    else:
        parts = ["every wrapper" + _but([outer for outer in WRAPPERS if refusal(name, outer)])]
    return "; ".join([*parts, *([MODEL[name]] if name in MODEL else [])])


def _but(names: list[str]) -> str:
    return f" but {_list(names)}" if names else ""


def _list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def filled(page: str) -> str:
    """The map with the column "goes with" as the tables have it."""
    lines = page.splitlines(keepends=True)
    for number, line in enumerate(lines):
        cells = line.split(" | ")
        name = cells[0].removeprefix("| `").removesuffix("`")
        if len(cells) == 7 and name in ft.algorithms.ALGORITHMS:
            lines[number] = " | ".join([*cells[:4], goes_with(name), *cells[5:]])
    return "".join(lines)


def test_the_map_says_what_the_tables_say() -> None:
    text = MAP.read_text(encoding="utf-8")
    assert filled(text) == text, "write it anew with python -m tests.laws.test_pairs"
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `") for row in rows if len(row) == 7} == set(ft.algorithms.ALGORITHMS)


def test_the_page_has_the_tables() -> None:
    assert tables() in PAGE.read_text(encoding="utf-8"), "write them anew with python -m tests.laws.test_pairs"


def test_most_pairs_run_and_every_refusal_has_its_rule() -> None:
    refused = {pair: refusal(*pair) for pair in PAIRS if refusal(*pair)}
    assert len(refused) < len(PAIRS) / 4
    assert all(" must " in reason and " Got " in reason for reason in refused.values())
    assert {("fedexp", "fedhyper_global"), ("fedadamw", "fednar"), ("diloco", "fednar")} <= set(refused)
    assert {("delta_sgd", "fedsps"), ("fedsam", "fedlesam"), ("fedspeed", "fedsam")} <= set(refused)
    assert not {("fedper", "delta_sgd"), ("scaffold", "fednar"), ("fedadam", "fedsam")} & set(refused)
    assert ("fedexp", "with_server") not in refused


RUN = [pair for pair in PAIRS if refusal(*pair) is None]
OFTEN = [
    *(("apfl", "delta_sgd"), ("scaffold", "fedsam"), ("fednova", "stop_early")),
    *(("feddyn", "fedinit"), ("ditto", "fedlesam"), ("pflego", "fedsps"), ("fedex_lora", "with_server")),
    *(("fedexp", "with_head"), ("with_head", "fedinit"), ("fedadamw", "with_head")),
    *(
        ("scaffold", "fedhyper_server"),
        ("fedex_lora", "fedhyper_client"),
        ("fedexp", "with_server"),
    ),  # a state inside that of another server
]


@pytest.mark.parametrize("pair", slow_but(OFTEN, RUN, "each half of the pair is tried in other pairs"), ids="-".join)
def test_the_pair_keeps_the_contract(pair: tuple[str, str]) -> None:
    inner, outer = pair
    ft.check_algorithm(WRAPPERS[outer](INNER[inner]), **({"model": zoo.model("lora")} if inner in zoo.LORA else {}))


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- pairs -->\n\n", "\n\n<!-- end of pairs -->"
    head, rest = text.split(start)
    MAP.write_text(filled(MAP.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(head + start + tables() + end + rest.split(end)[1], encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {len(PAIRS)} pairs\n")
