"""Eight hundred damaged copies of a run folder: its own bytes, and logs and pages of other runs and other moments."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fedtempo as ft
from fedtempo.errors import OutputError, StoreError
from fedtempo.training.storage.on_disk import DATABASE
from tests.faults.dying import in_child
from tests.faults.test_durable import settings
from tests.logged import logged

LOG = f"{DATABASE}-wal"
PAGE = 16384
ROUNDS = 8
CLEAN, KILLED = (1, 2, 3, 4), (1, 2, 3)
COUNTS = {
    "database: a bit": 120,
    "database: cut short": 80,
    "database: 512 zeros": 60,
    "log: a bit": 100,
    "log: cut short": 70,
    "log: 512 zeros": 50,
    "log of another run": 100,
    "log of another moment": 60,
    "pages of another run": 80,
    "pages of another moment": 80,
}
OUTCOMES = ("refused", "rounds back, told", "right", "another digest", "another exception")


class Moments:
    """Copies of one run's folder: after some rounds, stopped cleanly; and killed some rounds later, with its log."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        for count in CLEAN:
            if count > 1:
                shutil.copytree(self.clean(count - 1), self.clean(count))
            self._train(self.clean(count), 1, resume=count > 1)
            for more in KILLED:
                shutil.copytree(self.clean(count), self.killed(count, more))
                done = in_child(lambda c=count, m=more: self._train(self.killed(c, m), m, resume=True, dies=True))
                assert done == (None, signal.SIGKILL)

    def clean(self, count: int) -> Path:
        return self.folder / f"clean {count}"

    def killed(self, count: int, more: int) -> Path:
        return self.folder / f"killed {count} {more}"

    def _train(self, folder: Path, rounds: int, resume: bool, dies: bool = False) -> int:
        reports = ft.train(**given(self.seed), out=folder, resume=resume)
        for _ in range(rounds):
            next(reports)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        reports.close()
        return 0


def given(seed: int) -> dict[str, Any]:
    return settings(rounds=ROUNDS, seed=seed)


def spoiled(data: bytes, kind: str, rng: np.random.Generator) -> bytes:
    """The bytes with one of three damages at a random place."""
    place = int(rng.integers(0, len(data)))
    if kind.endswith("a bit"):
        return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(0, 8)))]) + data[place + 1 :]
    if kind.endswith("cut short"):
        return data[:place]
    return data[:place] + bytes(len(data[place : place + 512])) + data[place + 512 :]


def with_pages_of(ours: bytes, theirs: bytes, rng: np.random.Generator) -> bytes:
    """Some pages of one database in the place of another's."""
    pages = min(len(ours), len(theirs)) // PAGE
    chosen = rng.choice(pages, size=int(rng.integers(1, pages)), replace=False)
    mixed = bytearray(ours)
    for page in chosen.tolist():
        mixed[page * PAGE : (page + 1) * PAGE] = theirs[page * PAGE : (page + 1) * PAGE]
    return bytes(mixed)


def cases(own: Moments, others: list[Moments]) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """(kind, what turns a new folder into a damaged copy of our run)."""
    rng = np.random.default_rng(18)
    for kind, count in COUNTS.items():
        for _ in range(count):
            at, later = int(rng.choice(CLEAN)), int(rng.choice(KILLED))
            other = others[int(rng.integers(0, len(others)))]
            when = int(rng.choice([moment for moment in CLEAN if moment != at]))
            source = own.killed(at, later) if kind.startswith("log:") else own.clean(at)
            if kind.startswith("database"):
                change = (DATABASE, spoiled((source / DATABASE).read_bytes(), kind, rng))
            elif kind.startswith("log:"):
                change = (LOG, spoiled((source / LOG).read_bytes(), kind, rng))
            elif kind.startswith("log of"):
                log = other.killed(at, later) if kind.endswith("run") else own.killed(when, later)
                data = (log / LOG).read_bytes()
                frames = (len(data) - 32) // (PAGE + 24)
                kept = int(rng.integers(1, frames + 1)) if rng.random() < 0.5 else frames
                change = (LOG, data[: 32 + kept * (PAGE + 24)])
            else:
                theirs = other.clean(at) if kind.endswith("run") else own.clean(when)
                change = (
                    DATABASE,
                    with_pages_of((source / DATABASE).read_bytes(), (theirs / DATABASE).read_bytes(), rng),
                )

            def make(folder: Path, source: Path = source, change: tuple[str, bytes] = change) -> None:
                shutil.copytree(source, folder)
                (folder / change[0]).write_bytes(change[1])

            yield kind, make


def outcome(folder: Path, expected: str, seed: int) -> str:
    with logged() as said:
        try:
            digest = ft.run(**given(seed), out=folder, resume=True).digest()
        except (StoreError, OutputError):
            return "refused"
        except Exception as error:
            print(f"{folder}: {type(error).__name__}: {error}")
            return "another exception"
    if digest != expected:
        return "another digest"
    return "rounds back, told" if any("going on after round" in line for line in said) else "right"


def damaged_copies(folder: Path) -> dict[str, Counter[str]]:
    """For each kind of damage, how resuming ended and how often."""
    own = Moments(folder / "own", seed=2)
    others = [Moments(folder / "another seed", seed=3), Moments(folder / "the same again", seed=2)]
    expected, seen = ft.run(**given(2)).digest(), {kind: Counter[str]() for kind in COUNTS}
    for number, (kind, make) in enumerate(cases(own, others)):
        damaged = folder / f"damaged {number}"
        make(damaged)
        seen[kind][outcome(damaged, expected, 2)] += 1
        shutil.rmtree(damaged)
    return seen
