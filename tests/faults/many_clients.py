"""`python -m tests.faults.many_clients FOLDER`: 500 rounds over 100,000 clients that keep heads; the memory held."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import fedtempo as ft

COHORT, ROUNDS, LOOKS = 250, 500, (50, 500)


def resident() -> int:
    """Kilobytes of memory that this process holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def main(folder: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((100_000, 2, 6)).astype(np.float32), rng.integers(0, 4, (100_000, 2))
    reports = ft.train(
        model=ft.models.mlp(6, [8], 4),
        data=ft.data.FederatedData.from_clients(list(zip(x, y, strict=True))),
        algorithm=ft.algorithms.pflego(head_lr=0.1, server_lr=0.05, steps=2, server_optimizer="adam"),
        rounds=ROUNDS,
        cohort=COHORT,
        batch_size=2,
        backend="vectorised",
        evaluation=None,
        out=folder,
    )
    seen = np.zeros(len(x), dtype=bool)
    for report in reports:
        seen[list(report.clients)] = True
        if report.round + 1 in LOOKS:
            print(report.round + 1, resident(), int(seen.sum()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
