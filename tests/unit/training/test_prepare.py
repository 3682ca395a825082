"""From settings to an experiment: what is checked before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from tests import zoo
from tests.unit.training.test_experiment import experiment


def test_uploads_are_looked_at_one_by_one_only_where_that_is_needed() -> None:
    assert experiment().federation.policy is None
    assert experiment(admission=ft.Admission(), faults=ft.Faults()).federation.policy is None
    assert experiment(faults=ft.Faults(nan=0.1)).federation.policy is not None


def test_a_cohort_of_less_than_one_client_on_average() -> None:
    """A tenth of six clients is less than one; a quorum of one is all that such a round can have."""
    few = ft.cohort.bernoulli(0.1)
    assert experiment(cohort=few).quorum == 1
    with pytest.raises(ft.ConfigError, match=r"quorum must be an int in \[1, 1\] \(the cohort\). Got 2."):
        experiment(cohort=few, quorum=2)


def test_the_module_that_was_given_is_left_as_it_was() -> None:
    model = zoo.model("mlp")
    before = {name: t.clone() for name, t in model.state_dict().items()}
    prepared = experiment(model=model, seed=9, dtype=torch.float64)
    assert all(torch.equal(model.state_dict()[name], t) for name, t in before.items())
    assert not torch.equal(prepared.first_shared["head.weight"].float(), before["head.weight"])
    kept = experiment(model=model, seed=9, init="model")
    assert torch.equal(kept.first_shared["head.weight"], before["head.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quorum": 5}, r"quorum must be an int in \[1, 4\] \(the cohort\). Got 5."),
        (
            {"data": ft.data.FederatedData({"x": np.zeros((4, 1)), "y": np.zeros(4)}, [range(4)] * 2)},  # type: ignore[arg-type]
            r"data.bounds must be an array with four positions per client, as from_clients makes it. Got \[range",
        ),
        ({"aggregator": ft.robust.krum(2)}, r"cohort must be at least 5 in every round for krum\(2, 1\). Got 4.0."),
        (
            {"aggregator": ft.robust.krum(1), "cohort": ft.schedules.sequence([4, 3], over="round")},
            r"cohort must be at least 4 in every round for krum\(1, 1\). Got 3.0.",
        ),
        ({"deadline": 0.0}, r"deadline must be a number > 0. Got 0.0."),
        ({"faults": ft.Faults(kill=0.5)}, r"faults.kill must be 0 where no workers can be killed"),
        (
            {
                "aggregator": ft.robust.private_mean(1.0, 1.0),
                "algorithm": a.fedavg(lr=0.1, steps=1, weighting="samples"),
            },
            "weighting must be 'uniform'",
        ),
        (
            {"init": {"head.bias": torch.tensor([1.0, float("nan"), 0.0, 0.0])}},
            r"init\['head.bias'\] must be a tensor of finite",
        ),
        (
            {"algorithm": a.fedper(lr=0.1, steps=1), "init": {"head.bias": torch.ones(4)}},
            "all personal tensors or none",
        ),
    ],
)
def test_settings_that_do_not_go_together(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        experiment(**change)
