"""The kind of processor: what it is made of, and that the libraries' own switches make it another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedtempo.support.kind import difference, in_words, kind_here


def elsewhere(code: str, **switches: str) -> str:
    """What a program prints in a new process, whose libraries choose their kernels by these switches."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **switches}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_kind_names_the_libraries_and_is_the_same_every_time() -> None:
    kind = kind_here()
    assert kind == kind_here() and kind is not kind_here()
    assert kind["torch"] == f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}"
    assert kind["numpy"].startswith(np.__version__)
    assert len(kind["arithmetic"]) == 12 and kind["arithmetic"] in in_words(kind)


def test_another_instruction_set_is_another_kind() -> None:
    code = "import json; from fedtempo.support.kind import kind_here; print(json.dumps(kind_here()))"
    there = json.loads(elsewhere(code, ATEN_CPU_CAPABILITY="default"))
    here = kind_here()
    if here["torch"] == there["torch"]:
        pytest.skip("torch has one set of kernels for this processor")
    assert there["arithmetic"] != here["arithmetic"]
    assert there["processor"] == here["processor"] and "ATEN_CPU_CAPABILITY=default" in there["switches"]


def test_a_difference_is_told_by_part() -> None:
    assert difference({"torch": "2.13", "numpy": "2"}, {"torch": "2.15", "numpy": "2"}) == (
        "torch 2.13 before, 2.15 now"
    )
    assert difference({"torch": "1"}, {"torch": "1", "switches": "A=1"}) == "switches none before, A=1 now"
    assert difference({}, {"torch": "1"}) == "what it began on was not recorded"
