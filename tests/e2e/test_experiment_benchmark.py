"""Whole experiments in the benchmark: the loop and FedTempo do the same work, and a contender's end is seen."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import report
from benchmarks.experiments import compare, data, loop, ours
from benchmarks.experiments.alone import timed
from benchmarks.experiments.methods import METHODS
from benchmarks.experiments.plan import EXPERIMENTS, by_name, cohort, due
from benchmarks.experiments.site import Site
from benchmarks.experiments.table import MARK
from benchmarks.peers.coming_from import FOLDER, PAGES, halves

from tests.slow import slow_but


@pytest.mark.parametrize("name", slow_but(["E2"], sorted(EXPERIMENTS), "trains a whole experiment twice"))
def test_fedtempo_and_the_loop_end_with_the_same_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    few = {"clients": 4, "cohort": 2, "rounds": 2, "every": 1}
    # Random crops are the one thing that is not agreed.
    experiment = replace(by_name(name), augments=False, **few)
    for method in experiment.methods:
        rows, shared = loop.run(experiment, method)
        result = ours.run(experiment, method)
        assert [number for number, _ in rows] == [1, 2]
        assert result.scores is not None
        ends = [result.scores.existing_before, result.scores.existing_after][: 1 + experiment.tunes]
        assert rows[-1][1] == pytest.approx([end.summary("accuracy")["mean"] for end in ends], abs=0.03)
        first = METHODS[method].first(Site(experiment, data.columns(experiment), lean=True))[0]
        for tensor in (n for n in result.last.shared if n in shared):
            way = (shared[tensor] - first[tensor]).norm()
            assert (result.last.shared[tensor] - shared[tensor]).norm() <= 0.01 * way + 1e-5, tensor


@pytest.mark.parametrize("method", ["FedAvg", "FedPer", "FedRep", "Ditto", "PFLEGO"])
def test_plain_and_lean_torch_take_the_same_steps(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    experiment = replace(by_name("E2"), clients=4, cohort=2, steps=42, batch=20)
    found = []
    for lean in (True, False):
        site = Site(experiment, data.columns(experiment), lean)
        sent, kept = METHODS[method].first(site)
        found.append(METHODS[method].client(site, 1, sent, kept))
    for mine, theirs in zip(*found, strict=True):
        assert list(mine) == list(theirs)
        assert all(torch.allclose(mine[n], theirs[n], atol=1e-5) for n in mine)
    assert any(not torch.equal(found[0].upload[n], sent[n]) for n in sent)


def test_every_small_experiment_scores_twice_and_ends_with_a_score() -> None:
    for name in EXPERIMENTS:
        small = by_name(f"{name}-small")
        scored = [number for number in range(small.rounds) if due(small, number)]
        assert len(scored) == 2 and scored[-1] == small.rounds - 1
        assert len(set(cohort(small, 0))) == small.cohort <= small.clients


WAIT = "threading.Event().wait"


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_the_clock_stops_at_the_results_and_memory_is_seen(tmp_path: Path) -> None:
    line = MARK + json.dumps({"scores": {"FedAvg": [[1, [0.5]]]}, "versions": {}})
    busy = f"import threading; x = bytearray(1 << 26); {WAIT}(0.6); print({line!r}, flush=True); {WAIT}(0.6)"
    found = timed(program(busy), tmp_path / "log", 30)
    assert 0.6 <= found["seconds"] < 30 and found["memory"] > 1 << 26
    assert found["scores"] == {"FedAvg": [[1, [0.5]]]}


@pytest.mark.parametrize(
    ("text", "patience", "reason"),
    [
        ("raise ValueError('no such layer')", 30, "no such layer"),
        (f"import threading; {WAIT}(30)", 0.3, "more than 0 s, stopped"),
    ],
)
def test_a_contender_that_does_not_end_well_is_named(text: str, patience: float, reason: str, tmp_path: Path) -> None:
    assert reason in timed(program(text), tmp_path / "log", patience)["failed"]


def test_a_child_that_outlives_its_contender_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    line = MARK + json.dumps({"scores": {"FedAvg": [[1, [0.5]]]}, "versions": {}})
    # The child has the pipe of results open long after its parent has ended.
    leaves = f"import os, threading\nif os.fork():\n print({line!r}, flush=True)\nelse:\n {WAIT}(60)"
    started = time.monotonic()
    assert timed(program(leaves), tmp_path / "log", 30)["scores"] == {"FedAvg": [[1, [0.5]]]}
    assert time.monotonic() - started < 20


def test_who_is_stopped_stays_in_the_table_with_a_lower_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    monkeypatch.setattr(compare, "FOLDER", tmp_path)
    line = MARK + json.dumps({"scores": {"FedAvg": [[4, [0.5, 0.5]]]}, "versions": {}})
    monkeypatch.setattr(compare, "own", lambda module: lambda experiment: program(f"print({line!r})"))
    peers = {"Slow": lambda experiment: program(f"import threading; {WAIT}(60)"), "Same": compare.own("loop")}
    found = compare.measured("E2-small", peers, 1, 3)
    ours = found["contenders"][compare.OURS]["median"]
    rows = compare.lines(found)
    assert f"| Slow | more than 3 s, stopped | more than {3 / ours:.1f} | - | - | - |" in rows
    assert any(row.startswith("| Same |") and "failed" not in row for row in rows)


def test_other_work_is_a_failure_and_pages_keep_what_was_measured_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    monkeypatch.setattr(compare, "FOLDER", tmp_path)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{compare.START}\nold\n{compare.END}\nafter\n")
    monkeypatch.setitem(compare.PAGES, "experiments", page)

    def ends_with(score: float) -> compare.Command:
        line = MARK + json.dumps({"scores": {"FedAvg": [[4, [score, score]]]}, "versions": {}})
        return lambda experiment: program(f"print({line!r})")

    monkeypatch.setattr(compare, "own", lambda module: ends_with(0.5))
    found = compare.measured("E2-small", {"Same": ends_with(0.51), "Other": ends_with(0.9)}, 1, 30)
    assert "not the same work" in found["contenders"]["Other"]["failed"]
    assert np.isfinite(found["contenders"]["Same"]["median"])
    compare.keep("experiments", {"E2": found}, write_page=True)
    compare.keep("experiments", {"E1": found}, write_page=True)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "\nold\n" not in text
    assert text.count("| Same |") == 2 and "The fastest other framework is Same" in text


@pytest.mark.parametrize("page", PAGES)
def test_pages_for_newcomers_have_both_halves(page: str) -> None:
    text, (ours_half, theirs_half) = (FOLDER / f"{page}.md").read_text(), halves(page)
    assert "import fedtempo" in ours_half and "digits.npz" in theirs_half
    compile(theirs_half, page, "exec")
    assert "`accuracy 0." in text
