"""One trial of a search: what it is worth, and when it is worth nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtempo.tuning import plan_search, search, space_of

REGRESSION = """
rounds = 2
metric = "rmse"
backend = "serial"
[data]
name = "csv"
path = "rows.csv"
client = "user"
target = "y"
[model]
name = "mlp"
inputs = 1
hidden = []
outputs = 1
[algorithm]
name = "fedavg"
lr = 1e-9
steps = 30
[evaluation]
every = 1
steps = 30
[tune]
"algorithm.lr" = [0.1, 1e-9]
"""


def test_a_trial_in_which_a_user_diverged_never_wins(tmp_path: Path) -> None:
    """One user's numbers are ten thousand times as large: at a rate of 0.1 its error is infinite in every round."""
    rng = np.random.default_rng(0)
    lines = [f"{i % 4},{rng.random() * (1e4 if i % 4 == 3 else 1)},{rng.random()}" for i in range(80)]
    (tmp_path / "rows.csv").write_text("user,a,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "e.toml").write_text(REGRESSION)
    found = search(plan_search(space_of(tmp_path / "e.toml")), tmp_path / "out")
    first, second = found.records
    assert first.outcome.state == "failed" and "finite" in first.outcome.reason
    assert second.outcome.state == "complete" and found.best.number == 1
