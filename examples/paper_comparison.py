"""A comparison ready for a paper: several seeds, intervals, paired tests, a LaTeX table, figures and tidy numbers.

The same as a command: fedtempo compare FILE --algorithms fedavg,feddecay --seeds 6 --workers 2 --format latex
Needs the extras `plots` and `frames`.
Run: python examples/paper_comparison.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os
from pathlib import Path
from tempfile import mkdtemp

import pandas

import fedtempo as ft
from fedtempo.comparison import compare_runs, latex, markdown, paired_tests, run_of, write_figures

QUICK = "FEDTEMPO_QUICK" in os.environ
SEEDS = range(2 if QUICK else 6)
CONTESTANTS = {
    "FedAvg": ft.algorithms.fedavg(lr=0.1, steps=10),
    "FedDecay": ft.algorithms.feddecay(lr=0.1, beta=0.8, steps=10),
    "Local": ft.algorithms.local_only(lr=0.1, steps=10),
}

clients = ft.data.dirichlet(clients=10 if QUICK else 40, alpha=0.3)
data = ft.data.load("digits").split(clients, new_clients=0.2, seed=0, min_samples=5)
runs, frames = [], []
for label, algorithm in CONTESTANTS.items():
    for seed in SEEDS:
        result = ft.run(
            model=ft.models.mlp(64, [32], 10),
            data=data,
            algorithm=algorithm,
            rounds=2 if QUICK else 30,
            cohort=0.5,
            seed=seed,
            evaluation=ft.Evaluation(every=1 if QUICK else 5),
        )
        runs.append(run_of(result, label))
        frames.append(result.to_frame().assign(run=label))

comparison = compare_runs(runs, reference="FedAvg")
print(markdown(comparison))
print(latex(comparison))
for test in paired_tests(comparison):
    print(f"{test.label}, {test.group}: {test.difference:+.3f}, p {test.p:.3f}, Holm {test.corrected:.3f}")
folder = Path(mkdtemp())
pandas.concat(frames).to_csv(folder / "tidy.csv", index=False)
print("figures:", *(path.name for path in write_figures(comparison, runs, folder)), "in", folder)
