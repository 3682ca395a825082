"""One view of a run: a result in memory, its folder and its saved file are seen alike."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.errors import ConfigError
from fedtempo.report import read_run

SETTINGS = {"rounds": 4, "cohort": 5, "evaluation": ft.Evaluation(every=2), "seed": 3}


def trained(digits: ft.data.FederatedData, out: Path | None = None, **changes) -> ft.Result:
    algorithm = ft.algorithms.feddecay(lr=ft.schedules.per_round(0.1, 0.9), beta=0.5, steps=3)
    model = ft.models.softmax_regression(64, 10)
    return ft.run(model=model, data=digits, algorithm=algorithm, out=out, **{**SETTINGS, **changes})


def test_a_result_its_folder_and_its_file_are_seen_alike(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    result = trained(digits, tmp_path / "run")
    seen = [result, tmp_path / "run", result.saved(), result.save(tmp_path / "saved.ft")]
    first, *others = (ft.Run.of(source) for source in seen)
    for run in others:
        assert (run.name, run.seed, run.digest, run.complete) == (first.name, 3, result.digest(), True)
        assert run.identity == first.identity and run.costs == first.costs
        assert [report.loss for report in run.history] == [report.loss for report in first.history]
        assert run.judged.summary() == first.judged.summary()
        assert run.facts["fine-tuning"] == first.facts["fine-tuning"]
    assert ft.Run.of(result, "mine").name == "mine"


def test_a_folder_has_pictures_where_its_experiment_is_known(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    result = trained(digits, tmp_path)
    assert ft.Run.of(result).drawn().picture is not None and ft.Run.of(tmp_path).drawn().picture is None
    run = read_run(tmp_path)
    assert run.versions["torch"] and (tmp_path / "report.html").read_text().count(result.digest()) >= 2


def test_a_run_that_goes_on_is_not_complete_and_one_without_scores_is_not_judged(
    digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    settings = {"model": ft.models.softmax_regression(64, 10), "data": digits, "evaluation": None, "out": tmp_path}
    rounds = ft.train(algorithm=ft.algorithms.fedavg(lr=0.1, steps=1), rounds=3, cohort=2, **settings)
    next(rounds)
    rounds.close()
    run = ft.Run.of(tmp_path)
    assert not run.complete
    with pytest.raises(ConfigError, match=r"must be finished\. Got .* of 3 rounds: go on with `fedtempo resume"):
        run.completed()
    with pytest.raises(ConfigError, match="which has no scores"):
        _ = run.judged
