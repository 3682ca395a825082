"""The command line from end to end: what a user types, and what is then on the screen and in the folder."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.cli import main
from fedtempo.cli.demo_runs import DIFFERENT, MAKERS, TUNED
from tests import ROOT, programs

EXAMPLES = ROOT / "examples"
EXAMPLE = str(EXAMPLES / "feddecay.toml")
PROGRAM = [sys.executable, "-c", "from fedtempo.cli import main; main()"]
FILES = {"experiment.toml", "metrics.jsonl", "summary.json", "report.html"}


@pytest.fixture
def fedtempo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`fedtempo ARGUMENTS` in this process; returns what it printed."""

    def call(*arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert caught.value.code == 0, printed.err
        return printed.out, printed.err

    return call


def test_a_run_leaves_its_files_and_repeats_to_the_bit(fedtempo: Any, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    printed, _ = fedtempo("run", EXAMPLE, "--out", str(first), "--json", "--set", "rounds=12")
    summary = json.loads(printed)
    assert {path.name for path in first.iterdir()} >= FILES
    assert json.loads((first / "summary.json").read_text())["digest"] == summary["digest"]
    lines = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, 13))
    assert summary["rounds"] == 12
    assert 0.5 < summary["scores"]["new_after"]["accuracy"]["mean"] <= 1
    page = (first / "report.html").read_text()
    assert "<html" in page.lower()

    repeated, _ = fedtempo("run", str(first / "experiment.toml"), "--out", str(again), "--json")
    assert json.loads(repeated)["digest"] == summary["digest"]
    assert (again / "experiment.toml").read_text() == (first / "experiment.toml").read_text()


def test_everything_written_is_json_for_every_reader(fedtempo: Any, tmp_path: Path) -> None:
    """A private run has no loss to tell, and no scores of existing users: NaN in Python, null in JSON."""

    def refused(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    private = "aggregator={name='private_mean',bound=1.0,noise=1.0}"
    arguments = ("--tracker", "jsonl", "--json", "--set", "rounds=2", "--set", private)
    printed, _ = fedtempo("run", EXAMPLE, "--out", str(tmp_path / "run"), *arguments)
    files = {path.name: path.read_text() for path in (tmp_path / "run").iterdir() if path.suffix in (".json", ".jsonl")}
    told = json.loads(printed, parse_constant=refused)
    assert json.loads(files["summary.json"], parse_constant=refused)["scores"] == told["scores"]
    for name in ("metrics.jsonl", "rounds.jsonl"):
        lines = [json.loads(line, parse_constant=refused) for line in files[name].splitlines()]
        assert [line["loss"] for line in lines] == [None, None]


def test_a_second_run_does_not_overwrite_the_first(
    fedtempo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", EXAMPLE, "--out", str(tmp_path / "run"), "--quiet", "--set", "rounds=1"]
    fedtempo(*arguments)
    before = (tmp_path / "run" / "summary.json").read_bytes()
    monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert "out must be a new folder" in line
    assert (tmp_path / "run" / "summary.json").read_bytes() == before


def test_another_seed_gives_another_digest_and_overrides_count(fedtempo: Any) -> None:
    changes = ("--json", "--set", "rounds=2", "--set", "cohort=3")
    digests = {json.loads(fedtempo("run", EXAMPLE, *changes, *more)[0])["digest"] for more in ((), ("--seed", "1"))}
    assert len(digests) == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_runs_and_has_a_schedule(path: Path, fedtempo: Any) -> None:
    printed, _ = fedtempo("run", str(path), "--quiet", "--set", "rounds=1")
    assert "digest" in printed
    fedtempo("schedule", str(path), "--rounds", "1")


def test_schedule_prints_the_rates_and_the_ratio(fedtempo: Any, tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    printed, error = fedtempo("schedule", EXAMPLE, "--rounds", "1,30", "--plot", str(plot))
    assert not error
    assert "local steps K" in printed
    assert "rates by step" in printed
    (drawn,) = json.loads(plot.read_text().split('id="numbers">')[1].split("</script>")[0])["figures"]
    assert drawn["plan"]["rounds"] == list(range(1, 31))
    assert "<h2>What was run" not in plot.read_text()
    values = json.loads(fedtempo("schedule", EXAMPLE, "--rounds", "1,30", "--json")[0])
    rates = [step["rates"]["lr"] for step in values["steps"] if step["round"] == 30]
    assert rates == pytest.approx([0.1 * 0.6**step for step in range(10)])
    assert values["rounds"][0]["ratio"] == pytest.approx(ft.theory.personalization_ratio(rates, 1.0))


def test_schedule_says_what_depends_on_the_run_and_shows_it_after_the_run(fedtempo: Any, tmp_path: Path) -> None:
    """K halves every 120 s of the clock; half of 20 is 10, and no plan knows in which round that is."""
    example = str(EXAMPLES / "phones_decaying_k.toml")
    printed, _ = fedtempo("schedule", example, "--rounds", "1,2,60")
    assert "? K depends on the run: it follows the clock." in printed
    before = json.loads(fedtempo("schedule", example, "--rounds", "1,2,60", "--json")[0])
    assert [row["steps"] for row in before["rounds"]] == [[20], [None], [None]]
    assert before["depends_on"] == {"K": ["the clock"]} and before["rounds"][1]["ratio"] is None
    folder = tmp_path / "run"
    fedtempo("run", example, "--out", str(folder), "--quiet", "--set", "rounds=12", "--set", "evaluation.every=12")
    times = [json.loads(line)["total_time"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    after = json.loads(fedtempo("schedule", example, "--after", str(folder), "--json")[0])
    expected = [math.ceil(20 * 0.5 ** (time / 120) - 1e-9) for time in (0.0, *times)]
    assert [row["steps"] for row in after["rounds"]] == [[expected[row["round"] - 1]] for row in after["rounds"]]
    assert after["depends_on"] == {} and expected[11] < 20


def test_schedule_shows_how_far_contestants_go_at_one_rate(fedtempo: Any) -> None:
    """Ten steps at 0.1 add up to 1; with factors of 0.6 to (1 - 0.6^10) / 4, and equal travel makes up for it."""
    named = ("--algorithms", "fedavg,feddecay,feddecay:beta=0.6,travel=equal")
    values = json.loads(fedtempo("schedule", EXAMPLE, *named, "--json")[0])
    travels = [values[label]["travel"] for label in ("fedavg", "feddecay", "feddecay:beta=0.6,travel=equal")]
    assert travels == pytest.approx([1.0, (1 - 0.6**10) / 4, 1.0])
    assert values["feddecay"]["factors"] == pytest.approx(10 * travels[1])
    printed, _ = fedtempo("schedule", EXAMPLE, *named)
    assert "sum of factors" in " ".join(printed.split()) and "times as far as the shortest" in printed


def test_advise_measures_and_suggests_nothing(fedtempo: Any) -> None:
    found = json.loads(fedtempo("advise", EXAMPLE, "--json")[0])
    assert 0 <= found["measurements"]["disagreement"] <= 1
    assert found["ratio"] == pytest.approx(0.45) and found["drift"] > 0 and found["findings"]
    assert {"beta", "k_decay"}.isdisjoint(found)


def test_the_demo_writes_its_page(fedtempo: Any, tmp_path: Path) -> None:
    printed, error = fedtempo("demo", "--rounds", "1", "--seeds", "1", "--out", str(tmp_path / "demo"))
    for label in MAKERS:
        assert printed.count(label) >= 2, "a row of the table and a sentence"
    assert "these seeds can't tell" in printed and "better" not in printed, "one seed makes no lead"
    assert "very different users (alpha 0.1)" in printed and "x after" in printed
    assert "12 of 12 runs" in error
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "Before and after fine-tuning, by beta" in page
    assert (tmp_path / "demo" / "trade-off.svg").read_text().startswith("<svg")


ROWS = re.compile(r"^algorithm +before.*?\n(.*?)^```", re.S | re.M)


def rows_of_the_readme() -> list[str]:
    _, demo = (ROOT / "README.md").read_text().split("## The demo\n")
    (rows,) = ROWS.findall(demo)
    return [line.rstrip() for line in rows.splitlines()]


def test_the_readme_shows_everybody_in_the_demo() -> None:
    labels = [line[:12].strip() for line in rows_of_the_readme()]
    assert labels == list(TUNED[DIFFERENT])


@pytest.mark.slow("the whole demo takes a minute, and its numbers change only with an algorithm's or the data's bits")
def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    command = [*PROGRAM, "demo", "--quiet", "--out", str(tmp_path / "demo")]
    wide = {**os.environ, "COLUMNS": "100"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    missing = [row for row in rows_of_the_readme() if row not in lines]
    assert not missing, printed


def test_help_lists_every_algorithm_with_one_line(fedtempo: Any) -> None:
    printed, _ = fedtempo("run", "--help")
    text = " ".join(printed.split())
    for name, build in ft.algorithms.ALGORITHMS.items():
        line = (build.__doc__ or "").strip().splitlines()[0]
        assert f"{name}: " in text
        assert line.split()[0] in text


def test_without_a_terminal_there_are_plain_lines(fedtempo: Any) -> None:
    _, error = fedtempo("run", EXAMPLE, "--set", "rounds=2", "--set", "evaluation.every=2")
    first, last = error.splitlines()
    assert first.startswith("feddecay: round 1/2 loss ")
    assert last.startswith("feddecay: round 2/2 loss ")
    assert "accuracy" in last
    assert "\x1b" not in error


def test_in_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is a terminal, standard output a pipe: the bar is drawn, and the table stays clean."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    leader, follower = pty.openpty()
    process = programs.fedtempo("run", EXAMPLE, "--set", "rounds=3", error=follower)
    os.close(follower)
    drawn = b""
    while chunk := _read(leader):
        drawn += chunk
    table, _ = process.communicate()
    os.close(leader)
    assert process.returncode == 0
    assert "━".encode() in drawn
    assert b"3/3" in drawn
    assert b"rounds/s" in drawn
    assert "digest" in table
    assert "\x1b" not in table


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def test_the_version(fedtempo: Any) -> None:
    assert fedtempo("--version")[0].strip() == ft.__version__
