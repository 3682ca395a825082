"""`python -m benchmarks.scaling`: seconds and memory per round against the size of everything, drawn with the slope."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import nn

from benchmarks import report
from benchmarks.measure import alone, tree_memory
from benchmarks.ours import federated, rounds
from benchmarks.workloads import FOLDER, WORKLOADS, Workload, arrays
from fedtempo.papers.framework.svg import Axes, Series
from fedtempo.papers.framework.svg import draw as draw_lines

MARKS = ("<!-- scaling: begin -->", "<!-- scaling: end -->")
SMALL = replace(WORKLOADS["W3"], samples=20)


def network(parameters: int) -> nn.Module:
    """A perceptron from 60 to 10 with about this many parameters."""
    width = max(1, parameters // 71)
    return nn.Sequential(nn.Linear(60, width), nn.ReLU(), nn.Linear(width, 10))


def with_cohort(size: int) -> Workload:
    """10,000 clients, `size` of them a round."""
    return replace(SMALL, cohort=size)


def with_clients(count: int) -> Workload:
    """`count` clients in a mapped file, 1,000 a round."""
    return replace(SMALL, clients=count, mapped=True)


def with_parameters(count: int) -> Workload:
    """`count` parameters, 10 of 100 clients a round."""
    return replace(SMALL, model=partial(network, count), clients=100, cohort=10)


def with_steps(count: int) -> Workload:
    """`count` local steps, 100 of 1,000 clients a round."""
    return replace(SMALL, clients=1_000, cohort=100, steps=count)


AXES: dict[str, tuple[Callable[[int], Workload], list[int]]] = {
    "clients per round": (with_cohort, [10, 30, 100, 300, 1_000, 3_000, 10_000]),
    "clients": (with_clients, [1_000, 10_000, 100_000, 1_000_000]),
    "parameters": (with_parameters, [1_000, 10_000, 100_000, 1_000_000, 10_000_000]),
    "local steps": (with_steps, [1, 3, 10, 30, 100]),
}


def main() -> None:
    """Measure every axis, print the slopes, and keep a figure and the numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=main.__doc__)
    parser.add_argument("--most", type=int, default=10_000_000, help="leave out sizes above this")
    parser.add_argument("--point", nargs=2, metavar=("AXIS", "SIZE"), help="measure one point only, and print it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.point:
        print(json.dumps(point(AXES[chosen.point[0]][0](int(chosen.point[1])))))
        return
    found: dict[str, Any] = {"about": report.about(), "axes": {}}
    for axis, (workload, sizes) in AXES.items():
        points = [{"size": size, **_apart(axis, workload(size), size)} for size in sizes if size <= chosen.most]
        found["axes"][axis] = {"points": points, **{f"slope_of_{m}": slope(points, m) for m in ("seconds", "memory")}}
        print(f"{axis}: time grows with its power {found['axes'][axis]['slope_of_seconds']:.2f}", flush=True)
        for entry in points:
            print(f"  {entry['size']:>10,}  {entry['seconds']:.4f} s  {entry['memory'] / 2**20:.0f} MB", flush=True)
    keep(found)


def _apart(axis: str, workload: Workload, size: int) -> dict[str, Any]:
    """One point in a process of its own, so that no other point's memory is counted."""
    if workload.mapped:
        arrays(workload, FOLDER)
    return alone("benchmarks.scaling", "--point", axis, str(size))


def point(workload: Workload, count: int = 3) -> dict[str, float]:
    """The median seconds of a round, and the memory of the process tree after it."""
    running = rounds(workload, federated(workload, *arrays(workload, FOLDER)), rounds=100)
    next(running)
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        next(running)
        seconds.append(time.perf_counter() - started)
    memory = tree_memory(os.getpid())
    running.close()  # type: ignore[attr-defined]
    return {"seconds": float(np.median(seconds)), "memory": float(memory)}


def slope(points: list[dict[str, float]], measure: str) -> float:
    """The power that the measure grows with over the larger half of the sizes, where fixed costs no longer show."""
    half = points[len(points) // 2 - 1 :] if len(points) > 2 else points
    if len(half) < 2:
        return float("nan")
    sizes, values = (np.log([entry[key] for entry in half]) for key in ("size", measure))
    return float(np.polyfit(sizes, values, 1)[0])


def draw(axis: str, measure: str, points: list[dict[str, float]]) -> str:
    """Seconds or memory against a size, both on logarithmic axes."""
    scale = 1.0 if measure == "seconds" else 2.0**-20
    line = Series(axis, [p["size"] for p in points], [p[measure] * scale for p in points], marks=True)
    unit = "seconds per round" if measure == "seconds" else "MB of memory"
    return draw_lines([line], Axes(f"{unit} against {axis}", axis, unit, log_x=True, log_y=True))


def keep(found: dict[str, Any]) -> None:
    """Write the numbers, the figures, and their part of the page."""
    report.RESULTS.mkdir(exist_ok=True)
    (report.RESULTS / f"scaling-{found['about']['date']}.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [f"Measured on {found['about']['date']} on {found['about']['machine']} ({found['about']['load']})."]
    for axis, measured in found["axes"].items():
        points = measured["points"]
        lines += [
            "",
            f"### Against {axis}",
            "",
            _said(measured),
            "",
            "| | seconds per round | memory |",
            "|---|---|---|",
        ]
        lines += [f"| {p['size']:,} | {p['seconds']:.4f} | {p['memory'] / 2**20:.0f} MB |" for p in points]
        for measure in ("seconds", "memory"):
            name = f"images/scaling-{axis.replace(' ', '-')}-{measure}.svg"
            (report.PAGE.parent / name).write_text(draw(axis, measure, points))
            lines += ["", f"![{measure} against {axis}]({name})"]
    report.write_page("\n".join(lines), *MARKS)


def _said(measured: dict[str, Any]) -> str:
    seconds, memory = measured["slope_of_seconds"], measured["slope_of_memory"]
    return f"Over the larger half, time grows with the power {seconds:.2f} and memory with the power {memory:.2f}."


if __name__ == "__main__":
    main()
