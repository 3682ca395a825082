"""Stored runs under attack from outside: lost or foreign parts, dead owners, pauses and clocks that jump."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.training.faultpoints import faults
from fedtempo.training.state import tensors_to_bytes
from fedtempo.training.storage.on_disk import DATABASE, LOCK
from fedtempo.training.storage.seals import Seal
from tests import ROOT
from tests.faults.dying import in_child
from tests.faults.test_durable import outcome, resumed_from, settings, start, stopped_after, uninterrupted
from tests.programs import fedtempo_ended
from tests.slow import slow_but
from tests.waiting import allowed, until


def hundred(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((4, 6)), rng.integers(0, 4, 4)) for _ in range(100)]
    return settings(data=ft.data.FederatedData.from_clients(clients), cohort=100, rounds=3, **more)


POINTS = ["commit:clients", "commit:shared", "commit:reports", "commit:end"]


@pytest.mark.parametrize("point", slow_but(["commit:clients"], POINTS, "six clients die at every point every time"))
def test_of_a_hundred_clients_all_are_kept_or_none(point: str, tmp_path: Path) -> None:
    """Killed while the second round's hundred heads are being written."""
    passed = []

    def die(here: str) -> None:
        passed.append(here)
        if passed.count(point) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> int:
        with faults(die):
            ft.run(**hundred(), out=tmp_path / "run")
        return 0

    assert in_child(work) == (None, signal.SIGKILL)
    rounds = 2 if point == "commit:end" else 1
    expected = ft.run(**{**hundred(), "rounds": rounds})
    reports = ft.train(**hundred(), out=tmp_path / "run", resume=True)
    assert next(reports).round == rounds
    reports.close()
    with closing(sqlite3.connect(tmp_path / "run" / DATABASE)) as connection:
        kept = connection.execute("SELECT client, tensors FROM earlier ORDER BY client").fetchall()
    assert len(kept) == 100
    wanted = [(client, tensors_to_bytes(tensors)) for client, tensors in expected.store.items()]
    assert kept == wanted, "what the hundred clients had after the last committed round, every bit of it"


def test_a_damaged_client_is_an_error_and_never_a_new_client(tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        for client, tensors in connection.execute("SELECT client, tensors FROM clients").fetchall():
            connection.execute(
                "UPDATE clients SET tensors = ? WHERE client = ?", (tensors[:-1] + bytes([tensors[-1] ^ 1]), client)
            )
    with pytest.raises(ft.StoreError, match=r"stored state of client [0-9]+ is damaged"):
        ft.run(**settings(), out=tmp_path, resume=True)


def test_another_version_is_refused_by_name(tmp_path: Path) -> None:
    """A sound folder of another release, not a damaged one."""
    stopped_after(2, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute("UPDATE identity SET value = '0.0.1' WHERE field = 'version'")
        connection.execute("DELETE FROM identity WHERE field = 'kinds'")  # it has a hash of its own
        stored = dict(connection.execute("SELECT field, value FROM identity WHERE field != 'sha256'"))
        seal = Seal(stored.pop("run"), stored)
        connection.execute("UPDATE identity SET value = ? WHERE field = 'sha256'", (seal.hash("identity"),))
    with pytest.raises(ft.OutputError, match=r"^version must be that of the stored run, '0\.0\.1'"):
        ft.run(**settings(), out=tmp_path, resume=True)


WHOLE_FILES = {
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "random": lambda data: np.random.default_rng(0).bytes(len(data)),
    "a byte more": lambda data: data + b"x",
    "a page more": lambda data: data + bytes(16384),
    "page size 0": lambda data: data[:16] + b"\0\0" + data[18:],
    "page size 512": lambda data: data[:16] + b"\2\0" + data[18:],
    "a wrong number of pages": lambda data: data[:28] + b"\0\0\0\1" + data[32:],
    "another file's header": lambda data: b"PK\3\4" + data[4:],
    "the first page only": lambda data: data[:16384],
    "twice": lambda data: data + data,
}


@pytest.mark.parametrize("kind", WHOLE_FILES)
def test_files_that_are_wrong_as_a_whole(kind: str, tmp_path: Path) -> None:
    stopped_after(4, tmp_path / "good")
    data = WHOLE_FILES[kind]((tmp_path / "good" / DATABASE).read_bytes())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / DATABASE).write_bytes(data)
    assert outcome(tmp_path / "bad", uninterrupted()) != "wrong"


def killed_in_round(count: int, folder: Path) -> None:
    """A run that is killed after some rounds: the newest are in the write-ahead log."""

    def work() -> int:
        reports = ft.train(**settings(), out=folder)
        for _ in range(count):
            next(reports)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert in_child(work) == (None, signal.SIGKILL)


def test_a_damaged_log_never_gives_a_wrong_result(tmp_path: Path) -> None:
    """After kill -9 the committed rounds are in the log; twelve damages of it, and the log taken away."""
    killed_in_round(4, tmp_path / "killed")
    log = f"{DATABASE}-wal"
    original = (tmp_path / "killed" / log).read_bytes()
    assert len(original) > 16384
    rng, expected, seen = np.random.default_rng(3), uninterrupted(), []
    for case in range(12):
        data, place = bytearray(original), int(rng.integers(0, len(original)))
        if case % 3 == 0:
            data[place] ^= 1 << int(rng.integers(0, 8))
        elif case % 3 == 1:
            del data[place:]
        else:
            data[place : place + 64] = bytes(len(data[place : place + 64]))
        folder = tmp_path / f"damaged {case}"
        shutil.copytree(tmp_path / "killed", folder)
        (folder / log).write_bytes(data)
        seen.append(outcome(folder, expected))
    assert "wrong" not in seen
    (tmp_path / "killed" / log).unlink()
    assert outcome(tmp_path / "killed", expected) != "wrong"


def test_a_dead_owners_lock_and_leftovers_do_not_hold_anybody_up(tmp_path: Path) -> None:
    killed_in_round(3, tmp_path / "run")
    left = tmp_path / "run" / ".summary.json.0123abcd.partial"
    left.write_text("{half of")
    os.utime(left, (0, 0))  # long ago; one that is being written now is somebody's
    assert (tmp_path / "run" / LOCK).exists()
    began = time.monotonic()
    reports = ft.train(**settings(), out=tmp_path / "run", resume=True)
    assert next(reports).round == 3
    assert time.monotonic() - began < allowed(2)
    reports.close()
    result = ft.run(**settings(), out=tmp_path / "run", resume=True)
    assert result.digest() == uninterrupted()
    assert not list((tmp_path / "run").glob(".*.partial"))


def test_a_second_process_is_refused_at_once(tmp_path: Path) -> None:
    owner = start(tmp_path / "run")
    try:
        owner.stdout.readline()
        assert until((tmp_path / "run" / DATABASE).exists)
        owner.send_signal(signal.SIGSTOP)  # it keeps the folder however slow it is
        began = time.monotonic()
        with pytest.raises(ft.OutputError, match="no other process"):
            ft.run(**settings(rounds=60), out=tmp_path / "run", resume=True)
        assert time.monotonic() - began < allowed(2)
    finally:
        owner.kill()
        owner.communicate()
    with closing(sqlite3.connect(tmp_path / "run" / DATABASE)) as connection:
        begun = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if begun:
        assert resumed_from(tmp_path / "run", rounds=60).digest() == uninterrupted(60)


def test_a_damaged_run_is_refused_by_the_command_with_its_own_code(tmp_path: Path) -> None:
    """Nothing starts afresh by itself: exit code 8 and one line that says what to do."""
    experiment = [str(ROOT / "examples" / "feddecay.toml"), "--set", "rounds=4", "--set", "evaluation.every=4"]
    assert fedtempo_ended("run", *experiment, "--quiet", "--out", str(tmp_path / "run")).returncode == 0
    with closing(sqlite3.connect(tmp_path / "run" / DATABASE)) as connection, connection:
        connection.execute("UPDATE shared SET numbers = '{}'")
    done = fedtempo_ended("resume", str(tmp_path / "run"))
    assert done.returncode == 8
    (line,) = done.stderr.splitlines()
    assert "Start afresh in another folder" in line


@pytest.mark.slow("every round in turn; a few of them run every time in test_durable")
@pytest.mark.parametrize("stopped", range(1, 11))
def test_a_warm_start_at_every_round(stopped: int, tmp_path: Path) -> None:
    stopped_after(stopped, tmp_path, rounds=11)
    assert resumed_from(tmp_path, rounds=11).digest() == uninterrupted(11)
