"""Further than planned, and not as far: more rounds for a stored run, and stopping early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.comparison import compare_runs
from fedtempo.config import parse
from fedtempo.report.folder import summary
from fedtempo.training.round_report import RoundReport, evaluations_since_best
from fedtempo.tuning.trial import Job, run_trial
from tests.unit.config.experiments import experiment

NAR = ft.algorithms.fednar(ft.algorithms.fedavg(0.1, 1), weight_decay=ft.schedules.cosine(0.1, 4), max_norm=1.0)


def run(rounds: int, out: Path | None = None, **more: Any) -> ft.Result:
    evaluation = more.pop("evaluation", ft.Evaluation(every=2))
    algorithm = more.pop("algorithm", ft.algorithms.fedper(lr=0.2, steps=2))
    data = ft.data.load("digits").split(ft.data.iid(6), validation=0.2, test=0.2)
    model = ft.models.mlp(64, [4], 10)
    settings = {"cohort": 3, "backend": "serial", "workers": 1, **more}
    return ft.run(
        model=model, data=data, algorithm=algorithm, rounds=rounds, evaluation=evaluation, out=out, **settings
    )


def test_an_extended_run_is_the_longer_run_bit_for_bit(tmp_path: Path) -> None:
    whole = run(6)
    run(4, tmp_path)
    again = run(6, tmp_path, resume=True)
    assert again.digest() == whole.digest()
    assert [report.loss for report in again.history] == [report.loss for report in whole.history]
    assert run(6, tmp_path, resume=True).digest() == whole.digest()
    assert run(7, tmp_path, resume=True).digest() == run(7).digest()
    for fewer in (4, 6):
        with pytest.raises(ft.OutputError, match="rounds must be that of the stored run, '7'"):
            run(fewer, tmp_path, resume=True)
    assert ft.Run.of(tmp_path).completed().identity["rounds"] == "7"


def test_nothing_but_the_number_of_rounds_may_differ(tmp_path: Path) -> None:
    run(2, tmp_path)
    with pytest.raises(ft.OutputError, match="seed must be that of the stored run"):
        run(4, tmp_path, resume=True, seed=1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evaluation": ft.Evaluation()}, "evaluation.every is a tenth of the rounds, 1"),
        (
            {"algorithm": ft.algorithms.fedavg(lr=ft.schedules.cosine(0.1, 4) * 2.0, steps=1)},
            "lr is a schedule over 4 rounds",
        ),
        (
            {"algorithm": NAR},
            "weight_decay is a schedule over 4 rounds",
        ),
    ],
)
def test_what_depends_on_the_number_of_rounds_is_asked_for(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    before = run(4, tmp_path, **changes)
    with pytest.raises(ft.ConfigError) as error:
        run(25, tmp_path, resume=True, **changes)
    assert reason in str(error.value)
    assert "--as-planned" in str(error.value)
    assert run(4, tmp_path, resume=True, **changes).digest() == before.digest()  # the refusal has changed nothing
    longer = run(25, tmp_path, resume=True, as_planned=True, **changes)
    assert len(longer.history) == 25
    if reason.startswith("evaluation"):
        assert all(report.validation for report in longer.history)
    with pytest.raises(ft.ConfigError, match="as_planned must be left out where no run is resumed"):
        run(4, as_planned=True)


def test_patience_ends_a_run_and_keeps_its_costs(tmp_path: Path) -> None:
    patient = ft.Evaluation(every=1, patience=2)
    unmoving = {"algorithm": ft.algorithms.fedavg(lr=0.0, steps=1), "evaluation": patient}
    result = run(9, tmp_path, **unmoving)
    assert [report.stops for report in result.history] == [False, False, True]
    assert result.stopped_early == summary(result)["stopped_early"] == 3
    assert result.costs == result.history[-1].total_costs
    assert result.at("last").round == 2
    assert result.at().round == 0
    assert any(note.startswith("stopped early in round 3 of 9") for note in result.notes)
    assert "stopped early in round 3" in (tmp_path / "report.html").read_text()
    again = run(9, tmp_path, resume=True, **unmoving)
    assert (len(again.history), again.digest()) == (3, result.digest())
    compared = compare_runs([ft.Run.of(tmp_path).completed(), ft.Run.of(tmp_path).completed()][:1], None, None)
    assert compared is not None
    assert run(9, **{**unmoving, "evaluation": ft.Evaluation(every=1)}).stopped_early is None


def test_patience_needs_validation() -> None:
    data = ft.data.load("digits").split(ft.data.iid(6), validation=0.0, test=0.2)
    settings: dict[str, Any] = {"model": ft.models.mlp(64, [4], 10), "algorithm": ft.algorithms.fedavg(0.1, 1)}
    with pytest.raises(ft.ConfigError, match=r"evaluation\.patience must be left out where no rows are for validation"):
        ft.run(data=data, rounds=2, evaluation=ft.Evaluation(patience=1), **settings)
    with pytest.raises(ft.ConfigError, match=r"evaluation\.patience must be an int >= 1"):
        ft.Evaluation(patience=0)
    assert parse(experiment(evaluation={"patience": 3})).evaluation.patience == 3


def test_a_trial_whose_seeds_stop_in_different_rounds_is_complete(tmp_path: Path) -> None:
    values = experiment(
        rounds=12, evaluation={"every": 1, "patience": 1}, algorithm={"name": "fedavg", "lr": 3.0, "steps": 2}
    )
    values["data"]["validation"] = 0.2
    told: list[int] = []

    def goes_on(rounds: int, best: float) -> bool:
        told.append(rounds)
        return True

    outcome = run_trial(Job(0, values, 3, tmp_path / "trial"), goes_on)
    assert outcome.state == "complete"
    assert outcome.rounds == max(told) < 12
    assert 0 < outcome.value <= 1


def test_fruitless_counts_evaluations_since_the_selected_one() -> None:
    assert evaluations_since_best([]) == 0
    result = run(6, evaluation=ft.Evaluation(every=2))
    history: list[RoundReport] = result.history
    selected = [report.round for report in history if report.selects]
    assert evaluations_since_best(history) == (5 - selected[-1]) // 2
