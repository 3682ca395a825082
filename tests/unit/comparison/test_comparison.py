"""Comparisons: pairing over seeds and users, intervals, costs to a target, and what must not be compared."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.comparison import compare_runs, entrants_of
from fedtempo.comparison.entrants import parse_algorithms
from fedtempo.comparison.intervals import Pairs, over_users, paired
from fedtempo.comparison.tables import tables_of
from fedtempo.comparison.targets import cost_to_reach
from fedtempo.config import parse
from fedtempo.errors import ConfigError, StoreError
from fedtempo.evaluation.over_seeds import over_seeds
from fedtempo.evaluation.protocol import UserScores

ROUNDS = 3
EXPERIMENT = """
rounds = 3
cohort = 0.5
batch_size = 16
[data]
name = "digits"
new_clients = 3
min_samples = 3
split = { name = "dirichlet", clients = 12, alpha = 0.5 }
[model]
name = "softmax_regression"
inputs = 64
outputs = 10
[algorithm]
name = "feddecay"
lr = 0.3
beta = 0.6
steps = 3
[evaluation]
every = 1
"""


COMPOSED = """
[algorithm]
name = "fednar"
weight_decay = 0.01
max_norm = 10.0
[algorithm.around]
name = "fedadam"
server_lr = 0.03
steps = 4
[algorithm.around.lr]
schedule = "product"
of = [{ schedule = "per_round", value = 0.1, factor = 0.99 }, { schedule = "per_step", value = 1.0, factor = 0.6 }]
"""


def small(data: ft.data.FederatedData, algorithm: ft.Algorithm, seed: int, **settings: Any) -> ft.Result:
    fixed: dict[str, Any] = {
        "model": ft.models.softmax_regression(64, 10),
        "rounds": ROUNDS,
        "cohort": 5,
        "evaluation": ft.Evaluation(every=1),
    }
    return ft.run(**{**fixed, **settings}, data=data, algorithm=algorithm, seed=seed)


@pytest.fixture(scope="module")
def folders(digits: ft.data.FederatedData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two algorithms with two seeds each, in run folders."""
    place = tmp_path_factory.mktemp("runs")
    algorithms = {"fedavg": ft.algorithms.fedavg(lr=0.3, steps=3), "fedsgd": ft.algorithms.fedsgd(lr=0.3)}
    for name, algorithm in algorithms.items():
        for seed in (0, 1):
            small(digits, algorithm, seed, out=place / f"{name}-{seed}")
    return {path.name: path for path in sorted(place.iterdir())}


@pytest.fixture(scope="module")
def runs(folders: dict[str, Path]) -> list[ft.Run]:
    return [ft.Run.of(folder).completed() for folder in folders.values()]


def test_a_comparison_has_the_scores_and_paired_differences_of_the_runs(runs: list[ft.Run]) -> None:
    comparison = compare_runs(runs)
    fedavg, fedsgd = comparison.lines
    assert comparison.reference == fedavg.label == "fedavg(lr=0.3, steps=3)"
    assert fedavg.seeds == fedsgd.seeds == [0, 1]
    means = {
        name: [run.scores.new_after.summary("accuracy")["mean"] for run in group]  # type: ignore[union-attr]
        for name, group in (("fedavg", runs[:2]), ("fedsgd", runs[2:]))
    }
    assert fedsgd.by_seed["new_after"]["mean"] == means["fedsgd"]
    difference = fedsgd.differences["new_after"]["mean"]
    gaps = np.subtract(means["fedsgd"], means["fedavg"])
    assert difference.seeds.value == pytest.approx(gaps.mean())
    half = 12.706204736 * gaps.std(ddof=1) / math.sqrt(2)  # Student's t with one degree of freedom
    assert difference.seeds.high - difference.seeds.value == pytest.approx(half)
    assert difference.users.value == pytest.approx(gaps.mean())
    assert difference.users.low <= difference.users.value <= difference.users.high
    assert not fedavg.differences


def test_users_are_paired_by_their_number_not_by_their_place() -> None:
    ours = UserScores(np.array([3, 1, 2, 7]), np.array([5, 5, 5, 0]), {"accuracy": np.array([0.3, 0.1, 0.2, 0.9])})
    theirs = UserScores(np.array([1, 2, 3]), np.array([5, 5, 5]), {"accuracy": np.array([0.0, 0.1, 0.2])})
    pairs = paired([ours], [theirs], "accuracy")
    assert np.allclose(pairs.ours - pairs.theirs, 0.1)
    estimate = over_users([pairs], "mean", lower=False)
    assert estimate.low == pytest.approx(0.1) and estimate.high == pytest.approx(0.1)


@pytest.mark.parametrize("statistic", ["mean", "bottom_decile", "std"])
@pytest.mark.parametrize("metric", ["accuracy", "loss"])
@pytest.mark.parametrize("interpolated", [False, True])
def test_the_observed_difference_is_that_of_the_summaries(statistic: str, metric: str, interpolated: bool) -> None:
    rng = np.random.default_rng(0)
    clients, samples = np.arange(37), np.ones(37, dtype=int)
    ours, theirs = (UserScores(clients, samples, {metric: rng.random(37)}, interpolated) for _ in range(2))
    estimate = over_users([paired([ours], [theirs], metric)], statistic, metric == "loss", interpolated)
    assert estimate.value == pytest.approx(ours.summary(metric)[statistic] - theirs.summary(metric)[statistic])


def test_the_bootstrap_interval_is_the_textbook_one_for_many_users() -> None:
    gains = np.random.default_rng(1).normal(0.2, 1.0, (1, 3000))
    estimate = over_users([Pairs(gains, np.zeros_like(gains))], "mean", lower=False)
    half = 1.96 * gains.std() / math.sqrt(3000)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(half, rel=0.06)
    assert estimate == over_users([Pairs(gains, np.zeros_like(gains))], "mean", lower=False)


def test_one_seed_has_no_interval_over_seeds() -> None:
    assert math.isnan(over_seeds([0.5]).low) and over_seeds([0.5]).value == 0.5


def test_a_result_in_memory_and_its_folder_compare_alike(digits: ft.data.FederatedData, runs: list[ft.Run]) -> None:
    result = small(digits, ft.algorithms.fedavg(lr=0.3, steps=3), 0)
    assert compare_runs([ft.Run.of(result)]).lines[0].by_seed == compare_runs(runs[:1]).lines[0].by_seed


def test_cost_to_reach_a_target_is_that_of_the_first_evaluated_round_that_does(runs: list[ft.Run]) -> None:
    run = runs[0]
    scores = [report.scores.quality() for report in run.history if report.scores]
    target = sorted(scores)[1]
    first = next(index for index, score in enumerate(scores) if score >= target)
    reached = cost_to_reach([run], target).costs
    assert reached is not None
    assert reached["rounds"] == first + 1
    assert reached["bytes"] == run.history[first].total_costs.bytes
    assert reached["steps"] == run.history[first].total_costs.steps
    assert reached["seconds"] == pytest.approx(sum(report.seconds for report in run.history[: first + 1]))
    assert cost_to_reach(runs[:2], 1.1).costs is None


def test_seconds_and_joules_of_devices_to_a_target(digits: ft.data.FederatedData, runs: list[ft.Run]) -> None:
    fleet = ft.devices.constant(seconds_per_step=2.0, joules_per_step=3.0)
    timed = ft.Run.of(small(digits, ft.algorithms.fedavg(lr=0.3, steps=3), 0, devices=fleet))
    reached = cost_to_reach([timed], 0.0).costs
    assert reached is not None
    first = next(report for report in timed.history if report.scores)
    assert reached["time"] == first.total_time == 6.0 * (first.round + 1)
    assert reached["energy"] == first.total_energy == 3.0 * first.total_costs.steps
    shown = "".join(column.head for table in tables_of(compare_runs([timed])) for column in table.columns)
    plain = "".join(column.head for table in tables_of(compare_runs(runs[:1])) for column in table.columns)
    assert "joules" in shown and "joules" not in plain


def test_other_data_or_another_protocol_is_refused_and_named(digits: ft.data.FederatedData, runs: list[ft.Run]) -> None:
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=1)
    table = ft.data.load("digits")
    other = table.split(ft.data.dirichlet(clients=20, alpha=0.5), new_clients=4, seed=2, min_samples=3)
    with pytest.raises(ConfigError, match=r"^data must be the same in all runs that are compared\. Got"):
        compare_runs([runs[0], ft.Run.of(small(other, algorithm, 0, rounds=1))])
    tuned_longer = small(digits, algorithm, 0, rounds=1, evaluation=ft.Evaluation(steps=7))
    with pytest.raises(ConfigError, match=r"^evaluation must be the same in all runs that are compared.*steps=7"):
        compare_runs([runs[0], ft.Run.of(tuned_longer)])
    with pytest.raises(ConfigError, match=r"evaluation must be on"):
        compare_runs([ft.Run.of(small(digits, algorithm, 0, rounds=1, evaluation=None))])


def test_harmless_differences_are_said_and_tell_contestants_apart(
    digits: ft.data.FederatedData, runs: list[ft.Run]
) -> None:
    shorter = small(digits, ft.algorithms.fedavg(lr=0.3, steps=3), 0, rounds=2, evaluation=ft.Evaluation(every=2))
    comparison = compare_runs([*runs[:2], ft.Run.of(shorter)])
    assert [line.label for line in comparison.lines] == [f"fedavg(lr=0.3, steps=3), rounds {n}" for n in (3, 2)]
    assert "rounds differs between runs: '3' and '2'" in comparison.notes
    assert "evaluation.every differs between runs: '1' and '2'" in comparison.notes
    assert any("on seeds [0]" in note for note in comparison.notes)


def test_the_same_run_twice_is_refused(runs: list[ft.Run]) -> None:
    with pytest.raises(ConfigError, match=r"seed must differ between the runs of fedavg.*Got 0"):
        compare_runs([runs[0], runs[0]])


def test_where_data_differ_by_seed_everybody_needs_every_seed(runs: list[ft.Run]) -> None:
    moved = [replace(run, identity={**run.identity, "data": f"digest {run.seed}"}) for run in runs]
    assert len(compare_runs(moved).lines) == 2
    with pytest.raises(ConfigError, match=r"seeds must be the same for all where data differ by seed.*without 1"):
        compare_runs(moved[:3])


def test_an_unfinished_or_damaged_folder_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "run.sqlite"
    copy.write_bytes((folders["fedavg-0"] / "run.sqlite").read_bytes())
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(
            "UPDATE reports SET report = replace(report, '\"round\": 1', '\"round\": 2') WHERE round = 1"
        )
    with pytest.raises(StoreError, match=r"the report of round 1 is damaged or missing"):
        ft.Run.of(tmp_path).completed()
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("DELETE FROM reports WHERE round > 0")
    with pytest.raises(ConfigError, match=r"must be finished\. Got .*1 of 3 rounds: go on with `fedtempo resume"):
        ft.Run.of(tmp_path).completed()
    with pytest.raises(ft.OutputError, match=r"a run folder must hold run\.sqlite"):
        ft.Run.of(tmp_path / "nothing").completed()


def test_csv_and_json_hold_the_same_numbers(runs: list[ft.Run]) -> None:
    comparison = compare_runs(runs, target=0.99)
    rows = list(csv.DictReader(io.StringIO(comparison.csv())))
    records = json.loads(comparison.json())["contestants"]
    for row, record in zip(rows, records, strict=True):
        assert float(row["scores/existing_after/mean/value"]) == record["scores"]["existing_after"]["mean"]["value"]
        assert row["to_reach/costs"] == "" and record["to_reach"] == {
            "target": 0.99,
            "seeds": 0,
            "of": 2,
            "costs": None,
        }
    low = records[1]["difference"]["existing_after"]["mean"]["over_users"][0]
    assert float(rows[1]["difference/existing_after/mean/over_users/low"]) == low


def test_algorithms_take_what_they_know_from_the_file_and_baselines_come_along() -> None:
    import tomllib

    file = parse(tomllib.loads(EXPERIMENT))
    entrants = entrants_of(file, "feddecay:beta=0.2,feddecay:beta=0.9,steps=4,fednar:weight_decay=0.1,max_norm=5")
    tables = {entrant.label: entrant.file.algorithm.model_dump() for entrant in entrants}
    assert list(tables)[-2:] == ["fedavg", "local_only"]
    assert tables["feddecay:beta=0.9,steps=4"] == {"name": "feddecay", "lr": 0.3, "beta": 0.9, "steps": 4}
    assert tables["fedavg"] == {"name": "fedavg", "lr": 0.3, "steps": 3}
    assert tables["fednar:weight_decay=0.1,max_norm=5"]["around"]["name"] == "feddecay"
    assert [entrant.label for entrant in entrants_of(file, None, only=True)] == ["feddecay"]
    adaptive = {**file.model_dump(), "algorithm": tomllib.loads(COMPOSED)["algorithm"]}
    borrowed = entrants_of(parse(adaptive), None)[1].file.algorithm.model_dump()
    per_round = {"schedule": "per_round", "value": 0.1, "factor": 0.99}
    assert borrowed == {"name": "fedavg", "steps": 4, "lr": {"schedule": "product", "of": [per_round, 1.0]}}
    with pytest.raises(ConfigError, match=r"algorithm 'fedavgg' is not known. Did you mean 'fedavg'"):
        parse_algorithms("fedavgg")
    with pytest.raises(ConfigError, match=r"--algorithms pflego: algorithm.head_lr must be given"):
        entrants_of(file, "pflego")


def test_the_command_runs_algorithms_and_compares_what_it_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fedtempo(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert caught.value.code == 0, printed.err
        return printed.out

    (tmp_path / "e.toml").write_text(EXPERIMENT)
    out = tmp_path / "all"
    arguments = ["--seeds", "2", "--target", "0.3", "--reference", "fedavg", "--out", str(out)]
    printed = fedtempo("compare", str(tmp_path / "e.toml"), *arguments, "--quiet")
    assert "local_only" in printed and "minus fedavg" in printed and "to reach accuracy 0.3" in printed
    assert {p.name for p in out.iterdir()} >= {"comparison.csv", "comparison.json", "report.html", "fedavg", "feddecay"}
    stored = [str(out / name / f"seed-{seed}") for name in ("fedavg", "feddecay") for seed in (0, 1)]
    again = json.loads(fedtempo("compare", *stored, "--json", "--report", str(tmp_path / "page.html")))
    first = {r["label"]: r for r in json.loads((out / "comparison.json").read_text())["contestants"]}
    for record, label in zip(again["contestants"], ("fedavg", "feddecay"), strict=True):
        assert record["scores"] == first[label]["scores"]
    assert again["contestants"][1]["difference"] == first["feddecay"]["difference"]
    assert "<html" in (tmp_path / "page.html").read_text().lower()
    rows = list(csv.DictReader(io.StringIO((out / "tidy.csv").read_text())))
    assert {(row["run"], row["seed"]) for row in rows} >= {(n, s) for n in ("fedavg", "feddecay") for s in ("0", "1")}
    assert (out / "comparison.tex").read_text().count("\\mathbf") >= 3
    table = fedtempo("compare", *stored, "--format", "markdown", "--test", "t")
    assert table.startswith("|  | existing, before") and "paired t test" in table
    assert "(t test, 2 seeds)" in fedtempo("compare", *stored)
    assert "(sign-flip test, 2 seeds)" in fedtempo("compare", *stored, "--test", "sign-flip")


def test_runs_of_other_networks_augmentations_or_losses_are_no_seeds(digits: ft.data.FederatedData) -> None:
    algorithm = ft.algorithms.fedavg(lr=0.3, steps=1)
    first = ft.Run.of(small(digits, algorithm, 0, rounds=1))
    network = ft.Run.of(small(digits, algorithm, 1, rounds=1, model=ft.models.mlp(64, [4], 10)))
    noisy = ft.Run.of(small(digits, algorithm, 1, rounds=1, augment=ft.data.augment.noise(0.5)))
    seed = ft.Run.of(small(digits, algorithm, 1, rounds=1))
    for other in (network, noisy):
        one, another = compare_runs([replace(first, label=None), replace(other, label=None)]).lines
        assert one.label != another.label and one.seeds == [0] and another.seeds == [1]
        with pytest.raises(ConfigError, match="must be the same in all runs that are compared"):
            compare_runs([replace(first, label="mine"), replace(other, label="mine")])
    (both,) = compare_runs([replace(first, label=None), replace(seed, label=None)]).lines
    assert both.seeds == [0, 1]
    losses = [ft.tasks.classification(class_weights=[1.0] * 9 + [weight]) for weight in (1.0, 9.0)]
    weighted = [ft.Run.of(small(digits, algorithm, seed, rounds=1, loss=loss)) for seed, loss in enumerate(losses)]
    with pytest.raises(ConfigError, match=r"loss .* must be the same"):
        compare_runs(weighted)
