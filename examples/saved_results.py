"""Take a result home: save it to one file, read it where the data and the model are not, and put runs in one frame.

Needs the extra `frames` for the frames.
Run: python examples/saved_results.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os
from pathlib import Path
from tempfile import mkdtemp

import pandas

import fedtempo as ft

QUICK = "FEDTEMPO_QUICK" in os.environ
folder = Path(mkdtemp())
data = ft.data.load("digits").split(ft.data.dirichlet(clients=20, alpha=0.3), new_clients=4, seed=0, min_samples=5)

for name, algorithm in {
    "fedavg": ft.algorithms.fedavg(lr=0.1, steps=10),
    "ditto": ft.algorithms.ditto(lr=0.1, steps=10, lam=0.5),
}.items():
    result = ft.run(
        model=ft.models.mlp(64, [32], 10),
        data=data,
        algorithm=algorithm,
        rounds=2 if QUICK else 20,
        cohort=0.5,
        evaluation=ft.Evaluation(every=1 if QUICK else 5),
    )
    path = result.save(folder / f"{name}.safetensors")
    print(f"{path.name}: {path.stat().st_size:,} bytes, nothing in it that could run")

# From here on, another program: neither `data` nor the model is used.
loaded = {name: ft.load_result(folder / f"{name}.safetensors") for name in ("fedavg", "ditto")}
print("the same digest:", loaded["ditto"].digest() == result.digest())
client = min(loaded["ditto"].personal)
kept = loaded["ditto"].client_state(client, "last")
print(f"client {client} has kept {sum(tensor.numel() for tensor in kept.values()):,} numbers of its own")
print(loaded["ditto"].table())

scores = pandas.concat([one.to_frame() for one in loaded.values()])
test = scores[scores.selected & (scores.part == "test") & (scores.metric == "accuracy")]
print(test.pivot(index="group", columns="run", values="mean").round(3).to_string())
print(loaded["fedavg"].history_frame()[["round", "loss", "total_bytes_up"]].tail(2).to_string(index=False))
