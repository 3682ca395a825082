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


OWN = """
import torch
import fedtempo as ft


def error(outputs, targets):
    known = outputs.mean() > 1.2
    return float((outputs.squeeze(-1) - targets).abs().mean()) if known else float("nan")


mine = ft.Metric(error, higher_is_better=False, per="client")
"""


def test_a_round_in_which_a_metric_is_undefined_does_not_fail_the_trial(tmp_path: Path) -> None:
    """As in a run, which never selects such a round: predictions are small at first, and no number is known of them."""
    lines = [f"{i % 4},{0.1 * (i % 2)},{0.5 + 2 * (i // 4 % 2)}" for i in range(80)]
    (tmp_path / "rows.csv").write_text("user,a,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "undefined_at_first.py").write_text(OWN)
    text = REGRESSION.replace('"rmse"', '"undefined_at_first:mine"').replace("rounds = 2", "rounds = 8")
    (tmp_path / "e.toml").write_text(text.replace("[0.1, 1e-9]", "[0.003, 1e-9]"))
    found = search(plan_search(space_of(tmp_path / "e.toml")), tmp_path / "out")
    learns, never = (record.outcome for record in found.records)
    assert learns.state == "complete" and learns.rounds == 8 and learns.best_round > 1
    assert never.state == "failed" and "no round had a validation score that is a finite number" in never.reason


def test_an_error_of_zero_is_shown_without_a_sign(tmp_path: Path) -> None:
    lines = [f"{i % 4},{i % 2},0.0" for i in range(80)]
    (tmp_path / "rows.csv").write_text("user,a,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "always_right.py").write_text(OWN.replace("outputs.mean() > 1.2", "False").replace('"nan"', "0"))
    (tmp_path / "e.toml").write_text(REGRESSION.replace('"rmse"', '"always_right:mine"'))
    found = search(plan_search(space_of(tmp_path / "e.toml")), tmp_path / "out")
    assert "-0.0" not in found.best_file()
