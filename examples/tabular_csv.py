"""Tabular data in a CSV file, one row per visit and a column that names the hospital; the score is AUROC.

Writes a small CSV file first, so that the program runs as it is; put the path of your own file in its place.
Run: python examples/tabular_csv.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import csv
import os
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from torch import nn

import fedtempo as ft

QUICK = "FEDTEMPO_QUICK" in os.environ


def write_visits(path: Path, hospitals: int, visits: int) -> None:
    """Hospitals differ in whom they see, and in how strongly age counts."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "age", "pressure", "ward", "readmitted"])
        for hospital in range(hospitals):
            mean_age, slope = rng.normal(60, 8), rng.normal(0.08, 0.03)
            for _ in range(visits):
                age, pressure = rng.normal(mean_age, 12), rng.normal(125, 15)
                ward = rng.choice(["surgery", "heart", "other"])
                risk = slope * (age - 60) + 0.03 * (pressure - 125) + 0.8 * (ward == "heart")
                readmitted = rng.random() < 1 / (1 + np.exp(-risk))
                out.writerow([f"H{hospital}", round(age, 1), round(pressure), ward, "yes" if readmitted else "no"])


path = Path(mkdtemp()) / "visits.csv"
write_visits(path, hospitals=8 if QUICK else 30, visits=80 if QUICK else 200)

# Text has to be dealt with on purpose: here every ward becomes a 0/1 feature.
table = ft.data.from_csv(path, client="hospital", target="readmitted", strings="one_hot", standardise=True)
data = table.split(new_clients=2, seed=0)
features = data.columns["x"].shape[1]

result = ft.run(
    model=lambda: nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 2)),
    data=data,
    algorithm=ft.algorithms.fedavg(lr=0.1, epochs=1),
    rounds=3 if QUICK else 30,
    metrics=["auroc", "accuracy"],
    evaluation=ft.Evaluation(steps=5),
)
print(f"{len(data)} hospitals, features: {table.about['features']}")
print(result.table())
print("written:", result.save_frame(path.with_name("scores.csv")))
