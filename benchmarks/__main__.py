"""`python -m benchmarks`: W1 to W5 with FedTempo and with hand-written loops, in turn and in one run."""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from benchmarks import handwritten, report
from benchmarks.measure import alone, in_turn, ratio
from benchmarks.ours import federated, rivals, rounds
from benchmarks.workloads import FOLDER, WORKLOADS, Workload, arrays, by_name

OURS = {
    "W1": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}, "FedTempo, vectorised": {"backend": "vectorised"}},
    "W2": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
    "W3": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
    "W4": {"FedTempo": {}},
    "W5": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
}
RIVAL = "hand-written, two processes"


def main() -> None:
    """Measure what was asked for, print it, and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help="W1 to W5; all by default")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count, after two that do not")
    parser.add_argument(
        "--only-rounds", action="store_true", help="leave out start-up, memory, algorithms and profiles"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"about": report.about(), "workloads": {}}
    for name in chosen.workloads:
        results["workloads"][name] = workload_results(WORKLOADS[name], chosen.rounds, chosen.only_rounds)
        report.show(name, results["workloads"][name])
    if not chosen.only_rounds and "W3" in chosen.workloads:
        results["growth"] = alone("benchmarks.single", "W3", "ours", "1000")
    report.keep(results, complete=set(chosen.workloads) == set(WORKLOADS) and not chosen.only_rounds)


def workload_results(workload: Workload, count: int, only_rounds: bool) -> dict[str, Any]:
    """Everything about one workload."""
    print(f"\n{workload.title}", flush=True)
    inputs, labels = arrays(workload, FOLDER)
    found: dict[str, Any] = {"title": workload.title}
    with ExitStack() as stack:
        contenders = _contenders(workload, inputs, labels, stack)
        timings = in_turn(contenders, count)
    found["seconds"] = {name: timing._asdict() | {"median": timing.median} for name, timing in timings.items()}
    found["ratios"] = {name: ratio(timing, timings[RIVAL]) for name, timing in timings.items() if name != RIVAL}
    if workload.mapped:
        found["few"] = _few_clients(workload, inputs, labels, count)
    if only_rounds:
        return found
    found["profile"] = _profile(workload, inputs, labels)
    if workload.name in ("W1", "W2"):
        found["algorithms"] = _algorithms(workload, inputs, labels, count)
    if workload.name == "W2":
        found["store"] = _store(workload, inputs, labels, count)
    found["alone"] = {"FedTempo": alone("benchmarks.single", workload.name, "ours")}
    if not workload.mapped:
        found["alone"][RIVAL] = alone("benchmarks.single", workload.name, "processes")
    return found


def _contenders(workload: Workload, inputs: Any, labels: Any, stack: ExitStack) -> dict[str, Iterator[Any]]:
    data = federated(workload, inputs, labels)
    contenders = {
        "hand-written, sequential": stack.enter_context(handwritten.sequential(workload, inputs, labels)),
        RIVAL: stack.enter_context(handwritten.processes(workload, inputs, labels)),
    }
    for name, settings in OURS[workload.name].items():
        contenders[name] = _closed(stack, rounds(workload, data, **settings))
    return contenders


def _closed(stack: ExitStack, running: Iterator[Any]) -> Iterator[Any]:
    stack.callback(running.close)  # type: ignore[attr-defined]
    return running


def _few_clients(workload: Workload, inputs: Any, labels: Any, count: int) -> dict[str, Any]:
    """The same cohort from a million and from ten thousand clients, and how long the million take to open."""
    few = by_name(f"{workload.name}-few")
    started = time.perf_counter()
    opened = federated(workload, *arrays(workload, FOLDER))
    opened.check()
    seconds = time.perf_counter() - started
    with ExitStack() as stack:
        timings = in_turn(
            {
                "million": _closed(stack, rounds(workload, opened)),
                "few": _closed(stack, rounds(few, federated(few, *arrays(few, FOLDER)))),
            },
            4 * count,
        )
    return {"opening": seconds, "ratio": ratio(timings["million"], timings["few"])}


def _profile(workload: Workload, inputs: Any, labels: Any) -> dict[str, float]:
    """The share of a round's time that each part of the library takes itself; the rest is torch's and numpy's."""
    running = rounds(workload, federated(workload, inputs, labels), workers=1)
    next(running)
    with cProfile.Profile() as profile:
        for _ in range(3):
            next(running)
    running.close()
    spent: dict[str, float] = {}
    for (path, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        part = re.search(r"fedtempo/(\w+)", path)
        name = part[1] if part else "torch, numpy and Python"
        spent[name] = spent.get(name, 0.0) + own
    return {name: own / sum(spent.values()) for name, own in sorted(spent.items(), key=lambda item: -item[1])}


def _algorithms(workload: Workload, inputs: Any, labels: Any, count: int) -> dict[str, Any]:
    """Time per round of the papers' algorithms over FedAvg's, all with as many steps, in one process."""
    data = federated(workload, inputs, labels)
    with ExitStack() as stack:
        contenders = {
            name: _closed(stack, rounds(workload, data, algorithm, workers=1))
            for name, algorithm in rivals(workload).items()
        }
        timings = in_turn(contenders, count)
    return {name: ratio(timing, timings["FedAvg"]) for name, timing in timings.items() if name != "FedAvg"}


def _store(workload: Workload, inputs: Any, labels: Any, count: int) -> dict[str, Any]:
    """Time per round with every round committed to disk, over the same without."""
    data = federated(workload, inputs, labels)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=_made(FOLDER)))
        durable = rounds(workload, data, out=Path(folder) / "run")
        contenders = {"durable": _closed(stack, durable), "memory": _closed(stack, rounds(workload, data))}
        timings = in_turn(contenders, count)
    return {"ratio": ratio(timings["durable"], timings["memory"])}


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
