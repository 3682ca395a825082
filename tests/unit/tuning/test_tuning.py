"""Tuning: spaces, the papers' grids, grid and Hyperband, interruption, processes, the winner's file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedtempo.cli import main
from fedtempo.config import read
from fedtempo.errors import ConfigError, OutputError, TrainingError
from fedtempo.training.storage.reader import RunReader
from fedtempo.tuning import GRIDS, Found, plan_search, search, space_of
from fedtempo.tuning.space import Space, dimensions_of
from fedtempo.tuning.trial import Job, run_trial
from tests.waiting import until

BASE = """
rounds = 4
cohort = 0.5
batch_size = 16
backend = "serial"
[data]
name = "digits"
min_samples = 3
split = { name = "dirichlet", clients = 10, alpha = 0.5 }
[model]
name = "softmax_regression"
inputs = 64
outputs = 10
[algorithm]
name = "feddecay"
lr = 0.1
beta = 0.6
steps = 3
[evaluation]
every = 1
"""
CHOICES = '[tune]\n"algorithm.lr" = [0.01, 0.3]\nalgorithm.beta = [0.2, 0.9]\n'
RANGE = '[tune]\n"algorithm.lr" = { log = [0.001, 1.0] }\n"algorithm.steps" = { int = [1, 4] }\n'


def written(folder: Path, tune: str = CHOICES, base: str = BASE) -> Path:
    path = folder / "e.toml"
    path.write_text(base + tune)
    return path


def rows(found: Found) -> list[dict[str, Any]]:
    """The table without the clock's readings."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found.rows()]


@pytest.fixture(scope="module")
def grid_search(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    folder = tmp_path_factory.mktemp("grid")
    return folder, search(plan_search(space_of(written(folder))), folder / "out")


def test_a_grid_tries_every_point_in_order_and_writes_the_best_out(grid_search: tuple[Path, Found]) -> None:
    folder, found = grid_search
    tried = [(record.values["algorithm.lr"], record.values["algorithm.beta"]) for record in found.records]
    assert tried == [(0.01, 0.2), (0.01, 0.9), (0.3, 0.2), (0.3, 0.9)]
    assert found.best.outcome.value == max(record.outcome.value for record in found.records)
    assert {record.outcome.rounds for record in found.records} == {4}
    best = read(folder / "out" / "best.toml")
    assert best.algorithm.settings["lr"] == found.best.values["algorithm.lr"]
    assert best.algorithm.settings["beta"] == found.best.values["algorithm.beta"]
    assert {p.name for p in (folder / "out").iterdir()} >= {"study.sqlite", "trials.csv", "summary.json"}
    assert not list((folder / "out" / "trials").iterdir())


def test_a_trial_is_worth_what_validation_selects_by_in_the_run_itself(grid_search: tuple[Path, Found]) -> None:
    import fedtempo as ft
    from fedtempo.config import settings_of

    folder, found = grid_search
    result = ft.run(**settings_of(read(folder / "out" / "best.toml")))
    scores = [report.validation.quality() for report in result.history if report.validation]
    assert found.best.outcome.value == max(scores)
    assert result.selected is not None and found.best.outcome.best_round == result.selected.round + 1


def test_importances_are_shares_and_drawn(grid_search: tuple[Path, Found]) -> None:
    folder, found = grid_search
    assert sum(found.importances.values()) == pytest.approx(1)
    page = (folder / "out" / "report.html").read_text()
    drawn = json.loads(page.split('id="numbers">')[1].split("</script>")[0])["figures"]
    (bars,) = (one["values"] for one in drawn if one and one["kind"] == "bars")
    assert dict(bars) == pytest.approx(found.importances)


@pytest.mark.slow("two processes that load torch; the processes of training run every time")
def test_two_processes_find_what_one_does(grid_search: tuple[Path, Found], tmp_path: Path) -> None:
    _, alone = grid_search
    together = search(plan_search(space_of(written(tmp_path))), tmp_path / "out", workers=2)
    assert rows(together) == rows(alone)


@pytest.mark.slow("a program that is killed and begun again; a stopped trial goes on every time below")
def test_a_killed_search_goes_on_and_ends_as_the_uninterrupted_one(
    grid_search: tuple[Path, Found], tmp_path: Path
) -> None:
    _, alone = grid_search
    path, out = written(tmp_path), tmp_path / "out"
    program = [sys.executable, "-c", "from fedtempo.cli import main; main()", "tune", str(path), "--out", str(out)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        first, line = process.stderr.readline(), process.stderr.readline()
        database = out / "trials" / "00001" / "seed-0" / "run.sqlite"
        assert until(lambda: database.exists() or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    assert first.startswith("one run after the other") and line.startswith("1/4: trial 0 complete")
    assert process.returncode == -signal.SIGKILL
    plan = plan_search(space_of(path))
    with pytest.raises(OutputError, match=r"out must be a new folder.*--resume"):
        search(plan, out)
    assert rows(search(plan, out, resume=True)) == rows(alone)
    assert rows(search(plan, out, resume=True)) == rows(alone)


def test_a_stopped_trial_goes_on_from_its_last_stored_round(tmp_path: Path) -> None:
    values = {**tomllib.loads(BASE), "backend": "serial"}
    told: list[tuple[int, float]] = []

    def told_and_on(rounds: int, value: float) -> bool:
        told.append((rounds, value))
        return True

    def interrupted(rounds: int, value: float) -> bool:
        if rounds == 3:
            raise KeyboardInterrupt
        return True

    whole = run_trial(Job(0, values, 2, tmp_path / "whole"), told_and_on)
    with pytest.raises(KeyboardInterrupt):
        run_trial(Job(0, values, 2, tmp_path / "half"), interrupted)
    assert [len(RunReader(tmp_path / "half" / f"seed-{seed}").refresh()) for seed in (0, 1)] == [3, 3]
    first, told[:] = list(told), []
    half = run_trial(Job(0, values, 2, tmp_path / "half"), told_and_on)
    assert told == first
    assert (half.value, half.best_round, half.rounds) == (whole.value, whole.best_round, whole.rounds)


@pytest.mark.slow("two searches; one that goes on from what is stored, which repeats its draws, runs every time below")
def test_hyperband_repeats_itself(tmp_path: Path) -> None:
    plan = plan_search(space_of(written(tmp_path, RANGE, BASE.replace("rounds = 4", "rounds = 6"))), trials=5)
    assert rows(search(plan, tmp_path / "a")) == rows(search(plan, tmp_path / "b"))


def test_hyperband_ends_trials_early_and_goes_on(tmp_path: Path) -> None:
    space = space_of(written(tmp_path, RANGE, BASE.replace("rounds = 4", "rounds = 6")))
    plan = plan_search(space, trials=5)
    assert plan.method == "hyperband"
    first = search(plan, tmp_path / "a")
    states = [record.outcome.state for record in first.records]
    assert states.count("pruned") >= 1 and states.count("complete") >= 1
    assert all(r.outcome.rounds < 6 for r in first.records if r.outcome.state == "pruned")
    assert len({record.values["algorithm.lr"] for record in first.records}) == 5
    assert all(0.001 <= record.values["algorithm.lr"] <= 1 for record in first.records)
    more = search(plan_search(space, trials=6), tmp_path / "a", resume=True)
    assert rows(more)[:5] == rows(first) and len(more.records) == 6


def test_a_failed_trial_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    plan = plan_search(space_of(written(tmp_path, "[tune]\ncohort = [5, 1000, 6]\n")))
    found = search(plan, tmp_path / "out")
    assert [record.outcome.state for record in found.records] == ["complete", "failed", "complete"]
    assert "cohort must be" in found.records[1].outcome.reason and "1000" in found.records[1].outcome.reason
    assert found.best.number in (0, 2)
    with pytest.raises(TrainingError, match=r"no trial finished. cohort must be"):
        print(Found(plan, found.records[1:2], {}).best)


def test_grids_are_as_released_where_they_say_so() -> None:
    """FedDecay's code scales the displacement of an epoch; Algorithm 3 of decaying K corrects bias, without weights."""
    assert GRIDS["feddecay"].algorithm["per"] == GRIDS["feddecay_linear"].algorithm["per"] == "epoch_displacement"
    adam = GRIDS["decaying_k_adam"].algorithm
    assert adam["bias_correction"] is True and adam["weighting"] == "uniform"
    assert GRIDS["decaying_k"].algorithm["weighting"] == "samples"


@pytest.mark.parametrize("name", GRIDS)
def test_every_papers_grid_is_made_of_experiments(name: str, tmp_path: Path) -> None:
    base = BASE.replace('"softmax_regression"\ninputs = 64', '"mlp"\ninputs = 64\nhidden = [8]')
    space = space_of(written(tmp_path, "", base), grid=name)
    sizes = {"feddecay": 20, "pfedme": 80, "fednar": 5, "decaying_k": 576, "pflego": 6, "ditto": 40, "fedavg": 10}
    assert space.size == len(list(space.points())) == sizes.get(name, space.size)
    assert space.values["algorithm"] == GRIDS[name].algorithm


def test_a_grid_can_be_adjusted_and_added_to(tmp_path: Path) -> None:
    path = written(tmp_path, "[tune]\nbatch_size = [8, 16]\nalgorithm.lr = [0.1]\n")
    space = space_of(path, grid="feddecay", settings={"algorithm.epochs": 1})
    assert space.size == 2 * 1 * 4
    file = space.experiment(list(space.points())[-1])
    assert file.batch_size == 16 and file.algorithm.settings == {
        "epochs": 1,
        "decay": "exponential",
        "per": "epoch_displacement",
        "lr": 0.1,
        "beta": 0.8,
    }


def test_fields_may_be_lists_tables_and_entries_of_lists() -> None:
    values = tomllib.loads(BASE.replace("lr = 0.1", 'lr = { schedule = "product", of = [0.1, 1.0] }'))
    space = Space(values, tuple(dimensions_of({"algorithm.lr.of.0": [0.5], "rounds": [7]}).values()))
    file = space.experiment(next(space.points()))
    assert file.algorithm.settings["lr"]["of"] == [0.5, 1.0] and file.rounds == 7
    tied = dimensions_of({"algorithm.lr,evaluation.lr": [0.25]})
    file = Space(tomllib.loads(BASE), tuple(tied.values())).experiment({"algorithm.lr,evaluation.lr": 0.25})
    assert file.algorithm.settings["lr"] == file.evaluation.lr == 0.25


WRONG = {
    '[tune]\n"algorithm.betta" = [0.1]\n': r"tune 'algorithm.betta' = 0.1: .*'betta' is not known. Did you mean 'beta'",
    '[tune]\n"algorthm.lr" = [0.1]\n': r"tune 'algorthm.lr' = 0.1: .*'algorthm' is not known. Did you mean 'algorithm'",
    '[tune]\n"algorithm.beta" = [0.5, 3.0]\n': r"tune 'algorithm.beta' = 3.0: algorithm.beta must .* Got 3.0",
    "[tune]\n": r"tune must have at least one field to try. Got none",
    '[tune]\n"algorithm.lr" = []\n': r"tune 'algorithm.lr' must be a list of at least one value.* Got \[\]",
    '[tune]\n"algorithm.lr" = [0.1, 0.1]\n': "none of them twice",
    '[tune]\n"algorithm.lr" = 0.1\n': "must be a list of at least one value, or a range",
    '[tune]\n"algorithm.lr" = { log = [0.0, 1.0] }\n': "above 0 on a logarithmic scale. Got",
    '[tune]\n"algorithm.lr" = { log = [1.0, 0.1] }\n': r"\[low, high\] with low < high. Got \[1.0, 0.1\]",
    '[tune]\n"algorithm.lr" = { logg = [0.1, 1.0], points = 2 }\n': "'logg' is not known. Did you mean 'log'",
    '[tune]\n"algorithm.steps" = { int = [1, 2.5] }\n': "two whole numbers",
    '[tune]\n"algorithm.lr.value" = [0.1]\n': "must lead into a table. Got 'lr', which is a value",
}


@pytest.mark.parametrize("tune", WRONG)
def test_a_wrong_space_is_refused_in_words(tune: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=WRONG[tune]):
        space_of(written(tmp_path, tune))


def test_what_a_search_cannot_do_is_said_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.validation must be above 0 for tune.*Got 0.0"):
        plan_search(
            space_of(written(tmp_path, base=BASE.replace("min_samples = 3", "min_samples = 3\nvalidation = 0.0")))
        )
    space = space_of(written(tmp_path, RANGE))
    with pytest.raises(ConfigError, match=r"tune 'algorithm.lr' must have choices or points in a grid. Got a range"):
        plan_search(space, "grid")
    with pytest.raises(ConfigError, match=r"method must be 'grid' or 'hyperband'. Got 'random'"):
        plan_search(space, "random")
    with pytest.raises(ConfigError, match=r"evaluation.every must be at most rounds / 3 .* Got 2"):
        plan_search(space_of(written(tmp_path, RANGE, BASE.replace("every = 1", "every = 2"))))
    with pytest.raises(ConfigError, match=r"grid 'fedecay' is not known. Did you mean 'feddecay'"):
        space_of(written(tmp_path), grid="fedecay")


def test_another_search_does_not_go_on_in_this_folder(grid_search: tuple[Path, Found], tmp_path: Path) -> None:
    folder, _ = grid_search
    other = plan_search(space_of(written(tmp_path)), seeds=2)
    with pytest.raises(OutputError, match=r"seeds must be that of the stored search, '1'. Got '2'"):
        search(other, folder / "out", resume=True)
    with pytest.raises(OutputError, match=r"a folder to resume must hold a search"):
        search(other, tmp_path / "nothing", resume=True)


def test_without_optuna_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_of(written(tmp_path))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"tune needs optuna: pip install '\.\[tune\]'"):
        plan_search(space)


def test_the_command_prints_json_and_its_winner_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fedtempo(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert caught.value.code == 0, printed.err
        return printed.out

    path, out = written(tmp_path, '[tune]\n"algorithm.lr" = [0.05, 0.3]\n'), tmp_path / "out"
    printed = json.loads(fedtempo("tune", str(path), "--out", str(out), "--set", "rounds=2", "--json"))
    assert len(printed["trials"]) == 2 and printed["best"]["values"]["algorithm.lr"] in (0.05, 0.3)
    summary = json.loads(fedtempo("run", str(out / "best.toml"), "--json"))
    assert summary["rounds"] == 2
