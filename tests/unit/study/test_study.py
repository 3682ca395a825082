"""The fair comparison as a whole: what is judged was not tuned on, and the same plan gives the same digits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.cli.export import export_model
from fedtempo.comparison import paired_tests
from fedtempo.config import read
from fedtempo.errors import ConfigError, OutputError
from fedtempo.study import FairComparison, Finding
from fedtempo.study.plan import TUNING_SEEDS

EXPERIMENT = """
rounds = 4
cohort = 0.5
backend = "serial"
[data]
name = "digits"
new_clients = 2
min_samples = 4
split = { name = "dirichlet", clients = 6, alpha = 1.0 }
[model]
name = "softmax_regression"
inputs = 64
outputs = 10
[algorithm]
name = "fedavg"
lr = 0.1
steps = 2
[evaluation]
every = 1
steps = 1
"""
COMMAND = ("--algorithms", "fedavg,feddecay:beta=0.5", "--only", "--tune", "--trials", "2", "--seeds", "2")
COMMAND = (*COMMAND, "--tuning-seeds", "1", "--patience", "2", "--range", "algorithm.lr={log=[0.05,2.0]}")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `fedtempo compare` and returns the exit code and what it printed."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedtempo", "compare", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    return str(tmp_path / "experiment.toml")


def test_a_comparison_of_the_same_runs_has_the_same_p(settings: dict[str, Any]) -> None:
    found = ft.compare({"a": averaged(0.1), "b": averaged(0.4)}, **{**settings, "seeds": 3})
    tests = {(one.label, one.group): one for one in paired_tests(found.comparison)}
    for one in found.decisions:
        same = tests[one.label, f"{one.users}_after"]
        assert (same.p, same.corrected) == pytest.approx((one.p, one.corrected), rel=1e-9)


def without_seconds(value: Any) -> Any:
    """Times differ from run to run, and nothing else may."""
    if isinstance(value, dict):
        return {key: without_seconds(entry) for key, entry in value.items() if key != "seconds"}
    return [without_seconds(entry) for entry in value] if isinstance(value, list) else value


def found_in(folder: Path) -> Any:
    return without_seconds(json.loads((folder / "fair.json").read_text()))


def test_the_same_command_gives_the_same_digits_and_never_judges_a_tuned_seed(
    command: Callable[..., tuple[int, str, str]], experiment: str, tmp_path: Path
) -> None:
    out = tmp_path / "a"
    code, printed, error = command(experiment, *COMMAND, "--out", str(out))
    assert code == 0, error
    assert "judged on seeds 0, 1:" in printed and "against fedavg" in printed and "to reach accuracy" in printed
    plan = json.loads((out / "plan.json").read_text())
    assert plan["seeds"] == [0, 1] and plan["tuning_seeds"] == [TUNING_SEEDS]
    assert all(len(one["points"]) == 2 for one in plan["contestants"].values())
    # What was really trained, by the folders and files that it left.
    judged = {int(folder.name.removeprefix("seed-")) for folder in out.glob("runs/*/*")}
    tuned = {json.loads(file.read_text())["seed"] for file in out.glob("tuning/*/*.json")}
    assert judged == {0, 1} and tuned == set(plan["tuning_seeds"]) and not judged & tuned
    trials = [json.loads(file.read_text()) for file in out.glob("tuning/fedavg/*.json")]
    best = found_in(out)["tuned"]["fedavg"]
    means = {}
    for point in plan["contestants"]["fedavg"]["points"]:
        own = [trial["best"] for trial in trials if trial["values"] == point]
        assert len(own) == 1
        means[point["algorithm.lr"]] = own[0]
    assert best["values"]["algorithm.lr"] == max(means, key=lambda lr: means[lr])
    assert best["score"] == pytest.approx(max(means.values()))

    # A judged run is a whole run folder: its tuned file is there, and its model can be taken away.
    judged_run = out / "runs" / "fedavg" / "seed-1"
    stored = read(judged_run / "experiment.toml")
    assert stored.seed == 1 and stored.evaluation.patience == 2
    assert stored.algorithm.settings["lr"] == best["values"]["algorithm.lr"]
    export_model(judged_run, tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == (judged_run / "model-selected.safetensors").read_bytes()

    # In another folder, and once more in the same one: nothing changes.
    first = found_in(out)
    assert command(experiment, *COMMAND, "--out", str(tmp_path / "b"), "--quiet")[0] == 0
    assert found_in(tmp_path / "b") == first
    again = command(experiment, *COMMAND, "--out", str(out))
    assert again[0] == 0 and again[1].splitlines()[:8] == printed.splitlines()[:8]
    assert found_in(out) == first

    # A plan that is written stays: other settings need another folder.
    code, _, error = command(experiment, *COMMAND, "--out", str(out), "--margin", "0.02")
    assert code == OutputError.exit_code
    assert "a plan must not change once it is written" in error and "margin is 0.01" in error and "Got 0.02" in error


@pytest.mark.slow(
    "two fresh processes that load everything; forked workers and what is sent to fresh ones run every time"
)
def test_workers_change_nothing(command: Callable[..., tuple[int, str, str]], experiment: str, tmp_path: Path) -> None:
    for workers in ("1", "2"):
        assert command(experiment, *COMMAND, "--out", str(tmp_path / workers), "--workers", workers, "--quiet")[0] == 0
    assert found_in(tmp_path / "1") == found_in(tmp_path / "2")


@pytest.mark.slow("matplotlib draws for seconds; the figures of a comparison are drawn every time in test_figures")
def test_figures_are_written_where_they_are_asked_for(
    command: Callable[..., tuple[int, str, str]], experiment: str, tmp_path: Path
) -> None:
    figures = tmp_path / "figures"
    code, _, error = command(experiment, *COMMAND, "--out", str(tmp_path / "out"), "--figures", str(figures))
    assert code == 0, error
    assert {path.suffix for path in figures.iterdir()} == {".svg", ".pdf", ".png"}


@pytest.fixture(scope="module")
def settings(digits: ft.data.FederatedData) -> dict[str, Any]:
    return {
        "model": ft.models.softmax_regression(64, 10),
        "data": digits,
        "rounds": 4,
        "backend": "serial",
        "cohort": 3,
        "evaluation": ft.Evaluation(every=1, users=4, steps=1),
        "trials": 2,
        "tuning_seeds": 1,
        "seeds": 2,
    }


def averaged(lr: float) -> ft.Algorithm:
    return ft.algorithms.fedavg(lr=lr, steps=2)


def decayed(lr: float, beta: float) -> ft.Algorithm:
    return ft.algorithms.feddecay(lr=lr, beta=beta, steps=2)


CONTESTANTS = {"average": averaged, "decay": decayed, "fixed": averaged(0.1)}
RANGES = {"lr": {"log": [0.05, 1.0]}, "decay/beta": [0.3, 0.7]}


def digits_of(found: FairComparison) -> Any:
    return without_seconds(found.as_dict())


def test_interrupted_and_resumed_is_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    """A user's own functions, cut short after every run, against the same in one go and in two processes."""
    from fedtempo.study import jobs

    contestants = {name: CONTESTANTS[name] for name in ("decay", "fixed")}
    whole = digits_of(ft.compare(contestants, tune=RANGES, **settings, workers=2))
    assert set(whole["tuned"]["decay"]["values"]) == {"lr", "beta"} and whole["tuned"]["fixed"]["values"] == {}
    train, starts = jobs.train, 0

    def cut_short(**given: Any) -> Any:
        nonlocal starts
        starts += 1
        rounds = train(**given)
        if given["resume"]:  # the second time it may go on
            return (yield from rounds)
        yield next(rounds)
        yield next(rounds)
        rounds.close()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "train", cut_short)
        for _ in range(40):
            try:
                found = ft.compare(contestants, tune=RANGES, **settings, out=tmp_path / "out")
            except KeyboardInterrupt:
                continue
            break
    assert starts == 2 * (2 + 4), "every run was begun, cut and gone on with"
    assert digits_of(found) == whole


def test_a_metric_that_is_better_when_low_is_shown_as_it_is(settings: dict[str, Any]) -> None:
    """The loss of ten classes begins at log(10) and falls: tuning has a positive score, and takes the lowest."""
    contestants = {"average": averaged, "fixed": averaged(0.1)}
    found = ft.compare(contestants, tune={"lr": [0.0001, 0.3]}, **{**settings, "metric": "loss"}, margin=0.02)
    slow, fast = (trial["score"] for trial in found.tuned["average"].trials)
    assert 0 < fast < slow < 3 and found.tuned["average"].score == fast
    assert found.plan.lower_is_better and "Validation loss by round" in found.page()


def test_answers_are_given_for_every_pair(settings: dict[str, Any]) -> None:
    found = ft.compare(
        {"good": averaged(0.3), "bad": averaged(0.0001)}, **{**settings, "seeds": [4, 9, 5]}, margin=0.02
    )
    assert [run.seed for run in found.runs if run.label == "good"] == [4, 9, 5]
    assert {(one.label, one.other, one.users) for one in found.decisions} == {
        ("bad", "good", "existing"),
        ("bad", "good", "new"),
    }
    assert all(isinstance(one.finding, Finding) and one.seeds.value < 0 for one in found.decisions)
    assert found.plan.tuning_seeds == ()
    assert "bad against good" in str(found) and "<table" in found._repr_html_()


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no range": (CONTESTANTS, {"tune": True}, "tune must have a range for 'beta', which 'decay' needs"),
    "nobody's range": (CONTESTANTS, {"tune": {**RANGES, "mu": [1, 2]}}, "a range must be for a field"),
    "one alone": ({"a": averaged}, {"tune": True}, "contestants must be two or more of different names"),
    "no algorithm": (
        {"a": averaged, "b": 3},
        {"tune": True},
        "b must be an Algorithm or a function that returns one. Got 3.",
    ),
    "tuned and judged": (CONTESTANTS, {"seeds": [TUNING_SEEDS, 1]}, "tuning seeds must be seeds that are not judged"),
    "no trials": (CONTESTANTS, {"trials": 0}, "trials must be an int >= 1. Got 0."),
    "a margin of zero": (CONTESTANTS, {"margin": 0.0}, "margin must be a number > 0. Got 0.0."),
    "a seed": (CONTESTANTS, {"seed": 3}, "seed must be left out: a fair comparison sets it. Got 3."),
    "a misspelt setting": (CONTESTANTS, {"cohorst": 3}, "Did you mean"),
    "claims about strangers": (CONTESTANTS, {"claims": [("fedprox", "average")]}, "a contestant in claims"),
    "claims about oneself": (CONTESTANTS, {"claims": [("decay", "decay")]}, "claims must be about two contestants"),
    "too few rounds": (CONTESTANTS, {"rounds": 3}, "rounds must be an int >= 4"),
    "an unknown scale": (CONTESTANTS, {"metric": "brier"}, "margin must be given for 'brier'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_before_training(
    case: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedtempo.study import jobs

    monkeypatch.setattr(jobs, "train", lambda **_: pytest.fail("it was trained"))
    contestants, given, message = WRONG[case]
    with pytest.raises(ConfigError) as error:
        ft.compare(contestants, **{**settings, "tune": RANGES, "out": tmp_path / "out", **given})
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()
