"""What a finished run leaves in its folder."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft


def test_users_are_told_by_name_with_the_scores_of_the_table(tmp_path: Path) -> None:
    """A reader finds out which site is served worst, and the table's mean follows from the file."""
    rng = np.random.default_rng(0)
    sites = {name: (rng.random((12, 3)), rng.integers(0, 2, 12)) for name in ("=Ward A", "B, north", "Ü", "D")}
    data = ft.data.FederatedData.from_clients(
        list(sites.values()), names=list(sites), validation=0.25, test=0.25, new_clients=1
    )
    result = ft.run(
        model=ft.models.mlp(3, [4], 2),
        data=data,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=2,
        backend="serial",
        out=tmp_path / "run",
    )
    with (tmp_path / "run" / "users.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    named = ["'=Ward A", *list(sites)[1:]]  # no formula for a spreadsheet
    assert sorted(row["name"] for row in rows) == sorted(named) and {row["rows"] for row in rows} == {"3"}
    assert [row["group"] for row in rows] == ["existing"] * 3 + ["new"]
    assert result.scores is not None and result.scores.new_before is not None
    for group, when in (("existing", "before"), ("existing", "after"), ("new", "before")):
        column = [float(row[f"accuracy_{when}"]) for row in rows if row["group"] == group]
        assert np.mean(column) == pytest.approx(result.scores.summary()[f"{group}_{when}"]["accuracy"]["mean"])
