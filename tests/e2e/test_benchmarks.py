"""The benchmarks can be started: every module of theirs is there and imports what exists."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from benchmarks import advice, clock, handwritten
from benchmarks.__main__ import OWN_MODULE, PLAIN, RIVAL, UNRECORDED, own_contenders
from benchmarks.floor import floor, products
from benchmarks.ours import federated, rounds
from benchmarks.own_modules import pair, without_recording
from benchmarks.workloads import WORKLOADS, Workload, arrays

from fedtempo.client.gradients import Replayed
from tests import ROOT
from tests.programs import script_ended

MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "benchmarks").rglob("*.py")
    # Those run in the peers' own environments.
    if not path.name.startswith(("run_", "pfl_", "flower_", "fedlab_", "fedjax_"))
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_finds_what_it_imports(name: str) -> None:
    assert importlib.import_module(name) is not None


@pytest.mark.parametrize(
    ("module", "function", "usual"),
    [(clock, "measured", ["W1", "W2", "W3"]), (advice, "tested", list(advice.FEDERATIONS))],
    ids=["clock", "advice"],
)
def test_without_names_the_usual_ones_are_measured(
    module: ModuleType, function: str, usual: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(module, function, lambda name, *more: done.append(name))
    for given, expected in (([], usual), (usual[1:2], usual[1:2])):
        done.clear()
        monkeypatch.setattr(sys, "argv", [module.__name__, *given])
        module.main()
        assert done == expected


def test_the_program_says_what_it_measures() -> None:
    assert "W1 to W5" in script_ended(ROOT / "benchmarks" / "__main__.py", "--help", directory=ROOT).stdout


def small(name: str) -> Workload:
    return replace(WORKLOADS[name], clients=6, samples=12, cohort=3, batch=4, steps=4)


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
def test_own_modules_and_steps_without_recording_compute_the_same_numbers(name: str) -> None:
    workload = small(name)
    data = federated(workload, *arrays(workload, Path()))

    def trained(model: torch.nn.Module) -> list[torch.Tensor]:
        with closing(rounds(workload, data, model=model, rounds=2, workers=1)) as running:
            return list([*running][-1].params.values())

    plain, own = pair(workload)
    expected = trained(plain)
    with without_recording() as ways:
        unrecorded = trained(own)
    assert ways, "something asked for a recording"
    for ours in (trained(own), unrecorded):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(ours, expected, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(expected, plain.state_dict().values(), strict=True))


def test_the_contenders_are_recorded_or_not_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Replayed] = []
    replay = Replayed.__call__
    monkeypatch.setattr(Replayed, "__call__", lambda self, *given: asked.append(self) or replay(self, *given))
    monkeypatch.setattr(handwritten, "processes", lambda *given: nullcontext(iter(range(9))))  # it starts two processes
    workload = small("W3")
    found = {}
    with ExitStack() as stack:
        contenders = own_contenders(workload, *arrays(workload, Path()), stack)
        for name, running in contenders.items():
            asked.clear()
            next(running)
            found[name] = bool(asked)
    own = {OWN_MODULE: True, OWN_MODULE + UNRECORDED: False}
    assert found == {RIVAL: False, PLAIN: True, PLAIN + UNRECORDED: False, **own}


@pytest.mark.parametrize(("name", "count"), [("W1", 5), ("W2", 10)])
def test_the_floor_is_the_products_of_a_round_and_nothing_else(name: str, count: int) -> None:
    """Forward one a layer; backward two a layer, but for the first, whose inputs need no gradient."""
    assert len(products(WORKLOADS[name], 4)) == count  # a convolution's two come as one operation
    running = floor(small(name))
    assert next(running) is None and next(running) is None
