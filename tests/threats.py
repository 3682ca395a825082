"""The threat table: who may try what, what is promised then, and the tests that show it.

    python -m tests.threats          compare SECURITY.md with the table
    python -m tests.threats --write  write the tables of SECURITY.md

The table is `tests/threats.toml`. Everybody in it is asked about each of the five things that can be tried; what is not
promised stands there with its reason, so that nothing is left out in silence.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from typing import Any

from tests import ROOT

TABLE, PAGE = ROOT / "tests" / "threats.toml", ROOT / "SECURITY.md"
TRIES = ("run code", "read", "write", "stop", "mislead")
BEGIN, END = "<!-- made by python -m tests.threats --write -->", "<!-- end of what is made -->"


def table() -> list[dict[str, Any]]:
    """Everybody who may try something, with rows."""
    found: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["who"]
    return found


def pages() -> str:
    """The tables as Markdown."""
    return "\n".join(line for who in table() for line in (*_section(who), "")).rstrip()


def _section(who: dict[str, Any]) -> Iterator[str]:
    yield f"### {who['name']}"
    if who["trusted"]:
        yield who["trusted"]
    yield from ("", "| tries to | on | what happens | test |", "|---|---|---|---|")
    for tries in TRIES:
        for row in (row for row in who["row"] if row["tries"] == tries):
            tests = ", ".join(f"`{test}`" for test in row["tests"])
            yield f"| {tries} | {row['on']} | {row['promise']} | {tests} |"
        if tries in who.get("open", {}):
            yield f"| {tries} | | not promised: {who['open'][tries]} | |"


def written(page: str) -> str:
    """The page with the tables of now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{pages()}\n\n{END}{after}"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        PAGE.write_text(written(page), encoding="utf-8")
    elif written(page) != page:
        sys.exit("threats: SECURITY.md is not what tests/threats.toml says: python -m tests.threats --write")
