"""Every reproduction at smoke scale, by the command and in Python; what is said when data are not here."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.papers import REPRODUCTIONS, reproduce
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Data, Training
from fedtempo.papers.framework.keys import key_of
from fedtempo.papers.framework.pages import save, verdicts
from tests.slow import slow_but
from tests.unit.papers.framework.small_runs import QUADRATIC, digits_runs

EVERY_TIME = [
    *("feddecay-ratios", "fednar-clipping", "pflego-mnist-none", "pflego-cost"),
    *("decaying-k-quadratic", "decaying-k-fractions", "decaying-k-femnist"),
    "clock-stragglers",
]
"""The cheapest of each paper; runs of the compositions are in tests/unit/papers/ every time."""


PLANNED = [*EVERY_TIME, "compositions-femnist", "control-shakespeare"]


@pytest.mark.parametrize(
    "name", slow_but(PLANNED, REPRODUCTIONS, "hundreds of runs each; those with stored results are planned every time")
)
def test_every_run_can_be_planned(name: str) -> None:
    """Settings of all scales are accepted, rows that the paper reports are among them, and no two runs are one."""
    chosen = REPRODUCTIONS[name]
    runs = {scale: chosen.runs(chosen.scales[scale], 0) for scale in chosen.scales}
    assert set(chosen.reported) <= {run.label for planned in runs.values() for run in planned}
    for planned in runs.values():
        assert len({key_of(name, run, 0) for run in planned}) == len(planned) > 0


@pytest.mark.parametrize("name", slow_but(EVERY_TIME, REPRODUCTIONS, "trains networks on whole data sets, for minutes"))
def test_smoke(name: str, tmp_path: Path, real_data: Path) -> None:
    """Every run of every reproduction runs, has the columns of its table, and its figures are drawings."""
    chosen = REPRODUCTIONS[name]
    outcome = reproduce(chosen, "smoke", tmp_path, data_dir=real_data, processes=1)
    measured = {column for label in outcome.labels for column in outcome.measured[label][0].values}
    assert set(chosen.columns) <= measured
    assert set(chosen.reported) <= {run.label for s in chosen.scales for run in chosen.runs(chosen.scales[s], 0)}
    assert {verdict.answer for verdict in verdicts(chosen, outcome).values()} == {Answer.UNCLEAR}
    for claim in chosen.claims:
        assert claim.rule(replace(outcome, scale="small")).answer in Answer
    for path in save(chosen, outcome, tmp_path, "Made in a test."):
        assert path.stat().st_size > 0
        if path.suffix == ".svg":
            assert "polyline" in path.read_text() or "circle" in path.read_text()
            ElementTree.fromstring(path.read_text())


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
        "--workers",
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


def test_other_settings_and_a_comparison_with_stored_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quick formulas, at the scale that is stored; another number of rounds has a folder of its own."""
    stored = Path(__file__).parents[2] / "docs" / "results" / "runs" / "decaying-k-fractions.json"
    monkeypatch.chdir(tmp_path)
    arguments = ("reproduce", "decaying-k-fractions", "--scale", "medium", "--workers", "1")
    assert called(monkeypatch, *arguments, "--compare-with", str(stored)) == 0
    told = capsys.readouterr().err
    assert "9 runs compared with the stored ones" in told
    assert "9 of 9 runs are left" in told
    assert called(monkeypatch, *arguments, "--set", "rounds=40") == 0
    assert [one.name for one in (tmp_path / "reproduced" / "decaying-k-fractions").iterdir() if "=" in one.name] == [
        "medium-rounds=40"
    ]


def listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert called(monkeypatch, "reproduce", "--list", *arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_the_list_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = listed(monkeypatch, capsys)
    assert [line.split()[0] for line in lines[1:-1]] == list(REPRODUCTIONS)
    assert max(map(len, lines)) <= 80
    pflego = listed(monkeypatch, capsys, "--paper", "pflego", "--minutes", "1")
    assert [line.split()[0] for line in pflego[1:-1]] == [
        name for name, one in REPRODUCTIONS.items() if one.paper == "pflego" and one.scales["small"].minutes <= 1
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a name must be given"),
        (("--list", "--paper", "pflago"), "paper 'pflago' is not known. Did you mean 'pflego'?"),
        (("decaying-k-quadratic", "--minutes", "3"), "--minutes must be used with --list"),
        (("decaying-k-quadratik",), "Did you mean 'decaying-k-quadratic'"),
        (("decaying-k-quadratic", "--scale", "huge"), "scale 'huge' is not known"),
        (("decaying-k-quadratic", "--seeds", "0"), "seeds must be an int >= 1"),
        (("decaying-k-quadratic", "--scale", "smoke", "--workers", "0"), "workers must be an int >= 1"),
        (("decaying-k-quadratic", "--set", "round=3"), "Did you mean 'rounds'"),
        (("decaying-k-quadratic", "--set", "rounds=3", "--docs", "d"), "--set must be left out with --docs"),
        (("decaying-k-quadratic", "--compare-with", "none.json"), "--compare-with must be 'stored' in a clone"),
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
