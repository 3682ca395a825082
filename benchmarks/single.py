"""One contender alone: when its first round was done, how fast the others were. Called by `measure.alone`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """`python -m benchmarks.single W1 ours|sequential|processes [rounds]`."""
    name, contender, count = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5
    started = float(os.environ.get("BENCH_STARTED", time.time()))
    import torch

    from benchmarks import handwritten
    from benchmarks.workloads import FOLDER, arrays, by_name

    torch.set_num_threads(1)
    workload = by_name(name)
    before = time.time()
    inputs, labels = arrays(workload, Path(FOLDER))
    drawing = time.time() - before
    times, memory = [], []
    if contender == "ours":
        from benchmarks.ours import federated, rounds

        running = rounds(workload, federated(workload, inputs, labels), rounds=max(count, 100))
        _take(running, count, times, memory)
        running.close()
    else:
        with getattr(handwritten, contender)(workload, inputs, labels) as running:
            _take(running, count, times, memory)
    print(json.dumps({"first_round": times[0] - started - drawing, "drawing": drawing, "memory": memory}))


def _take(running, count, times, memory) -> None:  # type: ignore[no-untyped-def]
    from benchmarks.measure import tree_memory

    for number in range(count):
        next(running)
        times.append(time.time())
        if number in (49, count - 1):
            memory.append(tree_memory(os.getpid()))


if __name__ == "__main__":
    main()
