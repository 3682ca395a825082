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


def test_scores_are_in_the_metrics_unit_and_the_lowest_error_wins(tmp_path: Path) -> None:
    """Targets are 0.5 and 2.5 at random: the best error is about 1. A tiny rate stays at the first weights."""
    lines = [f"{i % 4},{i % 2},{0.5 + 2 * (i // 4 % 2)}" for i in range(80)]
    (tmp_path / "rows.csv").write_text("user,a,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "e.toml").write_text(REGRESSION.replace("[0.1, 1e-9]", "[1e-9, 0.1]"))
    found = search(plan_search(space_of(tmp_path / "e.toml")), tmp_path / "out")
    untrained, trained = (record.outcome.value for record in found.records)
    assert untrained > trained > 0.9
    assert found.best.number == 1
    assert found.as_dict()["lower_is_better"] and f"rmse {trained:.4f}" in found.best_file()
