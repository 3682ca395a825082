"""Metrics of a deployment: a node's numbers are the simulator's, undefined ones travel, and nothing else may."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.orders import scores_from_bytes, scores_to_bytes
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.deploy.wire import WireError
from tests.e2e.deploy.wires import FOUR, Wires, experiment, nodes_of, simulated
from tests.slow import slow_but


def own_spread(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Undefined for a user with one class."""
    return float("nan") if len(targets.unique()) < 2 else float(outputs.std())


@pytest.mark.parametrize("name", slow_but(["PFLEGO"], ["FedDecay", "PFLEGO"], "scores with less of its own to keep"))
def test_scores_are_those_of_the_simulator_undefined_ones_too(
    name: str, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    metrics = ["auroc", "brier", ft.Metric(own_spread, higher_is_better=False, per="client")]
    given = experiment(digits, FOUR[name](), metrics=metrics, rounds=2)
    blueprint = blueprint_of(given)
    here, there = simulated(given), serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan())
    assert there.history[-1].scores is not None
    assert there.history[-1].scores.metric == "auroc"
    for mine, theirs in zip(here.history, there.history, strict=True):
        for group, users in mine.scores.groups().items() if mine.scores else ():
            other = theirs.scores.groups()[group]  # type: ignore[union-attr]
            assert (
                list(users.values) == list(other.values) == ["loss", "auroc", "brier", "own_spread", "accuracy", "top5"]
            )
            assert users.lower == other.lower == {"loss", "brier", "own_spread"}
            for metric, values in users.values.items():
                assert np.array_equal(values, other.values[metric], equal_nan=True)


def test_a_score_may_be_undefined_and_the_loss_may_not() -> None:
    values = torch.tensor([[[0.5, math.nan]], [[0.4, 0.9]]], dtype=torch.float64)
    client, round_number, read = scores_from_bytes(scores_to_bytes(3, 1, values), 1, 2)
    assert (client, round_number) == (3, 1)
    assert torch.equal(read.isnan(), values.isnan())
    for place, bad in (((0, 0, 0), math.nan), ((1, 0, 0), math.inf), ((1, 0, 1), -math.inf)):
        spoiled = values.clone()
        spoiled[place] = bad
        with pytest.raises(WireError):
            scores_from_bytes(scores_to_bytes(3, 1, spoiled), 1, 2)
    with pytest.raises(WireError):
        scores_from_bytes(scores_to_bytes(3, 1, values), 1, 3)
