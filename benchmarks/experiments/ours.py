"""`python -m benchmarks.experiments.ours E1`: the experiments in FedTempo."""

from __future__ import annotations

import sys

import numpy as np

import fedtempo as ft
from benchmarks.experiments.data import columns
from benchmarks.experiments.plan import DECAY, DITTO, HEAD_STEPS, MOST, RHO, Experiment, by_name, cohort, first_network
from benchmarks.experiments.table import finish


def algorithm(experiment: Experiment, name: str) -> ft.Algorithm:
    """The method of this name with the experiment's settings."""
    a, lr, steps = ft.algorithms, experiment.lr, experiment.steps
    if name == "FedNAR on SCAFFOLD":
        return a.fednar(a.scaffold(lr=lr, steps=steps), weight_decay=DECAY, max_norm=MOST)
    if name == "FedRep":
        return a.fedrep(lr=lr, head_steps=HEAD_STEPS, body_steps=steps - HEAD_STEPS)
    if name == "PFLEGO":
        return a.pflego(head_lr=lr, server_lr=RHO, steps=steps)
    if name == "Ditto":
        return a.ditto(lr=lr, steps=steps, lam=DITTO)
    return {"FedAvg": a.fedavg, "FedPer": a.fedper}[name](lr=lr, steps=steps)


def federated(experiment: Experiment) -> ft.data.FederatedData:
    """The clients over the mapped columns."""
    starts = np.arange(experiment.clients) * experiment.rows
    ends = starts + experiment.train
    x, y = columns(experiment)
    return ft.data.FederatedData({"x": x, "y": y}, np.stack([starts, ends, ends, starts + experiment.rows], axis=1))


def run(experiment: Experiment, name: str) -> ft.Result:
    """One method to its end."""
    return ft.run(
        model=first_network(experiment),
        data=federated(experiment),
        algorithm=algorithm(experiment, name),
        rounds=experiment.rounds,
        cohorts=[cohort(experiment, number) for number in range(experiment.rounds)],
        batch_size=experiment.batch,
        batches="in_order",
        augment=ft.data.augment.random_crop(4) | ft.data.augment.random_flip() if experiment.augments else None,
        init="model",
        evaluation=ft.Evaluation(every=experiment.every, epochs=1 if experiment.tunes else 0),
        progress=False,
    )


def evaluating(history: list[ft.RoundReport]) -> tuple[float, float]:
    """Seconds that went into scoring, and all seconds: what rounds with scores took longer than those without."""
    plain = float(np.median([report.seconds for report in history if report.test is None]))
    longer = sum(report.seconds - plain for report in history if report.test is not None)
    return longer, sum(report.seconds for report in history)


def main() -> None:
    """All methods of an experiment, one after the other."""
    experiment = by_name(sys.argv[1])
    found, spent = {}, []
    for name in experiment.methods:
        result = run(experiment, name)
        rows = []
        for report in result.history:
            if report.test is not None:
                groups = [report.test.existing_before, report.test.existing_after][: 1 + experiment.tunes]
                rows.append((report.round + 1, [group.summary("accuracy")["mean"] for group in groups]))
        found[name] = (rows, result.last.shared)
        spent.append(evaluating(result.history))
    scoring, whole = (sum(times) for times in zip(*spent, strict=True))
    finish(experiment, found, "fedtempo", "torch", evaluation_share=scoring / whole)


if __name__ == "__main__":
    main()
