"""Every reproduction at smoke scale; what is kept, what is repeated, and what is said when data are not here."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.papers import REPRODUCTIONS, SCALES, reproduce
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.frame import Calculation, Data, Measured, Model, Training, key_of, scale
from fedtempo.papers.framework.measures import costs, learning, to_target, train_loss, users
from fedtempo.papers.framework.pages import record, save, save_into_docs, verdicts
from fedtempo.papers.framework.probing import estimated_seconds
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.running import plan

QUADRATIC = REPRODUCTIONS["decaying-k-quadratic"]


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_smoke(name: str, tmp_path: Path, real_data: Path) -> None:
    """Every run of every reproduction runs, has the columns of its table, and its figures are drawings."""
    chosen = REPRODUCTIONS[name]
    outcome = reproduce(chosen, "smoke", tmp_path, data_dir=real_data, processes=1)
    measured = {column for label in outcome.labels for column in outcome.measured[label][0].values}
    assert set(chosen.columns) <= measured
    assert set(chosen.reported) <= {run.label for s in SCALES for run in chosen.runs(chosen.scales[s], 0)}
    assert {verdict.answer for verdict in verdicts(chosen, outcome).values()} == {Answer.UNCLEAR}
    for claim in chosen.claims:
        assert claim.rule(replace(outcome, scale="small")).answer in Answer
    for path in save(chosen, outcome, tmp_path, "Made in a test."):
        assert path.stat().st_size > 0
        if path.suffix == ".svg":
            assert "polyline" in path.read_text() or "circle" in path.read_text()
            ElementTree.fromstring(path.read_text())


def test_numbers_are_the_same_in_one_process_and_in_two(tmp_path: Path) -> None:
    one = reproduce(QUADRATIC, "smoke", tmp_path / "one", processes=1, seeds=2)
    two = reproduce(QUADRATIC, "smoke", tmp_path / "two", processes=2, seeds=2)
    assert json.dumps(record(QUADRATIC, one)) == json.dumps(record(QUADRATIC, two))


def test_finished_runs_are_kept_and_damaged_ones_done_again(tmp_path: Path) -> None:
    first = reproduce(QUADRATIC, "smoke", tmp_path, processes=1)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    damaged, gone, *_ = sorted(kept)
    damaged.write_text(damaged.read_text()[:40])
    gone.unlink()
    seen: list[tuple[int, int]] = []
    again = reproduce(
        QUADRATIC, "smoke", tmp_path, processes=2, observe=lambda done, total, _: seen.append((done, total))
    )
    assert seen == [(5, 7), (6, 7), (7, 7)]
    assert again == first
    changed = [path for path, time in kept.items() if path.stat().st_mtime_ns != time]
    assert sorted(changed) == [damaged, gone]


def test_another_setting_is_another_run() -> None:
    runs = QUADRATIC.runs(QUADRATIC.scales["smoke"], 0)
    keys = {key_of("a", run, 0) for run in runs} | {key_of("a", runs[0], 1), key_of("b", runs[0], 0)}
    longer = replace(runs[0], settings={**runs[0].settings, "rounds": 25})
    assert len(keys | {key_of("a", longer, 0)}) == len(runs) + 3


def test_settings_that_do_not_print_are_refused() -> None:
    run = replace(QUADRATIC.runs(QUADRATIC.scales["smoke"], 0)[0], settings={"loss": object()})
    with pytest.raises(ft.ConfigError, match="values that print"):
        key_of("a", run, 0)


def digits_runs(scale: object, seed: int) -> list[Training]:
    data = Data("digits", ft.data.dirichlet(10, 0.5), seed, {"new_clients": 2, "min_samples": 3}, rows=400)
    measures = (users, costs, train_loss, learning, to_target_of_a_fifth, to_target_of_two)
    settings = {"rounds": 6, "cohort": 4, "seed": seed, "evaluation": ft.Evaluation(every=2)}
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=3)
    return [
        Training(
            "FedAvg", data, Model("mlp", {"inputs": 64, "hidden": [8], "outputs": 10}), algorithm, settings, measures
        )
    ]


def to_target_of_a_fifth(result: ft.Result) -> Measured:
    return to_target(result, 0.01)


def to_target_of_two(result: ft.Result) -> Measured:
    return Measured({"never": to_target(result, 2.0).values["rounds_to_target"]})


def test_measures_of_users_costs_and_targets() -> None:
    measured = digits_runs(None, 0)[0].perform(None)
    assert 0 <= measured.values["new_after/mean"] <= 1
    assert measured.values["steps"] == 6 * 4 * 3
    assert measured.values["steps_used"] == 1
    assert measured.values["rounds_to_target"] == 2
    assert measured.values["steps_to_target"] == 2 * 4 * 3
    assert math.isnan(measured.values["never"])
    assert measured.curves["existing_after"].x == (2, 4, 6)
    assert measured.values["existing_after/best"] == max(measured.curves["existing_after"].y)
    assert measured.values["min_train_loss"] == min(measured.curves["train_loss"].y)


def test_time_is_estimated_from_a_few_rounds(tmp_path: Path) -> None:
    tasks = plan(replace(QUADRATIC, runs=digits_runs), "smoke", 4, tmp_path)
    assert 0 < estimated_seconds(tasks, None, processes=2) < 60


def failing(number: int) -> Measured:
    raise ft.DataError(f"{number} must be smaller. Got {number}.")


def test_an_error_in_a_process_comes_back_with_its_run(tmp_path: Path) -> None:
    runs = [Calculation(f"run {number}", {"number": number}, failing) for number in (1, 2)]
    broken = Reproduction(
        **{**vars(QUADRATIC), "runs": lambda scale, seed: runs, "scales": dict.fromkeys(SCALES, scale(1, 0.1))}
    )
    with pytest.raises(ft.DataError, match="run 1, seed 0: 1 must be smaller"):
        reproduce(broken, "smoke", tmp_path, processes=2)


def test_a_section_of_the_docs_is_replaced_and_what_people_wrote_stays(tmp_path: Path) -> None:
    outcome = reproduce(QUADRATIC, "smoke", tmp_path / "out", processes=1)
    page = save_into_docs(QUADRATIC, outcome, tmp_path, "First.")
    page.write_text(page.read_text() + "\nWhat we think of it.\n")
    again = save_into_docs(QUADRATIC, outcome, tmp_path, "Second.").read_text()
    assert "First." not in again
    assert again.count("Second.") == 1
    assert again.endswith("What we think of it.\n")
    assert (tmp_path / "figures" / "decaying-k-quadratic-smoke-a.svg").exists()


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["fedtempo", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "reproduce",
        "decaying-k-quadratic",
        "--scale",
        "smoke",
        "--out",
        str(tmp_path / "a"),
        "--processes",
        "1",
    )
    assert called(monkeypatch, *arguments, "--docs", str(tmp_path / "docs")) == 0
    assert "paper" in capsys.readouterr().out
    assert "Figure 1" in (tmp_path / "docs" / "decaying-k.md").read_text()
    assert called(monkeypatch, *arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "a" / "table.json").read_text())
    assert called(monkeypatch, "reproduce", "--list") == 0
    assert "decaying-k-quadratic" in capsys.readouterr().out
    assert called(monkeypatch, "reproduce", "--list", "--json") == 0
    assert {line["name"] for line in json.loads(capsys.readouterr().out)} == set(REPRODUCTIONS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a name must be given"),
        (("decaying-k-quadratik",), "Did you mean 'decaying-k-quadratic'"),
        (("decaying-k-quadratic", "--scale", "huge"), "scale 'huge' is not known"),
        (("decaying-k-quadratic", "--seeds", "0"), "seeds must be an int >= 1"),
        (("decaying-k-quadratic", "--scale", "smoke", "--processes", "0"), "processes must be an int >= 1"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "reproduce", *arguments) == 3
    assert message in capsys.readouterr().err


def test_data_that_are_not_here(tmp_path: Path) -> None:
    def runs(scale: object, seed: int) -> list[Training]:
        return [replace(digits_runs(scale, seed)[0], data=Data("mnist"))]

    with pytest.raises(ft.DataError, match="fedtempo data get mnist"):
        reproduce(replace(QUADRATIC, runs=runs), "smoke", tmp_path, data_dir=tmp_path)
    assert not (tmp_path / "runs").exists()
