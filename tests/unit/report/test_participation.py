"""Scores by how often users took part."""

from __future__ import annotations

import pytest

import fedtempo as ft
from tests import zoo


def test_groups_add_up_to_all_users() -> None:
    result = ft.run(
        model=zoo.model("mlp"),
        data=zoo.data("mlp"),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=3,
        cohorts=[[0, 3], [0, 4], [0]],
        batch_size=4,
        backend="serial",
    )
    table = result.participation()
    records = {record["who"]: record for record in table.records()}
    assert {who: (record["users"], record["rounds"]) for who, record in records.items()} == {
        "never": (3, 0.0),
        "rarely": (2, 1.0),
        "often": (1, 3.0),
        "new users": (2, 0.0),
    }
    scores = result.scores
    assert scores is not None and scores.new_after is not None
    mean = sum(records[who]["users"] * records[who]["after"] for who in ("never", "rarely", "often")) / 6
    assert mean == pytest.approx(scores.existing_after.summary("accuracy")["mean"])
    assert records["new users"]["after"] == scores.new_after.summary("accuracy")["mean"]
    assert "never" in str(table)
