"""A run folder: its lock, the check that no file in it points outside, and the count of committed rounds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedtempo.errors import OutputError, shown
from fedtempo.support.files import read_inside
from fedtempo.training.storage.seals import Seal

LOCK = "run.lock"
COUNT = "run.count"
EXPERIMENT = "experiment.toml"
SUMMARY = "summary.json"
OURS = (
    "run.",
    EXPERIMENT,
    "metrics.",
    "model-",
    SUMMARY,
    "users.csv",
    "report.html",
    "rounds.",
    "tensorboard",
    "mlflow",
    "wandb",
)
"""The beginnings of the file names that a run, its report and its trackers write in a run folder."""
AT_THE_END = (
    "metrics.jsonl",
    "metrics.csv",
    "users.csv",
    SUMMARY,
    "report.html",
    "model-selected.safetensors",
    "model-last.safetensors",
)
"""The files that a finished run writes beside its database. A file of the same name is overwritten."""


def require_unwritten(folder: Path, names: Sequence[str] = AT_THE_END) -> None:
    """A new run's folder holds no file of these names: the run would write over it, or delete it."""
    taken = next((name for name in names if os.path.lexists(folder / name)), None)
    if taken is not None:
        raise OutputError(f"out must be a folder without files that a run writes. Got {folder}, which holds {taken}.")


def require_there(folder: Path) -> None:
    """A folder to resume exists. A misspelt one is not made."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise OutputError(f"a folder to resume must hold a run. Got {folder}, which does not exist.") from None
    except (OSError, ValueError):  # opening it says more
        return


def locked(folder: Path) -> FileLock:
    """The folder, made if need be, for this process alone. A folder of another process is left as it is."""
    try:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # users' scores and names are in there
        for made in missing:
            synced(made.parent)
        require_contained(folder)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise OutputError(f"out must be a folder that no other process uses. Got {folder}.") from None
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"out must be a folder that can be written. Got {folder}: {error.strerror}.") from None
    except ValueError:  # every system says this in other words
        what = f"{shown(str(folder))}: a zero byte in its name"
        raise OutputError(f"out must be a folder that can be written. Got {what}.") from None
    return lock


def require_contained(folder: Path) -> None:
    """Nothing that we may write in a run folder leads out of it: a folder may come from anywhere.

    A link would make us write where it points; a file with a second name would change under that name, too.
    """
    for path in _ours(folder):
        found = path.lstat()
        rule = "a run folder must hold plain files that are nowhere else"
        if stat.S_ISLNK(found.st_mode):
            if not path.resolve().is_relative_to(folder.resolve()):
                raise OutputError(f"{rule}. Got {path}, a link to {path.readlink()}.")
        elif stat.S_ISREG(found.st_mode):
            if found.st_nlink > 1:
                raise OutputError(f"{rule}. Got {path}, which has another name (a hard link): copy the folder first.")
        elif not stat.S_ISDIR(found.st_mode):
            raise OutputError(f"{rule}. Got {path}, which is a device or a pipe.")


def _ours(folder: Path) -> Iterator[Path]:
    """What a run writes, hidden names of unfinished files included; other people's files may be links."""
    for path in folder.iterdir():
        if path.name.removeprefix(".").startswith(OURS):
            yield path
            # W&B links its logs to the user's cache, and begins a new folder of its own every time.
            if path.is_dir() and not path.is_symlink() and path.name != "wandb":
                for parent, folders, files in os.walk(path):
                    yield from (Path(parent) / name for name in (*folders, *files))


def synced(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems cannot
            os.fsync(handle)
    finally:
        os.close(handle)


class RoundCount:
    """How many rounds were committed, in a file beside the database.

    A log that was cut short or lost leaves a database that is sound but older. Only something outside it can tell. The
    count is written after the commit, so it is never ahead of a sound database; it may be behind after a power cut.
    """

    def __init__(self, folder: Path, seal: Seal) -> None:
        self._path, self._seal = folder / COUNT, seal

    def read(self) -> int | None:
        """The count; None where there is none, or one that is not this run's."""
        with suppress(OSError, ValueError):
            number, digest = read_inside(self._path.parent, COUNT, 1000).decode("ascii").split()
            if self._seal.hash("count", int(number)) == digest:
                return int(number)
        return None

    def write(self, rounds: int) -> None:
        """Write the count in place; its length is always the same."""
        line = f"{rounds:012d} {self._seal.hash('count', rounds)}\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
