"""`fedtempo new`: every file that it writes is an experiment that runs, and wrong answers are named."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtempo.algorithms import ALGORITHMS
from fedtempo.cli import main
from fedtempo.cli.main import app
from fedtempo.cli.new import STARTS
from fedtempo.config import read


def written(path: Path, *arguments: str) -> None:
    done = CliRunner().invoke(app, ["new", str(path), *arguments])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - {"adaptive_decay"}))
def test_a_file_for_every_algorithm_is_accepted_by_the_reader(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    written(path, "--algorithm", algorithm, "--rounds", "3")
    experiment = read(path)
    assert (experiment.rounds, experiment.algorithm.name) == (3, algorithm)
    assert "# " in path.read_text()


@pytest.mark.parametrize("data", STARTS)
def test_a_file_for_every_data_set_is_accepted_by_the_reader(data: str, tmp_path: Path) -> None:
    written(tmp_path / "a.toml", "--data", data)
    assert read(tmp_path / "a.toml").data.name == data


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["patient", "age", "smokes", "outcome"])
        lines.writerows(
            [f"p{i % 4}", 20 + i // 2, "yes" if i % 3 else "no", "ill" if i > 20 else "well"] for i in range(40)
        )
    return path


def test_a_csv_file_runs(
    visits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.toml"
    written(path, "--data", str(visits), "--client", "patient", "--target", "outcome", "--rounds", "2")
    assert "inputs = 3" in path.read_text(), "age, and a feature for each answer"
    assert "hidden = [64]" in path.read_text()
    monkeypatch.setattr("sys.argv", ["fedtempo", "run", str(path), "--quiet"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "feddecay" in capsys.readouterr().out


def test_whole_numbers_of_a_csv_file_are_what_one_says(visits: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    written(path, "--data", str(visits), "--client", "patient", "--target", "age", "--target-kind", "numbers")
    assert 'target_kind = "numbers"' in path.read_text()
    assert "outputs = 1" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digit"], "Did you mean 'digits'?"),
        (["--algorithm", "fedavgg"], "Did you mean 'fedavg'?"),
        (
            ["--algorithm", "adaptive_decay"],
            "'adaptive_decay' needs 'rate', for which there is no first value",
        ),
        (["--data", "nowhere.csv", "--client", "a", "--target", "b"], "path must be a file. Got nowhere.csv"),
        (["--data", "nowhere.csv"], "--client must be given for nowhere.csv: the name of a column"),
        (["--data", "nowhere.csv", "--client", "a"], "--target must be given for nowhere.csv: the name of a column"),
    ],
)
def test_wrong_answers_are_named(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["fedtempo", "new", str(tmp_path / "a.toml"), *arguments])
    with pytest.raises(SystemExit):
        main()
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.toml").exists()


def test_a_file_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("mine")
    assert CliRunner().invoke(app, ["new", str(path)]).exit_code != 0
    assert path.read_text() == "mine"
    written(path, "--force")
    assert read(path).rounds == 30


def test_columns_that_hold_no_categories_are_left_out_and_named(tmp_path: Path) -> None:
    rows = [f"P{i:02};{'AB'[i % 2]};2024-01-{i + 1:02};4,{i};{'yn'[i % 3 % 2]}" for i in range(20)]
    (tmp_path / "Visits.CSV").write_text("\n".join(["patient;site;day;lab;ill", *rows]))
    path, asked = tmp_path / "a.toml", ["--client", "site", "--target", "ill", "--separator", ";"]
    done = CliRunner().invoke(app, ["new", str(path), "--data", str(tmp_path / "Visits.CSV"), *asked, "--decimal", ","])
    assert done.exit_code == 0, done.output
    assert "column 'patient' is left out of features: it looks like names or free text, 20 different" in done.output
    assert "column 'day' is left out of features: it looks like dates, such as '2024-01-01'" in done.output
    data = read(path).data
    assert (data.model_extra or {})["features"] == ["lab"]


def test_weights_of_rows_are_no_feature_of_a_new_file(tmp_path: Path) -> None:
    rows = [f"P{i:02},{'AB'[i % 2]},{i % 7},{i % 3 + 1},{'yn'[i % 3 % 2]}" for i in range(20)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient,site,lab,sample_weight,ill", *rows]))
    path, visits = tmp_path / "a.toml", str(tmp_path / "visits.csv")
    written(path, "--data", visits, "--client", "site", "--target", "ill")
    assert (read(path).data.model_extra or {})["features"] == ["lab"]


def test_what_will_hardly_train_as_meant_is_said(tmp_path: Path) -> None:
    rows = [f"{100 + i},{i % 7},{1000.5 + i}" for i in range(20)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient,age,cost", *rows]))
    asked = ["--data", str(tmp_path / "visits.csv"), "--client", "patient", "--target", "cost"]
    done = CliRunner().invoke(app, ["new", str(tmp_path / "my file.toml"), *asked])
    assert done.exit_code == 0, done.output
    assert "column 'patient' names 20 clients in 20 rows, most with fewer than 5" in done.output
    assert "target 'cost' has numbers up to 1019.5: training may diverge" in done.output
    assert f"fedtempo run '{tmp_path / 'my file.toml'}'" in done.output
