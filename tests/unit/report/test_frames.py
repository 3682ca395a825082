"""Tidy rows: one per run, round, part, group and metric, the same in a frame, in CSV and in Parquet."""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.errors import ConfigError, OutputError
from fedtempo.report.frames import COLUMNS


@pytest.fixture(scope="module")
def result() -> ft.Result:
    data = ft.data.load("digits").split(ft.data.dirichlet(clients=6, alpha=1.0), new_clients=2, seed=0)
    settings = {"rounds": 3, "evaluation": ft.Evaluation(every=1, steps=1), "seed": 7}
    return ft.run(
        model=ft.models.mlp(64, [4], 10), data=data, algorithm=ft.algorithms.fedavg(lr=0.1, steps=1), **settings
    )


def test_a_row_per_round_part_group_and_metric(result: ft.Result) -> None:
    pytest.importorskip("pandas")
    frame = result.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert not frame.duplicated(["run", "seed", "round", "part", "group", "metric"]).any()
    assert set(frame["seed"]) == {7}
    validated = frame[frame.part == "validation"]
    found = set(zip(validated["round"], validated["group"], strict=True))
    assert found == set(product((1, 2, 3), ("existing_before", "existing_after", "new_before", "new_after")))
    scores, chosen = result.scores, result.selected
    assert scores is not None and chosen is not None
    row = frame[frame.selected & (frame.part == "test") & (frame.group == "new_after") & (frame.metric == "accuracy")]
    assert row["mean"].tolist() == [scores.new_after.summary("accuracy")["mean"]]  # type: ignore[union-attr]
    assert row["round"].tolist() == [chosen.round + 1]
    assert frame[frame.metric == "loss"].lower_is_better.all()
    assert not frame[frame.metric == "accuracy"].lower_is_better.any()


def test_csv_and_parquet_hold_the_frame(result: ft.Result, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.testing.assert_frame_equal(pandas.read_csv(result.save_frame(tmp_path / "s.csv")), result.to_frame())
    stored = pandas.read_parquet(result.save_frame(tmp_path / "s.parquet"))
    pandas.testing.assert_frame_equal(stored, result.to_frame(), check_dtype=False)
    loaded = ft.load_result(result.save(tmp_path / "run.ft"))
    pandas.testing.assert_frame_equal(loaded.to_frame(), result.to_frame())
    pandas.testing.assert_frame_equal(loaded.history_frame(), result.history_frame())
    with pytest.raises(ConfigError, match=r"path must be a .csv or .parquet file. Got .*s.xlsx"):
        result.save_frame(tmp_path / "s.xlsx")


def test_the_history_adds_up(result: ft.Result) -> None:
    pytest.importorskip("pandas")
    frame = result.history_frame()
    assert frame["round"].tolist() == [1, 2, 3]
    assert frame.bytes_up.cumsum().tolist() == frame.total_bytes_up.tolist()
    assert frame.total_steps.tolist()[-1] == result.costs.steps
    assert frame.loss.tolist() == [report.loss for report in result.history]


def test_without_pandas_one_line_says_what_is_missing(
    result: ft.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OutputError, match=r"to_frame\(\) needs pandas: pip install '\.\[frames\]'"):
        result.to_frame()
    with pytest.raises(OutputError, match=r"Parquet needs pyarrow: pip install '\.\[frames\]'"):
        result.save_frame(tmp_path / "s.parquet")
    with result.save_frame(tmp_path / "s.csv").open(newline="") as file:  # CSV needs neither
        assert len(list(csv.DictReader(file))) > 12
