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

from benchmarks import handwritten, methods, methods_page, report
from benchmarks.experiments import compare
from benchmarks.experiments.plan import EXPERIMENTS, SMALL
from benchmarks.floor import floor
from benchmarks.measure import alone, in_turn, ratio
from benchmarks.ours import federated, rivals, rounds
from benchmarks.own_modules import OWN, pair, without_recording
from benchmarks.workloads import FOLDER, WORKLOADS, Workload, arrays, by_name

OURS = {
    "W1": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}, "FedTempo, vectorised": {"backend": "vectorised"}},
    "W2": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
    "W3": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
    "W4": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
    "W5": {"FedTempo": {}, "FedTempo, one process": {"workers": 1}},
}
RIVAL = "hand-written, two processes"
FLOOR, ONE = "products alone, one process", "FedTempo, one process"
WITH_FLOOR = ("W1", "W2", "W4")
"""The workloads whose matrix products and convolutions are also timed alone."""
ROUNDS, SHORT = 7, {"W1": 20, "W3": 40}
"""Rounds that count; a round of W3 takes so few milliseconds that seven of them say little."""
PLAIN, OWN_MODULE = "FedTempo", "FedTempo, own module"
UNRECORDED = ", not recorded"
PATIENCE_SECONDS = 900.0
"""What an experiment may take."""
WITH_OWN = ("W1", "W2", "W3", "W4")
"""The workloads whose network is also timed as a class with a `forward` of its own."""


def main() -> None:
    """Measure what was asked for, print it, and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument(
        "workloads", nargs="*", default=list(WORKLOADS), help="W1 to W5, or E1 to E5 with --experiments; all by default"
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds that count, after two that do not; 7, and more of short ones"
    )
    parser.add_argument(
        "--only-rounds", action="store_true", help="leave out start-up, memory, algorithms and profiles"
    )
    parser.add_argument(
        "--own", action="store_true", help="only W1 to W4's networks as own modules, and steps without recording"
    )
    parser.add_argument("--methods", action="store_true", help="only a step of every method against FedAvg's")
    parser.add_argument(
        "--experiments", action="store_true", help="only the whole experiments: E1 to E5 by default, or those named"
    )
    parser.add_argument("--repeats", type=int, default=1, help="runs of each experiment")
    parser.add_argument("--small", action="store_true", help="short experiments, to see that everything works")
    parser.add_argument("--write", action="store_true", help="renew the experiments' part of the page")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.methods:
        methods.main(chosen.rounds or ROUNDS)
        methods_page.write()
        return
    if chosen.experiments:
        _experiments(chosen)
        return
    if chosen.own:
        report.keep_own(_own_results([name for name in chosen.workloads if name in WITH_OWN], chosen.rounds))
        return
    results: dict[str, Any] = {"about": report.about(), "workloads": {}}
    for name in chosen.workloads:
        count = chosen.rounds or SHORT.get(name, ROUNDS)
        results["workloads"][name] = workload_results(WORKLOADS[name], count, chosen.only_rounds)
        report.show(name, results["workloads"][name])
    if not chosen.only_rounds and "W3" in chosen.workloads:
        results["growth"] = alone("benchmarks.single", "W3", "ours", "1000")
    report.keep(results, complete=set(chosen.workloads) == set(WORKLOADS) and not chosen.only_rounds)


def _experiments(chosen: argparse.Namespace) -> None:
    """Whole experiments with FedTempo and the lean loop."""
    names = [name for name in chosen.workloads if name in EXPERIMENTS] or list(EXPERIMENTS)
    for name in names:
        found = compare.measured(name + SMALL if chosen.small else name, {}, chosen.repeats, PATIENCE_SECONDS)
        print("\n".join(compare.lines(found)), flush=True)
        if not chosen.small:
            compare.keep("experiments", {name: found}, chosen.write)


def _own_results(names: list[str], count: int | None) -> dict[str, Any]:
    """Each network as `nn.Sequential` and as an own module, with recorded steps and without, in one run in turn."""
    results: dict[str, Any] = {"about": report.about(), "workloads": {}}
    for name in names:
        workload = WORKLOADS[name]
        print(f"\n{workload.title}", flush=True)
        inputs, labels = arrays(workload, FOLDER)
        with ExitStack() as stack:
            timings = in_turn(own_contenders(workload, inputs, labels, stack), count or SHORT.get(name, ROUNDS))
        results["workloads"][name] = {
            "title": workload.title,
            "seconds": {who: timing._asdict() | {"median": timing.median} for who, timing in timings.items()},
            "ratios": {who: ratio(timing, timings[RIVAL]) for who, timing in timings.items() if who != RIVAL},
            "own": ratio(timings[OWN_MODULE], timings[PLAIN]),
            "recording": {who: ratio(timings[who + UNRECORDED], timings[who]) for who in (PLAIN, OWN_MODULE)},
        }
        report.show(name, results["workloads"][name])
    return results


def own_contenders(workload: Workload, inputs: Any, labels: Any, stack: ExitStack) -> dict[str, Iterator[Any]]:
    """The hand-written loop, and the network in both forms with recorded steps and without."""
    data = federated(workload, inputs, labels)
    contenders = {RIVAL: stack.enter_context(handwritten.processes(workload, inputs, labels))}
    for name, model in zip((PLAIN, OWN_MODULE), pair(workload), strict=True):
        contenders[name] = _closed(stack, rounds(workload, data, model=model))
        with without_recording() as ways:
            contenders[name + UNRECORDED] = _closed(stack, rounds(workload, data, model=model))
            next(contenders[name + UNRECORDED])  # the client program is compiled in the first round
        if not ways:
            raise RuntimeError("recording was not switched off: nothing asked for it")
    return contenders


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
    if OWN_MODULE in timings:
        found["own"] = ratio(timings[OWN_MODULE], timings[PLAIN])
    if FLOOR in timings:
        found["floor"] = ratio(timings[ONE], timings[FLOOR])
    if workload.mapped:
        found["few"] = _few_clients(workload, inputs, labels, count)
    if only_rounds:
        return found
    found["profile"] = _profile(workload, inputs, labels)
    if workload.name in ("W1", "W2"):
        found["algorithms"] = _algorithms(workload, inputs, labels, min(count, 5))
    if workload.name == "W2":
        found["store"] = _store(workload, inputs, labels, count)
    found["alone"] = {"FedTempo": alone("benchmarks.single", workload.name, "ours")}
    if not workload.mapped:
        found["alone"][RIVAL] = alone("benchmarks.single", workload.name, "processes")
    return found


def _contenders(workload: Workload, inputs: Any, labels: Any, stack: ExitStack) -> dict[str, Iterator[Any]]:
    data = federated(workload, inputs, labels)
    contenders = {
        RIVAL: stack.enter_context(handwritten.processes(workload, inputs, labels)),
    }
    if workload.name in WITH_FLOOR:
        contenders[FLOOR] = _closed(stack, floor(workload))
    else:
        contenders["hand-written, sequential"] = stack.enter_context(handwritten.sequential(workload, inputs, labels))
    for name, settings in OURS[workload.name].items():
        contenders[name] = _closed(stack, rounds(workload, data, **settings))
    if workload.name in WITH_OWN and workload.model in OWN:
        contenders[OWN_MODULE] = _closed(stack, rounds(workload, data, model=pair(workload)[1]))
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
