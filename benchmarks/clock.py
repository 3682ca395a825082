"""`python -m benchmarks.clock`: a round with devices and a clock over the same round without, in turn."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack

os.environ["OMP_NUM_THREADS"] = "1"

import torch

import fedtempo as ft
from benchmarks.measure import in_turn, ratio
from benchmarks.ours import federated, rounds
from benchmarks.workloads import FOLDER, WORKLOADS, arrays

ALLOWED = 1.02


def main() -> None:
    """Print seconds per round of both, and the ratio, for each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clock", description=main.__doc__)
    # No `choices`: argparse would look for the whole default among them.
    parser.add_argument("workloads", nargs="*", default=["W1", "W2", "W3"], help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=21, help="rounds that count, after two that do not")
    chosen = parser.parse_args()
    if unknown := set(chosen.workloads) - set(WORKLOADS):
        parser.error(f"workloads must be of {', '.join(WORKLOADS)}. Got {', '.join(sorted(unknown))}.")
    torch.set_num_threads(1)
    for name in chosen.workloads:
        measured(name, chosen.rounds)


def measured(name: str, count: int) -> None:
    """One workload."""
    workload = WORKLOADS[name]
    print(workload.title, flush=True)
    data = federated(workload, *arrays(workload, FOLDER))
    with ExitStack() as stack:
        contenders = {
            "without": rounds(workload, data, workers=1),
            "with devices": rounds(workload, data, workers=1, devices=ft.devices.phones()),
        }
        for running in contenders.values():
            stack.callback(running.close)  # type: ignore[attr-defined]
        timings = in_turn(contenders, count)
    for label, timing in timings.items():
        print(f"{label:12} {timing.median:.4f} s per round")
    found = ratio(timings["with devices"], timings["without"])
    print(
        f"with over without: {found['of_medians']:.4f} of medians, {found['median']:.4f} round by round "
        f"({found['lower_quartile']:.4f} to {found['upper_quartile']:.4f}); allowed {ALLOWED}"
    )


if __name__ == "__main__":
    main()
