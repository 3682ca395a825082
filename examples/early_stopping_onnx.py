"""Stop when validation no longer improves, export to ONNX, and use the file in a process without FedTempo.

Needs the extra `onnx`.
Run: python examples/early_stopping_onnx.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import fedtempo as ft

QUICK = "FEDTEMPO_QUICK" in os.environ
ELSEWHERE = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
(name,) = [entry.name for entry in session.get_inputs()]
numpy.save(sys.argv[3], session.run(None, {name: numpy.load(sys.argv[2])})[0])
assert "fedtempo" not in sys.modules and "torch" not in sys.modules
"""

data = ft.data.load("digits").split(ft.data.dirichlet(clients=30, alpha=0.5), seed=0, min_samples=5)
result = ft.run(
    model=ft.models.mlp(64, [32], 10),
    data=data,
    algorithm=ft.algorithms.fedavg(lr=0.3, epochs=1),
    rounds=6 if QUICK else 100,
    cohort=0.3,
    evaluation=ft.Evaluation(every=1, patience=2 if QUICK else 5),  # evaluations without a better one
)
selected = result.selected
print(f"{len(result.history)} rounds were trained; round {selected.round + 1} was best")
print(f"validation accuracy {selected.validation.quality():.3f}, test accuracy {result.scores.quality():.3f}")

folder = Path(mkdtemp())
model = result.save_model(folder / "digits.onnx", "onnx")

rows = data.client(0, "test")["x"]
np.save(folder / "rows.npy", np.asarray(rows, dtype=np.float32))
files = [str(model), str(folder / "rows.npy"), str(folder / "outputs.npy")]
subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True)
gap = np.abs(np.load(folder / "outputs.npy") - result.model()(rows).detach().numpy()).max()
print(f"ONNX Runtime, without FedTempo: outputs differ by {gap:.1e} at most")
assert gap < 1e-6
