"""The page of faults and the threat model name tests that are there; the page says rightly which of them are long."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

import pytest

from tests import ROOT, threats

SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
LINES = [line for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines() if "::" in line]


@cache
def found_in(path: str) -> dict[str, bool]:
    """The tests of a file, and whether each is slow."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    marks = [node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    everything = any("slow" in ast.unparse(mark) for mark in marks)
    return {
        node.name: everything or any("mark.slow" in ast.unparse(part) for part in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("line", LINES, ids=[line.split("|")[1].strip() for line in LINES])
def test_every_named_test_is_there_and_runs_when_the_page_says(line: str) -> None:
    named = re.findall(r"`(tests/[^`]+)::(\w+)`", line)
    when = line.rstrip(" |").rpartition("|")[2].strip()
    slow = {name: found_in(path)[name] for path, name in named}
    assert slow
    if when == "every time":
        assert not any(slow.values())
    elif when == "long":
        assert all(slow.values())
    else:
        assert len(set(slow.values())) == 2


@pytest.mark.parametrize("who", threats.table(), ids=lambda who: who["name"])
def test_every_promise_of_the_threat_table_has_its_test(who: dict[str, Any]) -> None:
    for row in who["row"]:
        assert row["promise"]
        assert row["tests"], row["on"]
        for test in row["tests"]:
            path, _, name = test.partition("::")
            assert name in found_in(path), test


@pytest.mark.parametrize("who", threats.table(), ids=lambda who: who["name"])
def test_everybody_is_asked_about_everything(who: dict[str, Any]) -> None:
    """What is not promised says why, and where something is, that is no excuse."""
    promised, excused = {row["tries"] for row in who["row"]}, who.get("open", {})
    assert promised | set(excused) == set(threats.TRIES)
    assert not promised & set(excused)
    assert all(excused.values())


def test_security_says_what_the_threat_table_says() -> None:
    assert threats.written(SECURITY) == SECURITY, "python -m tests.threats --write"
