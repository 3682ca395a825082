"""What every contender ends with: the results table, and one line for the driver."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.plan import Experiment

Rows = list[tuple[int, list[float]]]
"""By evaluation: the round, the mean accuracy over users, and where users are tuned that after tuning."""
MARK = "RESULT "
"""Begins the line that the driver reads."""
WEIGHTS = "BENCH_WEIGHTS"
"""The environment variable that says where the last weights are to be written."""


def finish(
    experiment: Experiment, found: Mapping[str, tuple[Rows, Mapping[str, Any]]], *packages: str, **facts: Any
) -> None:
    """Print the table and the driver's line. The weights follow when the clock has stopped."""
    print(f"{'method':20} {'round':>5}  accuracy" + ("  after one epoch" if experiment.tunes else ""))
    for method, (rows, _) in found.items():
        for number, scores in rows:
            print(f"{method:20} {number:5}  " + "  ".join(f"{score:8.4f}" for score in scores))
    versions = {package: importlib.metadata.version(package) for package in packages}
    scores = {method: rows for method, (rows, _) in found.items()}
    print(MARK + json.dumps({"scores": scores, "versions": versions, **facts}), flush=True)
    if place := os.environ.get(WEIGHTS):
        arrays = {f"{method}:{n}": np.asarray(t) for method, (_, tensors) in found.items() for n, t in tensors.items()}
        unfinished = Path(place).with_suffix(".part.npz")
        np.savez(unfinished, **arrays)
        unfinished.rename(place)
