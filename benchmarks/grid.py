"""`python -m benchmarks.grid`: where running clients side by side pays, over model, batch size and cohort.

The rule in `fedtempo/backends/choice.py` comes from this grid. Both codes run in one process and take turns; what
counts is processor time, so that a busy machine does not decide.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import nn

from benchmarks import report
from benchmarks.ours import federated, rounds
from benchmarks.workloads import FOLDER, Workload, arrays
from fedtempo.backends import choose

MARKS = "<!-- grid: begin -->", "<!-- grid: end -->"
WIDTHS = (16, 64, 256)
CHANNELS = (4, 8, 16, 32)
BATCHES = (4, 16, 64)
COHORTS = (16, 64)


class Point(NamedTuple):
    """One entry of the grid: a network of this kind and size, and how clients use it."""

    kind: str
    size: int
    """Hidden units, or channels of the first of two convolutions."""
    batch: int
    cohort: int

    def model(self) -> nn.Module:
        """784 to 10 with one hidden layer, or two convolutions with pooling and a linear layer."""
        if self.kind == "dense":
            return nn.Sequential(nn.Flatten(), nn.Linear(784, self.size), nn.ReLU(), nn.Linear(self.size, 10))
        return nn.Sequential(
            nn.Unflatten(1, (1, 28)),
            *(nn.Conv2d(1, self.size, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(self.size, 2 * self.size, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(50 * self.size, 10)),
        )

    def workload(self) -> Workload:
        """Clients with rows for three full batches, five steps each."""
        shape = (784,) if self.kind == "dense" else (28, 28)
        return Workload("grid", self.model, shape, 10, self.cohort, 3 * self.batch, self.cohort, self.batch, 5)


def points(cohorts: tuple[int, ...] = COHORTS) -> Iterator[Point]:
    """The whole grid."""
    for cohort, batch in itertools.product(cohorts, BATCHES):
        yield from (Point("dense", width, batch, cohort) for width in WIDTHS)
        yield from (Point("convolutions", channels, batch, cohort) for channels in CHANNELS)


def measured(point: Point, count: int) -> dict[str, Any]:
    """Milliseconds of processor time per client and round, one by one and side by side, and what `auto` takes."""
    workload = point.workload()
    data = federated(workload, *arrays(workload, FOLDER))
    spent: dict[str, list[float]] = {"serial": [], "vectorised": []}
    with ExitStack() as stack:
        running = {name: rounds(workload, data, backend=name, workers=1) for name in spent}
        for contender in running.values():
            stack.callback(contender.close)  # type: ignore[attr-defined]
        for number, (name, contender) in itertools.product(range(count + 2), running.items()):
            started = time.process_time()
            next(contender)
            if number >= 2:
                spent[name].append(time.process_time() - started)
    serial, together = (float(np.min(times)) / point.cohort * 1000 for times in spent.values())
    model = point.model()
    return {
        **point._asdict(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "serial": serial,
        "vectorised": together,
        "auto": choose("auto", 1, None, model, point.cohort, batch=point.batch).backend.name,
    }


def lines(found: list[dict[str, Any]]) -> list[str]:
    """The grid as a table."""
    head = "| network | parameters | batch | clients | one by one, ms | side by side, ms | faster | `auto` takes |"
    table = [head, "|---|---|---|---|---|---|---|---|"]
    for entry in found:
        name = f"{entry['size']} hidden units" if entry["kind"] == "dense" else f"{entry['size']} channels"
        faster = "serial" if entry["serial"] < entry["vectorised"] else "vectorised"
        table.append(
            f"| {name} | {entry['parameters']:,} | {entry['batch']} | {entry['cohort']} | {entry['serial']:.2f} | "
            f"{entry['vectorised']:.2f} | {faster} | {entry['auto']} |"
        )
    return table


def page(about: dict[str, str], found: list[dict[str, Any]]) -> list[str]:
    """The grid's part of the page."""
    said = (
        f"Measured on {about['date']} on {about['machine']} ({about['load']}): processor time per client of one round "
        "with five local steps, the least of the rounds, in one process. The convolutions have so many channels in the "
        "first layer and twice as many in the second."
    )
    return [said, "", *lines(found)]


def main() -> None:
    """Measure every point of the grid, print the table, keep it and put it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after two that do not")
    parser.add_argument("--cohorts", type=int, nargs="+", default=list(COHORTS))
    parser.add_argument("--page", action="store_true", help="renew the table in docs/benchmarks.md")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for point in points(tuple(chosen.cohorts)):
        found.append(measured(point, chosen.rounds))
        print(lines(found)[-1], flush=True)
    about = report.about()
    report.RESULTS.mkdir(exist_ok=True)
    kept = json.dumps({"about": about, "points": found}, indent=1)
    (report.RESULTS / f"grid-{about['date']}.json").write_text(kept + "\n")
    if chosen.page:
        report.write_page("\n".join(page(about, found)), *MARKS)


if __name__ == "__main__":
    main()
