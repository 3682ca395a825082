"""One reader for the files of a received folder: plain files inside it, of bounded size, never waited for."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.cli import runs
from fedtempo.cli.export import export_model
from fedtempo.deploy.server import _token
from fedtempo.errors import FedTempoError, OutputError, StoreError
from fedtempo.report.stored import read_run
from fedtempo.study.jobs import trial_score
from fedtempo.support.files import LARGEST, read_inside
from fedtempo.training.storage.reader import RunReader
from tests.faults.test_places import finished  # noqa: F401 - a fixture
from tests.programs import fedtempo_ended

TERABYTE = 1 << 40


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:  # noqa: F811
    copy = tmp_path / "received"
    subprocess.run(["cp", "-r", str(finished), str(copy)], check=True)
    return copy


def spoil(path: Path, how: str) -> None:
    path.unlink(missing_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "endless":
        path.touch()
        os.truncate(path, TERABYTE)
    else:
        path.symlink_to({"link": "/etc/passwd", "circle": path, "device": "/dev/zero"}[how])


SPOILED = ("pipe", "endless", "link", "circle", "device")


@pytest.mark.parametrize("how", SPOILED)
def test_a_file_that_is_no_plain_one_is_an_error_with_a_reason(how: str, tmp_path: Path) -> None:
    spoil(tmp_path / "x", how)
    with pytest.raises(OSError):
        read_inside(tmp_path, "x")


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("name", ["experiment.toml", "summary.json"])
def test_a_page_of_a_received_folder_refuses_it(how: str, name: str, folder: Path) -> None:
    spoil(folder / name, how)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FedTempoError, match=name):
        read_run(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize("how", SPOILED)
def test_a_run_with_such_an_experiment_file_is_neither_resumed_nor_exported(how: str, folder: Path) -> None:
    spoil(folder / "experiment.toml", how)
    with pytest.raises(FedTempoError, match=r"experiment\.toml"):
        runs.resume(folder, quiet=True)
    with pytest.raises(FedTempoError, match=r"experiment\.toml"):
        export_model(folder, folder / "model")


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("name", ["run.sqlite", "run.sqlite-wal", "run.sqlite-shm"])
def test_a_database_of_that_kind_is_refused(how: str, name: str, folder: Path) -> None:
    spoil(folder / name, how)
    if how == "endless":  # SQLite reads pages, not the whole file
        return
    with pytest.raises(FedTempoError):
        RunReader(folder)


@pytest.mark.parametrize("how", SPOILED)
def test_a_tuning_trial_of_that_kind_counts_as_absent(how: str, tmp_path: Path) -> None:
    spoil(tmp_path / "trial.json", how)
    assert trial_score(tmp_path / "trial.json") is None


def test_a_diary_without_an_end_is_refused_and_not_read(folder: Path) -> None:
    with (folder / "experiment.toml").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write('trackers = ["jsonl", "csv"]\n' + "\n".join(x for x in text.splitlines() if "trackers" not in x))
    spoil(folder / "rounds.jsonl", "endless")
    with pytest.raises(OutputError, match="more than"):
        runs.resume(folder, quiet=True)


def test_the_program_ends_at_once_and_in_one_line(folder: Path) -> None:
    spoil(folder / "experiment.toml", "pipe")
    for command in ("resume", "export --out x"):
        name, *rest = command.split()
        refused = fedtempo_ended(name, str(folder), *rest)
        assert refused.returncode > 0
        assert len(refused.stderr.splitlines()) == 1


def test_a_file_of_the_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 10)
    assert read_inside(tmp_path, "x", 10) == b"x" * 10
    with pytest.raises(OSError, match="more than 9 bytes"):
        read_inside(tmp_path, "x", 9)
    assert LARGEST >= 1 << 24


def test_damage_that_is_no_text_is_damage(folder: Path) -> None:
    """SQLite's message quotes the table's own words, which may be no UTF-8 any more."""
    database = folder / "run.sqlite"
    content = database.read_bytes()
    place = content.index(b"CREATE TABLE")
    database.write_bytes(content[:place] + b"\xff\xc3\x80" + content[place + 3 :])
    for read in (lambda: RunReader(folder), lambda: runs.resume(folder, quiet=True)):
        with pytest.raises(StoreError):
            read()


@pytest.mark.parametrize("how", ["pipe", "device", "endless"])
def test_what_a_file_or_a_caller_names_is_a_file(how: str, tmp_path: Path) -> None:
    """The path of a trace is an experiment file's; a saved result may be anybody's."""
    spoil(tmp_path / "x", how)
    for read in (lambda: ft.devices.trace(tmp_path / "x"), lambda: ft.load_result(tmp_path / "x")):
        with pytest.raises(FedTempoError, match=r"no file|must fit into memory"):
            read()


def test_a_deployments_name_is_read_like_the_rest(tmp_path: Path) -> None:
    spoil(tmp_path / "run.token", "pipe")
    with pytest.raises(OutputError, match=r"must hold its run\.token"):
        _token(tmp_path, resume=True)
