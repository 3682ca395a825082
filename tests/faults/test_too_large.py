"""Files that would eat the machine are refused from counts alone, before anything of that size is made."""

from __future__ import annotations

import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

import fedtempo as ft
from fedtempo.config import parse, settings_of
from fedtempo.errors import ConfigError
from fedtempo.evaluation import scoring
from fedtempo.report.stored import read_run
from fedtempo.support import room
from fedtempo.training.prepare import prepare
from tests.faults.test_places import finished  # noqa: F401 - a fixture
from tests.unit.config.experiments import experiment
from tests.waiting import allowed

DATA = {"name": "synthetic", "clients": 10**9}
LARGE: dict[str, dict[str, Any]] = {
    "clients of a generated set": {"data": DATA},
    "clients of another": {"data": {"name": "quadratic", "clients": 10**10}, "model": {"name": "quadratic"}},
    "layers": {"model": {"name": "mlp", "inputs": 64, "hidden": [4] * 4000, "outputs": 10}},
    "layers by number": {"model": {"name": "gpt_tiny", "tokens": 10, "layers": 10**9}},
    "a wide layer": {"model": {"name": "mlp", "inputs": 64, "hidden": [10**10], "outputs": 10}},
    "two wide layers": {"model": {"name": "mlp", "inputs": 64, "hidden": [10**6, 10**6], "outputs": 10}},
    "a large image": {"model": {"name": "cnn", "image": [1, 10**6, 10**6], "outputs": 10}},
    "many words": {"model": {"name": "word_average", "words": 10**12}},
}


@pytest.mark.parametrize("name", LARGE)
def test_too_large_is_one_line_with_the_numbers(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"must fit into memory, .* GB here\. Got about .* GB|at most 1000 layers"):
        settings_of(parse(experiment(**LARGE[name])))
    assert time.monotonic() - began < allowed(5.0)


def test_a_page_of_a_received_folder_gets_less(finished: Path, tmp_path: Path) -> None:  # noqa: F811
    copy = tmp_path / "received"
    subprocess.run(["cp", "-r", str(finished), str(copy)], check=True)
    large = experiment(
        data={"name": "synthetic", "clients": 20_000}, model={"name": "softmax_regression", "inputs": 60, "outputs": 10}
    )
    (copy / "experiment.toml").write_text(tomli_w.dumps(large))
    assert room.memory() > 4.6e9  # a run would begin
    assert read_run(copy).picture is None


def test_more_than_half_of_the_memory_is_said() -> None:
    with pytest.warns(UserWarning, match="data 'x' takes about .* GB of .* GB of memory"):
        room.require_room(0.6 * room.memory(), "data 'x'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        room.require_room(0.4 * room.memory(), "data 'x'")


def test_a_csv_of_many_cells_is_refused_before_it_is_read(tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("a,b,c\n" + "1,2,3\n" * 1000)
    with room.with_room(100_000), pytest.raises(ConfigError, match=r"rows.csv must fit into memory"):
        ft.data.from_csv(place, client="a", target="b")


def test_twenty_thousand_columns_take_seconds(tmp_path: Path) -> None:
    names = ",".join(f"c{number}" for number in range(20_000))
    (tmp_path / "wide.csv").write_text(
        f"client,y,{names}\n" + "".join(f"{r},{r}" + ",1" * 20_000 + "\n" for r in (0, 1))
    )
    began = time.process_time()
    table = ft.data.from_csv(tmp_path / "wide.csv", client="client", target="y")
    assert table.columns["x"].shape == (2, 20_000)
    with pytest.raises(ConfigError) as error:
        ft.data.from_csv(tmp_path / "wide.csv", client="client", target="nothing like it")
    assert len(str(error.value)) < 2000
    assert time.process_time() - began < 10.0


def problem(classes: int, rows: int) -> dict[str, Any]:
    x = np.zeros((rows, 2), dtype=np.float32)
    clients = [(x, np.arange(rows) % classes) for _ in range(4)]
    data = ft.data.FederatedData.from_clients(clients)
    return {
        "model": ft.models.mlp(2, [2], classes),
        "data": data,
        "algorithm": ft.algorithms.fedavg(lr=0.1, steps=1),
        "rounds": 1,
    }


def test_rows_times_classes_are_counted_before_they_are_scored() -> None:
    with (
        room.with_room(5_000_000),
        pytest.raises(ConfigError, match="scoring a user of 4,000 rows with 1,000 outputs each"),
    ):
        prepare(**problem(1_000, 4_000))


def test_users_of_many_outputs_are_scored_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ft.run(**problem(20, 40), seed=1)
    monkeypatch.setattr(scoring, "MOST_OUTPUTS", 900)
    few = ft.run(**problem(20, 40), seed=1)
    assert whole.scores is not None
    assert few.scores is not None
    assert few.scores.summary()["existing_before"]["accuracy"] == whole.scores.summary()["existing_before"]["accuracy"]


def test_the_weights_of_a_counted_model_are_those_of_an_uncounted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> torch.Tensor:
        torch.manual_seed(3)
        return ft.models.mlp(4, [2100], 2).body[1].weight.detach()

    counted = made()
    monkeypatch.setattr("fedtempo.models.weights.LARGE", 10**9)
    assert torch.equal(counted, made())
