"""A run is one run: records, pages and logs of other runs and moments are damage, and lost rounds are told."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.training.storage.on_disk import DATABASE
from tests.faults.dying import in_child
from tests.faults.test_durable import resumed_from, settings, stopped_after
from tests.logged import logged
from tests.slow import slow_but

LOG = f"{DATABASE}-wal"
PAGE = 16384
PLAIN = ft.algorithms.fedavg(lr=0.1, steps=3)


def resumed_and_killed(folder: Path, count: int, **more: Any) -> None:
    """Go on with a run and kill it after some rounds: the log holds those rounds, and the database the earlier ones."""

    def work() -> int:
        reports = ft.train(**settings(**more), out=folder, resume=True)
        for _ in range(count):
            next(reports)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert in_child(work) == (None, signal.SIGKILL)


def verdict(folder: Path, expected: str, **more: Any) -> tuple[str, str]:
    """What resuming makes of a folder, and what it said: refused, told, silent; or wrong."""
    with logged() as said:
        try:
            digest = resumed_from(folder, **more).digest()
        except (ft.StoreError, ft.OutputError) as error:
            return "refused", str(error)
    words = " ".join(said)
    if digest != expected:
        return "wrong", words
    return ("told" if "going on after round" in words else "silent"), words


def put_together(target: Path, database: Path, log: Path | None) -> Path:
    """A folder with one run's database and another's log."""
    target.mkdir()
    shutil.copy(database / DATABASE, target / DATABASE)
    if log is not None:
        shutil.copy(log / LOG, target / LOG)
    return target


@pytest.mark.parametrize("algorithm", [None, PLAIN], ids=["heads", "one model"])
@pytest.mark.parametrize("other", [{"seed": 3}, {}], ids=["another seed", "the same experiment again"])
def test_another_runs_log_is_damage(other: dict[str, Any], algorithm: ft.Algorithm | None, tmp_path: Path) -> None:
    more = {} if algorithm is None else {"algorithm": algorithm}
    stopped_after(2, tmp_path / "a", **more)
    stopped_after(2, tmp_path / "b", **more, **other)
    resumed_and_killed(tmp_path / "b", 2, **more, **other)
    mixed = put_together(tmp_path / "mixed", tmp_path / "a", tmp_path / "b")
    kind, words = verdict(mixed, ft.run(**settings(**more)).digest(), **more)
    assert kind == "refused", words
    assert "damaged" in words


def test_pages_of_another_run_are_damage(tmp_path: Path) -> None:
    stopped_after(4, tmp_path / "a")
    stopped_after(4, tmp_path / "b", seed=3)
    ours, theirs = ((tmp_path / name / DATABASE).read_bytes() for name in "ab")
    expected, seen = ft.run(**settings()).digest(), []
    for page in range(1, len(ours) // PAGE):
        folder = tmp_path / f"page {page}"
        folder.mkdir()
        place = slice(page * PAGE, (page + 1) * PAGE)
        (folder / DATABASE).write_bytes(ours[: place.start] + theirs[place] + ours[place.stop :])
        seen.append(verdict(folder, expected)[0])
    # The index of the identity is the same in both runs, and what clients had before is not looked at. Nothing was
    # selected, so the pages of the selected round, of what was put aside and of its index are empty in both.
    assert "wrong" not in seen
    assert seen.count("silent") <= 5, seen


@pytest.mark.parametrize("algorithm", [None, PLAIN], ids=["heads", "one model"])
def test_rows_of_another_moment_are_damage(algorithm: ft.Algorithm | None, tmp_path: Path) -> None:
    """A copy of a folder that went on by itself took other decisions, had it been allowed to: its rows do not mix."""
    more = {} if algorithm is None else {"algorithm": algorithm}
    stopped_after(2, tmp_path / "a", **more)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in "ab":  # two futures of one past; how long a round took makes them differ
        reports = ft.train(**settings(**more), out=tmp_path / name, resume=True)
        next(reports), next(reports)
        reports.close()
    for table in ("shared", "reports"):
        mixed = tmp_path / f"mixed {table}"
        shutil.copytree(tmp_path / "a", mixed)
        with closing(sqlite3.connect(mixed / DATABASE, isolation_level=None)) as connection:
            connection.execute("ATTACH ? AS other", (str(tmp_path / "b" / DATABASE),))
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM other.{table}")
        kind, words = verdict(mixed, ft.run(**settings(**more)).digest(), **more)
        assert kind in ("refused", "told"), f"{table}: {kind} {words}"


IDENTITIES = {
    "a number": "UPDATE identity SET value = 5 WHERE field = 'seed'",
    "bytes": "UPDATE identity SET value = x'00ff' WHERE field = 'seed'",
    "nothing": "UPDATE identity SET value = NULL WHERE field = 'seed'",
    "a field of bytes": "UPDATE identity SET field = x'00' WHERE field = 'seed'",
    "a field of nothing": "UPDATE identity SET field = NULL WHERE field = 'seed'",
    "one field less": "DELETE FROM identity WHERE field = 'seed'",
    "no hash": "DELETE FROM identity WHERE field = 'sha256'",
    "no name": "DELETE FROM identity WHERE field = 'run'",
    "another name": "UPDATE identity SET value = '00' WHERE field = 'run'",
    "nothing at all": "DELETE FROM identity",
    "a field more": "INSERT INTO identity VALUES ('extra', '1')",
}


@pytest.mark.parametrize("kind", IDENTITIES)
def test_an_identity_of_wrong_fields_is_damage(kind: str, tmp_path: Path) -> None:
    """STRICT tables refuse these values; a damaged file holds them all the same."""
    stopped_after(2, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as connection:
        rows = connection.execute("SELECT field, value FROM identity").fetchall()
        connection.execute("PRAGMA writable_schema=ON")
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'identity'").fetchone()
        loose = "CREATE TABLE identity (field PRIMARY KEY, value)"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'identity'", (loose,))
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as connection:
        connection.execute(IDENTITIES[kind])
        assert connection.execute("SELECT field, value FROM identity").fetchall() != rows
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'identity'", (sql,))
    with pytest.raises(ft.StoreError, match="damaged"):
        ft.run(**settings(), out=tmp_path, resume=True)


@pytest.mark.parametrize(
    "algorithm", slow_but([None], [None, PLAIN], "a log of fewer tables"), ids=["heads", "one model"]
)
def test_a_log_that_costs_several_rounds_says_so(algorithm: ft.Algorithm | None, tmp_path: Path) -> None:
    more = {"rounds": 8} if algorithm is None else {"rounds": 8, "algorithm": algorithm}
    stopped_after(2, tmp_path / "a", **more)
    resumed_and_killed(tmp_path / "a", 5, **more)
    log = (tmp_path / "a" / LOG).read_bytes()
    expected, told = ft.run(**settings(**more)).digest(), 0
    for place in range(100, len(log), len(log) // 6):
        for kind, data in {"cut": log[:place], "bit": log[:place] + bytes([log[place] ^ 1]) + log[place + 1 :]}.items():
            folder = tmp_path / f"{kind} {place}"
            shutil.copytree(tmp_path / "a", folder)
            (folder / LOG).write_bytes(data)
            found, words = verdict(folder, expected, **more)
            assert found in ("told", "refused"), f"{kind} at {place}: {found} {words}"
            told += "of 7 committed rounds" in words
    assert told > 5
    (tmp_path / "a" / LOG).unlink()
    found, words = verdict(tmp_path / "a", expected, **more)
    assert (found, "5 of 7 committed rounds" in words) == ("told", True), words


def test_a_run_whose_every_round_is_lost_does_not_start_again_by_itself(tmp_path: Path) -> None:
    stopped_after(0, tmp_path / "new")
    stopped_after(3, tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / DATABASE, isolation_level=None)) as connection:
        for table in ("shared", "clients", "earlier", "reports"):
            connection.execute(f"DELETE FROM {table}")
    with pytest.raises(ft.StoreError, match="all 3 committed rounds are lost"):
        ft.run(**settings(), out=tmp_path / "run", resume=True)


def test_a_schema_of_somebody_elses_is_damage(tmp_path: Path) -> None:
    """A folder may come from anywhere: no trigger and no view of a stored database is ever run."""
    stopped_after(2, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as connection:
        connection.execute("CREATE TRIGGER more AFTER INSERT ON reports BEGIN DELETE FROM clients; END")
    with pytest.raises(ft.StoreError, match="damaged"):
        ft.run(**settings(), out=tmp_path, resume=True)


def test_a_run_of_an_earlier_format_is_named(tmp_path: Path) -> None:
    stopped_after(2, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version=0")
    with pytest.raises(ft.OutputError, match="format"):
        ft.run(**settings(), out=tmp_path, resume=True)
