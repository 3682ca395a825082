"""Whether a framework did the same work: the hand-written loop, given its cohorts, must reach the same weights."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from benchmarks.handwritten import Client
from benchmarks.workloads import Workload

LARGEST = 0.1
"""Of the way the weights went. The same kernels stay below 1e-4. Others round differently, which in float32 now and
then moves an activation across a kink: a few percent on the CNN after two rounds. Other batches are far above."""


class Replay:
    """The hand-written loop on given cohorts; frameworks with the same cohorts share an answer."""

    def __init__(self, workload: Workload, inputs: np.ndarray, labels: np.ndarray) -> None:
        self._given = (workload, inputs, labels)
        self._known: dict[str, tuple[list[Tensor], list[Tensor]]] = {}

    def difference(self, weights: list[np.ndarray], cohorts: list[list[int]]) -> float:
        """How far the weights are from the loop's, over how far the loop's are from the first ones."""
        key = repr([sorted(cohort) for cohort in cohorts])
        if key not in self._known:
            self._known[key] = self._run(cohorts)
        first, last = self._known[key]
        return _distance(last, weights) / _distance(last, [w.numpy() for w in first])

    def _run(self, cohorts: list[list[int]]) -> tuple[list[Tensor], list[Tensor]]:
        client = Client(*self._given)
        first = [p.detach().clone() for p in client.parameters]
        shared = first
        for number, cohort in enumerate(cohorts):
            shared = [total / len(cohort) for total in client.train(shared, np.sort(cohort), number)]
        return first, shared


def _distance(ours: list[Tensor], theirs: list[np.ndarray]) -> float:
    squares = [float(((a.numpy() - b) ** 2).sum()) for a, b in zip(ours, theirs, strict=True)]
    return float(sum(squares) ** 0.5)
