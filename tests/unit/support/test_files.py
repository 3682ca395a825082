"""Files are replaced in one step: the old one or the new one, never a part, and nothing is left behind."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from fedtempo.errors import OutputError
from fedtempo.support import files
from fedtempo.support.files import replacing, write_atomically


def test_text_and_bytes_arrive_as_they_are(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "new" / "a.txt", "ä\r\n") == tmp_path / "new" / "a.txt"
    assert (tmp_path / "new" / "a.txt").read_bytes() == b"\xc3\xa4\r\n"
    write_atomically(tmp_path / "new" / "a.txt", b"\x00\xff")
    assert (tmp_path / "new" / "a.txt").read_bytes() == b"\x00\xff"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as partial:
        partial.write_text("half of the n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_folder_are_on_the_disk_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename may reach the disk before the bytes do, unless the file is synced first and the folder afterwards."""
    path, seen = tmp_path / "a.txt", []
    fsync = os.fsync

    def noted(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        seen.append((kind, path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    write_atomically(path, "text")
    assert seen == [("file", False), ("folder", True)]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path, sizes, over = tmp_path / "a.bin", set(), threading.Event()
    write_atomically(path, b"x" * 100_000)

    def read() -> None:
        while not over.is_set():
            sizes.add(len(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for index in range(50):
        write_atomically(path, b"x" * (100_000 + index % 2))
    over.set()
    reader.join()
    assert sizes <= {100_000, 100_001}


def test_what_a_killed_process_left_is_cleared_away_and_a_live_writers_part_is_not(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".a.txt.0123abcd.partial", tmp_path / ".a.txt.4567abcd.partial"
    other = tmp_path / ".b.txt.0123abcd.partial"
    for path in (dead, alive, other):
        path.write_text("half")
    long_ago = time.time() - files.ABANDONED_SECONDS - 1
    os.utime(dead, (long_ago, long_ago))
    os.utime(other, (long_ago, long_ago))
    write_atomically(tmp_path / "a.txt", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([alive, other, tmp_path / "a.txt"])


def test_the_file_is_as_readable_as_any_other_new_one(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_atomically(tmp_path / "pipe", "through")
    reader.join()
    assert read == [b"through"] and (tmp_path / "pipe").is_fifo()


def test_the_error_names_the_setting_and_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"/file/a\.txt cannot be written: (Not a directory|File exists)\.$"):
        write_atomically(tmp_path / "file" / "a.txt", "")
    with pytest.raises(OutputError, match=r"^report must be a path that can be written\. Got .*: Is a directory\.$"):
        write_atomically(tmp_path, "", "report")
