"""Trackers, with the real libraries: every round once, resumed or not, and never a changed number."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.config import fingerprint, parse, trackers_of
from fedtempo.training.trackers import TRACKERS, numbers
from fedtempo.training.trackers.wandb import WeightsAndBiases
from fedtempo.training.tracking import RunInfo
from tests.slow import slow_but

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # SQLAlchemy's about what MLflow does

RANDOM = np.random.default_rng(0)

CLIENTS = [(RANDOM.standard_normal((n, 6)), RANDOM.integers(0, 4, n)) for n in (12, 20, 9, 14, 11)]

DATA = ft.data.FederatedData.from_clients(CLIENTS, validation=0.2, test=0.2, new_clients=1)

FILES = ["csv", "jsonl", "tensorboard"]
KEEPING = ["csv", "jsonl", "tensorboard", "mlflow", "wandb"]


def settings(**more: Any) -> dict[str, Any]:
    plain = {"rounds": 6, "cohort": 3, "batch_size": 4, "seed": 2, "backend": "serial"}
    algorithm = ft.algorithms.fednar(ft.algorithms.fedavg(lr=0.1, steps=3), weight_decay=0.01, max_norm=0.5)
    evaluation = ft.Evaluation(every=3)
    fixed = {"model": ft.models.mlp(6, [5], 4), "data": DATA, "algorithm": algorithm, "evaluation": evaluation}
    return {**fixed, **plain, **more}


@pytest.fixture
def fedtempo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`fedtempo ARGUMENTS` in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return caught.value.code, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def plain() -> ft.Result:
    return ft.run(**settings())


def held_by(name: str, folder: Path) -> list[dict[str, float]]:
    """What a tracker has written about each round, read back by its own library, in the order it is found."""
    return {
        "csv": _from_csv,
        "jsonl": _from_jsonl,
        "tensorboard": _from_tensorboard,
        "mlflow": _from_mlflow,
        "wandb": _from_wandb,
    }[name](folder)


def _from_csv(folder: Path) -> list[dict[str, float]]:
    with (folder / "rounds.csv").open(newline="") as file:
        return [{name: float(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def _from_jsonl(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def _from_tensorboard(folder: Path) -> list[dict[str, float]]:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(folder / "tensorboard"), size_guidance={events.SCALARS: 0})
    found.Reload()
    rows: dict[tuple[int, int], dict[str, float]] = {}
    for name in found.Tags()["scalars"]:
        seen: Counter[int] = Counter()
        for event in found.Scalars(name):
            rows.setdefault((event.step, seen[event.step]), {"round": event.step})[name] = event.value
            seen[event.step] += 1
    return [rows[key] for key in sorted(rows)]


def _from_mlflow(folder: Path) -> list[dict[str, float]]:
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("fedtempo").experiment_id])
    rows: dict[tuple[int, int], dict[str, float]] = {}
    for name in run.data.metrics:
        seen: Counter[int] = Counter()
        for metric in client.get_metric_history(run.info.run_id, name):
            rows.setdefault((metric.step, seen[metric.step]), {"round": metric.step})[name] = metric.value
            seen[metric.step] += 1
    return [rows[key] for key in sorted(rows)]


def _from_wandb(folder: Path) -> list[dict[str, float]]:
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in _records(path.read_bytes()):
            record = messages.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                rows.append({"round": int(items["_step"]), **items})
    return rows


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a W&B file: LevelDB's log format, blocks of 32 kB, after a header of seven bytes."""
    position, parts = 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def same(found: list[dict[str, float]], history: list[ft.RoundReport], tolerance: float) -> None:
    """Every round once, in order, with every number of it."""
    assert [row["round"] for row in found] == list(range(1, len(history) + 1))
    for row, report in zip(found, history, strict=True):
        for name, value in numbers(report).items():
            if "seconds" not in name:
                assert row[name] == pytest.approx(value, rel=tolerance, nan_ok=True), name


@pytest.mark.parametrize("name", slow_but(FILES, KEEPING, "MLflow and W&B start for seconds"))
def test_every_round_is_logged_and_no_number_changes(name: str, tmp_path: Path, plain: ft.Result) -> None:
    result = ft.run(**settings(), out=tmp_path, trackers=[name])
    assert result.digest() == plain.digest()
    assert result.experiment.identity() == plain.experiment.identity()
    found = held_by(name, tmp_path)
    same(found, plain.history, 1e-6 if name == "tensorboard" else 0)
    assert {"measurements/clipped_steps", "total_costs/flops", "test/new_after/accuracy/mean"} <= set(found[2])


def train_and_die(folder: Path, commit_every: int, name: str) -> None:
    rounds = ft.train(**settings(), out=folder, commit_every=commit_every, trackers=[name])
    for _ in range(3):
        next(rounds)
    os._exit(9)


DEATHS = [(name, commit_every) for name in KEEPING for commit_every in (1, 4)]
OFTEN = [(name, commit_every) for name, commit_every in DEATHS if name not in ("mlflow", "wandb")]


@pytest.mark.parametrize("death", slow_but(OFTEN, DEATHS, "MLflow and W&B start for seconds, in two processes"))
def test_resumed_rounds_are_logged_once(
    death: tuple[str, int], tmp_path: Path, plain: ft.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies for good after three rounds: all of them are logged, and all or none committed."""
    name, commit_every = death
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # or it would use the W&B service of this process,
    way = "spawn" if name == "wandb" else "fork"  # and so would a fork
    child = multiprocessing.get_context(way).Process(target=train_and_die, args=(tmp_path, commit_every, name))
    child.start()
    child.join()
    assert child.exitcode == 9
    resumed = ft.run(**settings(), out=tmp_path, resume=True, commit_every=commit_every, trackers=[name])
    assert resumed.digest() == plain.digest()
    found = held_by(name, tmp_path)
    assert len({row["round"] for row in found}) == len(found)
    if name != "wandb":  # its own process writes the file: what it had not written when we died is gone
        same(found, plain.history, 1e-6 if name == "tensorboard" else 0)


@pytest.mark.parametrize(
    "name", slow_but(FILES, KEEPING, "MLflow and W&B start for seconds; files are resumed every time")
)
def test_stopped_and_resumed(name: str, tmp_path: Path, plain: ft.Result) -> None:
    rounds = ft.train(**settings(), out=tmp_path, trackers=[name])
    for _ in range(4):
        next(rounds)
    rounds.close()
    ft.run(**settings(), out=tmp_path, resume=True, trackers=[name])
    same(held_by(name, tmp_path), plain.history, 1e-6 if name == "tensorboard" else 0)


@pytest.mark.parametrize("name", slow_but(FILES, [*FILES, "mlflow"], "MLflow starts for seconds"))
def test_rounds_that_a_tracker_missed_are_told_later(name: str, tmp_path: Path, plain: ft.Result) -> None:
    rounds = ft.train(**settings(), out=tmp_path)
    for _ in range(4):
        next(rounds)
    rounds.close()
    ft.run(**settings(), out=tmp_path, resume=True, trackers=[name])
    same(held_by(name, tmp_path), plain.history, 1e-6 if name == "tensorboard" else 0)


def test_a_run_folder_always_has_its_rounds_as_a_table(tmp_path: Path, plain: ft.Result) -> None:
    ft.run(**settings(), out=tmp_path, trackers=["csv"])
    assert [row["round"] for row in _from_csv(tmp_path)] == list(range(1, 7))
    (tmp_path / "metrics.csv").replace(tmp_path / "rounds.csv")
    same(_from_csv(tmp_path), plain.history, 0)


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_line_cut_short_is_written_again(name: str, tmp_path: Path, plain: ft.Result) -> None:
    rounds = ft.train(**settings(), out=tmp_path, trackers=[name])
    for _ in range(4):
        next(rounds)
    rounds.close()
    path = tmp_path / f"rounds.{name}"
    path.write_text(path.read_text()[:-9])
    ft.run(**settings(), out=tmp_path, resume=True, trackers=[name])
    same(held_by(name, tmp_path), plain.history, 0)


@pytest.mark.slow("MLflow starts for seconds; what a tracker is told runs every time with files")
def test_mlflow_has_the_settings_and_how_it_ended(tmp_path: Path, plain: ft.Result) -> None:
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    rounds = ft.train(**settings(), out=tmp_path, trackers=["mlflow"])
    next(rounds)
    rounds.close()
    identifier = (tmp_path / "mlflow-run.txt").read_text().strip()
    assert client.get_run(identifier).info.status == "KILLED"
    ft.run(**settings(), out=tmp_path, resume=True, trackers=["mlflow"])
    run = client.get_run(identifier)
    assert run.info.status == "FINISHED"
    assert run.data.tags["digest"] == plain.digest()
    assert run.data.params["seed"] == "2"
    assert run.data.params["algorithm.max_norm"] == "0.5"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_library_is_named_before_training(name: str, tmp_path: Path, fedtempo: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # what Python does where a library is not installed
    path = tmp_path / "experiment.toml"
    path.write_text(tomli_w.dumps(experiment()))
    code, _, error = fedtempo("run", str(path), "--tracker", name, "--out", str(tmp_path / "run"))
    assert code == 3
    assert error.count("\n") == 1
    assert f"pip install '.[{name}]'" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", slow_but(FILES, KEEPING, "MLflow and W&B start for seconds"))
def test_without_a_folder_a_path_is_asked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: ft.Result
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ft.ConfigError, match="where the run has no out folder"):
        ft.run(**settings(), trackers=[name])
    place = f"sqlite:///{tmp_path / 'own.db'}" if name == "mlflow" else tmp_path / "own"
    result = ft.run(**settings(), trackers=[TRACKERS[name](place)])
    assert result.digest() == plain.digest()
    assert any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["csv", "jsonl", "tensorboard"])
def test_an_earlier_run_is_not_written_over(name: str, tmp_path: Path) -> None:
    ft.run(**settings(rounds=1), trackers=[TRACKERS[name](tmp_path / "log")])
    with pytest.raises(ft.OutputError, match="new or empty"):
        ft.run(**settings(rounds=1), trackers=[TRACKERS[name](tmp_path / "log")])


@pytest.mark.parametrize("name", KEEPING)
def test_a_place_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    place = f"sqlite:///{tmp_path / 'file' / 'x.db'}" if name == "mlflow" else tmp_path / "file" / "x"
    with pytest.raises(ft.OutputError, match=r"file/x|works"):
        ft.run(**settings(rounds=1), trackers=[TRACKERS[name](place)])


class Counting:
    """A user's own tracker: three methods and a name."""

    name = "counting"

    def __init__(self, fails_at: int | None = None) -> None:
        self.told: list[Any] = []
        self.fails_at = fails_at

    def start(self, run: ft.trackers.RunInfo) -> int:
        self.told.append(run.settings["seed"])
        return 0

    def round(self, report: ft.RoundReport) -> None:
        if report.round == self.fails_at:
            raise OSError("the disk is full")
        self.told.append(report.round)

    def end(self, result: ft.Result | None) -> None:
        self.told.append(None if result is None else result.digest())


def test_your_own_tracker(plain: ft.Result) -> None:
    mine = Counting()
    ft.run(**settings(), trackers=[mine])
    assert mine.told == ["2", 0, 1, 2, 3, 4, 5, plain.digest()]


def test_a_tracker_that_fails_costs_its_log_and_not_the_run(plain: ft.Result) -> None:
    bad, good = Counting(fails_at=2), Counting()
    with pytest.warns(RuntimeWarning, match="'counting' failed and is left out from now on: the disk is full"):
        result = ft.run(**settings(), trackers=[bad, good])
    assert result.digest() == plain.digest()
    assert bad.told == ["2", 0, 1]
    assert good.told[-1] == plain.digest()


def test_a_run_that_is_stopped_says_so() -> None:
    mine = Counting()
    rounds = ft.train(**settings(), trackers=[mine])
    next(rounds)
    rounds.close()
    assert mine.told == ["2", 0, None]


def test_wrong_trackers() -> None:
    with pytest.raises(ft.ConfigError, match="Did you mean 'tensorboard'"):
        ft.run(**settings(), trackers=["tensorbord"])
    with pytest.raises(ft.ConfigError, match="trackers must be a list"):
        ft.run(**settings(), trackers="csv")
    with pytest.raises(ft.ConfigError, match="trackers must be a list"):
        ft.run(**settings(), trackers=[3])


def experiment(**more: Any) -> dict[str, Any]:
    return {
        "rounds": 2,
        "data": {"name": "digits", "split": {"name": "iid", "clients": 4}},
        "model": {"name": "softmax_regression", "inputs": 64, "outputs": 10},
        "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 2},
        **more,
    }


def test_trackers_in_a_file(tmp_path: Path) -> None:
    without = parse(experiment())
    file = parse(experiment(trackers=["csv", {"name": "jsonl", "path": str(tmp_path / "mine.jsonl")}]))
    assert [tracker.name for tracker in trackers_of(file)] == ["csv", "jsonl"]
    assert fingerprint(file) == fingerprint(without)
    with pytest.raises(ft.ConfigError, match=r"trackers.name 'cvs' is not known. Did you mean 'csv'"):
        parse(experiment(trackers=["cvs"]))
    with pytest.raises(ft.ConfigError, match="setting 'pth' is not known"):
        parse(experiment(trackers=[{"name": "csv", "pth": "x"}]))
    with pytest.raises(ft.ConfigError, match="trackers must be a list of names or of tables with a name"):
        parse(experiment(trackers=[3]))
    with pytest.raises(ft.ConfigError, match="trackers must be a list of names or of tables with a name"):
        parse(experiment(trackers=[{"path": "x"}]))


def test_on_the_command_line_and_again_when_resumed(tmp_path: Path, fedtempo: Any) -> None:
    path, out = tmp_path / "experiment.toml", tmp_path / "run"
    path.write_text(tomli_w.dumps(experiment()))
    told = fedtempo("run", str(path), "--tracker", "csv", "--tracker", "jsonl", "--out", str(out), "--json")
    digest = json.loads(told[1])["digest"]
    assert digest == json.loads(fedtempo("run", str(path), "--json")[1])["digest"]
    assert len(_from_csv(out)) == len(_from_jsonl(out)) == 2
    assert json.loads(fedtempo("resume", str(out), "--json")[1])["digest"] == digest
    assert len(_from_csv(out)) == len(_from_jsonl(out)) == 2


@pytest.mark.parametrize(
    "note", ['{"id": "../../x", "rounds": 1}', '{"id": "a", "rounds": -1}', "[" * 100_000, "{}", "5"]
)
def test_a_note_that_somebody_else_wrote_names_no_path(note: str, tmp_path: Path) -> None:
    (tmp_path / "wandb-run.json").write_text(note)
    with pytest.raises(ft.StoreError, match=r"wandb-run.json is damaged"):
        WeightsAndBiases(None, "p").start(RunInfo({}, 2, tmp_path, resumed=True))
