"""Real full disks, failing system calls and death in the middle of a write: the last committed round is there."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.training.storage.on_disk import DATABASE
from tests.faults.dying import REFUSED, SURVIVED, can_trace, in_child, in_traced_child
from tests.faults.test_durable import settings
from tests.slow import slow_but

ROUNDS = 6
traced = pytest.mark.skipif(not can_trace(), reason="strace cannot be used here")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk or give up its rights")


@pytest.fixture(scope="module")
def whole() -> str:
    return ft.run(**settings(rounds=ROUNDS)).digest()


def committed(folder: Path) -> int:
    """The number of rounds that the database holds."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        newest = connection.execute("SELECT max(round) FROM shared").fetchone()[0]
    return 0 if newest is None else newest + 1


def train_into(folder: Path, told: Path | None = None) -> Callable[[], int]:
    """A run whose exit code says how it ended, and which tells after every round that it was told it is safe."""

    def work() -> int:
        try:
            for report in ft.train(**settings(rounds=ROUNDS), out=folder):
                if told is not None:
                    told.write_text(str(report.round + 1))
        except ft.OutputError:
            return REFUSED
        return SURVIVED

    return work


def resumed(folder: Path) -> str:
    """The digest after going on; a folder that never came to hold a run is started again."""
    begun = (folder / DATABASE).exists()
    if begun:
        with closing(sqlite3.connect(folder / DATABASE)) as connection:
            begun = bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'reports'").fetchone())
    if not begun:
        for file in folder.iterdir():
            file.unlink()
    return ft.run(**settings(rounds=ROUNDS), out=folder, resume=begun).digest()


def limited(size: int, work: Callable[[], int], deadly: bool) -> Callable[[], int]:
    """No file may grow beyond `size` bytes: writing on is an error, or death in the middle of the write."""

    def limited_work() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return work()

    return limited_work


SIZES = [100, 20_000, 70_000, 133_333, 200_001, 350_000]
CUT_OFTEN = slow_but([100, 70_000, 200_001], SIZES, "three places of six run every time")


@pytest.mark.parametrize("size", CUT_OFTEN)
def test_death_in_the_middle_of_a_write(size: int, tmp_path: Path, whole: str) -> None:
    """The kernel cuts the write at exactly this byte and ends the process."""
    folder, told = tmp_path / "run", tmp_path / "told"
    _, number = in_child(limited(size, train_into(folder, told), deadly=True))
    assert number == signal.SIGXFSZ
    safe = int(told.read_text()) if told.exists() else 0
    assert safe == 0 or committed(folder) >= safe, "a round that was reported is there"
    assert resumed(folder) == whole


@pytest.mark.parametrize("size", CUT_OFTEN)
def test_a_file_that_may_not_grow_is_an_output_error(size: int, tmp_path: Path, whole: str) -> None:
    folder, told = tmp_path / "run", tmp_path / "told"
    assert in_child(limited(size, train_into(folder, told), deadly=False)) == (REFUSED, None)
    safe = int(told.read_text()) if told.exists() else 0
    assert safe == 0 or committed(folder) >= safe
    assert resumed(folder) == whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of half a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(disk)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@as_root
def test_a_disk_that_fills_up_during_the_run(small_disk: Path) -> None:
    folder = small_disk / "run"
    with pytest.raises(ft.OutputError, match=r"disk is full|No space"):
        ft.run(**settings(rounds=60), out=folder)
    rounds = committed(folder)
    assert rounds > 0
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert ft.run(**settings(rounds=60), out=folder, resume=True).digest() == ft.run(**settings(rounds=60)).digest()


@as_root
def test_a_full_disk_is_found_before_the_first_round(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(500 * 1024))
    reports = ft.train(**settings(), out=small_disk / "run")
    with pytest.raises((ft.OutputError, ft.StoreError)) as caught:
        next(reports)
    assert isinstance(caught.value, ft.OutputError), "a disk that is full is no damaged run"
    assert "\n" not in str(caught.value)


@as_root
def test_a_folder_without_permission_is_found_before_the_first_round(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)

    def as_nobody() -> int:
        os.setgid(65534)
        os.setuid(65534)
        try:
            next(ft.train(**settings(), out=folder / "run"))
        except ft.OutputError as error:
            return REFUSED if "can be written" in str(error) else SURVIVED
        return SURVIVED

    assert in_child(as_nobody) == (REFUSED, None)
    assert list(folder.iterdir()) == []


@traced
@pytest.mark.parametrize("when", slow_but([1, 9], [1, 3, 9, 27], "two moments of four run every time"))
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_death_at_a_system_call(call: str, when: int, tmp_path: Path, whole: str) -> None:
    folder, told = tmp_path / "run", tmp_path / "told"
    work = train_into(folder, told)
    code, number = in_traced_child(work, f"{call}:signal=KILL:when={when}", tmp_path / "calls")
    assert number == signal.SIGKILL or code == SURVIVED
    safe = int(told.read_text()) if told.exists() else 0
    assert safe == 0 or committed(folder) >= safe, "a round that was reported is there"
    assert resumed(folder) == whole


CALLS = [("pwrite64", 5), ("pwrite64", 40), ("fdatasync", 2), ("fdatasync", 4)]
FAILURES = [(error, *call) for error in ("EIO", "ENOSPC", "EACCES") for call in CALLS]
FAILED_OFTEN = [FAILURES[0], FAILURES[3], FAILURES[5], FAILURES[6], FAILURES[9], FAILURES[10]]


@traced
@pytest.mark.parametrize("case", slow_but(FAILED_OFTEN, FAILURES, "every error and every call fails every time"))
def test_a_system_call_that_fails(case: tuple[str, str, int], tmp_path: Path, whole: str) -> None:
    error, call, when = case
    folder, told = tmp_path / "run", tmp_path / "told"
    code, number = in_traced_child(train_into(folder, told), f"{call}:error={error}:when={when}+", tmp_path / "calls")
    assert (code, number) == (REFUSED, None)
    safe = int(told.read_text()) if told.exists() else 0
    assert safe == 0 or committed(folder) >= safe
    assert resumed(folder) == whole


def export_into(folder: Path, result: ft.Result) -> Callable[[], int]:
    def work() -> int:
        try:
            result.export(folder)
        except ft.OutputError:
            return REFUSED
        return SURVIVED

    return work


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, ft.Result, dict[str, bytes]]:
    result = ft.run(**settings(rounds=2))
    folder = tmp_path / "reports"
    result.export(folder)
    return folder, result, {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reports_on_a_full_disk_keep_the_old_ones(exported: tuple[Path, ft.Result, dict[str, bytes]]) -> None:
    folder, result, before = exported
    assert in_child(limited(100, export_into(folder, result), deadly=False)) == (REFUSED, None)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@traced
@pytest.mark.parametrize("fault", ["fsync:error=EIO:when=1", "rename:error=EACCES:when=1", "write:error=ENOSPC:when=1"])
def test_reports_whose_writing_fails_leave_no_trace(
    fault: str, exported: tuple[Path, ft.Result, dict[str, bytes]], tmp_path: Path
) -> None:
    folder, result, before = exported
    assert in_traced_child(export_into(folder, result), fault, tmp_path / "calls") == (REFUSED, None)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
