"""`python -m benchmarks.ray_overhead`: a round on Ray's actors over the same round in worker processes, in turn."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from benchmarks.measure import in_turn, ratio
from benchmarks.ours import federated, rounds
from benchmarks.workloads import FOLDER, WORKLOADS, arrays

ALLOWED = 1.25


def main() -> None:
    """Print seconds per round of both, and the ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_overhead", description=main.__doc__)
    parser.add_argument("workload", nargs="?", default="W2", choices=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count, after two that do not")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[chosen.workload]
    print(workload.title, flush=True)
    data = federated(workload, *arrays(workload, FOLDER))
    with ExitStack() as stack:
        # Workers are forked before Ray starts its threads in this process.
        contenders = {
            name: rounds(workload, data, backend=name, workers=chosen.workers) for name in ("processes", "ray")
        }
        for running in contenders.values():
            stack.callback(running.close)  # type: ignore[attr-defined]
        timings = in_turn(contenders, chosen.rounds)
    for name, timing in timings.items():
        print(f"{name:10} {timing.median:.4f} s per round: {' '.join(f'{seconds:.3f}' for seconds in timing.wall)}")
    found = ratio(timings["ray"], timings["processes"])
    print(
        f"ray over processes: {found['of_medians']:.3f} of medians, {found['median']:.3f} round by round "
        f"({found['lower_quartile']:.3f} to {found['upper_quartile']:.3f}); allowed {ALLOWED}"
    )


if __name__ == "__main__":
    main()
