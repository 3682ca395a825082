"""The one reader of run folders: whole rounds come out, an altered record never does."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.report import read_run
from fedtempo.training.storage.reader import DATABASE, RunReader
from tests.faults.test_durable import settings

READERS = {
    "compare": lambda folder: ft.Run.of(folder).completed(),
    "report": read_run,
    "reader": lambda folder: RunReader(folder).refresh(),
}


def altered(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute(statement)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, ft.Result]:
    return tmp_path / "run", ft.run(**{**settings(), "rounds": 3}, out=tmp_path / "run")


def test_rounds_and_description_are_those_of_the_run(stored: tuple[Path, ft.Result]) -> None:
    folder, result = stored
    reader = RunReader(folder)
    assert reader.identity == result.experiment.identity()
    assert [(r.round, r.loss, tuple(r.clients)) for r in reader.refresh()] == [
        (r.round, r.loss, tuple(r.clients)) for r in result.history
    ]


def test_a_run_that_goes_on_is_followed(tmp_path: Path) -> None:
    rounds = ft.train(**{**settings(), "rounds": 3}, out=tmp_path)
    next(rounds)
    reader = RunReader(tmp_path)
    seen = [len(reader.refresh())]
    for _ in rounds:
        seen.append(len(reader.refresh()))
    assert seen == [1, 2, 3]
    assert [report.round for report in reader.history] == [0, 1, 2]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE reports SET report = replace(report, '\"loss\": ', '\"loss\": 9') WHERE round = 1", "round 1"),
        ("UPDATE reports SET round = 7 WHERE round = 1", "round 1"),
        ("DELETE FROM reports WHERE round = 0", "round 0"),
        ("UPDATE identity SET value = '99' WHERE field = 'seed'", "description of the run is damaged"),
    ],
    ids=["altered", "renumbered", "lost", "described otherwise"],
)
def test_every_reader_refuses_what_was_altered(
    name: str, statement: str, said: str, stored: tuple[Path, ft.Result]
) -> None:
    folder, _ = stored
    altered(folder, statement)
    with pytest.raises(ft.StoreError, match=said) as error:
        READERS[name](folder)
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_reading_leaves_the_folder_as_it_was(stored: tuple[Path, ft.Result]) -> None:
    folder, _ = stored
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    RunReader(folder).refresh()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read(stored: tuple[Path, ft.Result]) -> None:
    folder, result = stored
    folder.chmod(0o555)
    try:
        assert len(RunReader(folder).refresh()) == len(result.history)
    finally:
        folder.chmod(0o755)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ft.OutputError, match=r"a run folder must hold run\.sqlite\. Got .*, which does not"):
        RunReader(tmp_path)
