"""The benchmarks can be started: every module of theirs is there and imports what exists."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tests import ROOT

MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "benchmarks").rglob("*.py")
    if not path.name.startswith(("run_", "pfl_", "flower_"))  # those run in the peers' own environments
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_finds_what_it_imports(name: str) -> None:
    assert importlib.import_module(name) is not None


def test_a_round_is_timed() -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    assert "W1 to W5" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
