"""The figures of the durability page: `python -m tests.faults.figures` prints them, `--write` puts them into the page.

Names choose some of them: kills, damage, accuracy, uploads, memory.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import fedtempo as ft
from fedtempo.training.storage.on_disk import DATABASE
from tests import ROOT
from tests.faults.damaged_copies import OUTCOMES, damaged_copies
from tests.faults.digits_problem import ADMISSION, accuracy, train
from tests.faults.test_durable import HEADS, settings

PAGE = ROOT / "docs" / "durability.md"
KILLED: dict[str, ft.Algorithm] = {
    "PFLEGO with server Adam": HEADS,
    "FedDecay": ft.algorithms.feddecay(lr=0.1, beta=0.6, steps=4),
    "FedNAR(SCAFFOLD)": ft.algorithms.fednar(
        ft.algorithms.scaffold(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.5
    ),
    "FedAdam": ft.algorithms.fedadam(lr=0.1, steps=3),
    "Ditto": ft.algorithms.ditto(lr=0.1, steps=3),
    "FedEM": ft.algorithms.fedem(lr=0.1, epochs=1, components=2),
}  # fmt: skip


@dataclass(frozen=True)
class Kills:
    kills: int
    runs: int
    equal: int
    rounds: list[int]
    """The committed rounds that resumed processes found."""


def kill_at_random(folder: Path, algorithm: ft.Algorithm, count: int, seed: int, rounds: int = 120) -> Kills:
    """kill -9 at random moments until there are enough; whenever a run gets to its end, another one begins."""
    given = settings(rounds=rounds, algorithm=algorithm)
    rng, expected = np.random.default_rng(seed), ft.run(**given).digest()
    kills, runs, equal, found = 0, 0, 0, []
    while kills < count or not runs:
        out = folder / f"run {runs}"
        while True:
            child = os.fork()
            if child == 0:
                _go_on(given, out)
            time.sleep(float(rng.uniform(0.02, 0.25)) if kills < count else 0)
            if kills < count:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                break
            kills += 1
            found.append(_committed(out))
        equal += (out / "digest").read_text() == expected
        runs += 1
    return Kills(kills, runs, equal, found)


def _go_on(given: dict[str, Any], out: Path) -> None:
    """In the child: start the run or go on with it, to the end."""
    code = 1
    try:
        result = ft.run(**given, out=out, resume=_committed(out) > 0)
        (out / "digest").write_text(result.digest())
        code = 0
    finally:
        os._exit(code)


def _committed(out: Path) -> int:
    if not (out / DATABASE).exists():
        return 0
    with closing(sqlite3.connect(out / DATABASE)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'shared'").fetchone():
            connection.close()
            for file in out.iterdir():  # killed before there was a run
                file.unlink()
            return 0
        newest = connection.execute("SELECT max(round) FROM shared").fetchone()[0]
        return 1 if newest is None else int(newest) + 1


FAULTS = {
    "none": ft.Faults(),
    "dropout 10 %": ft.Faults(drop=0.1),
    "dropout 30 %": ft.Faults(drop=0.3),
    "dropout 50 %": ft.Faults(drop=0.5),
    "NaN 10 %": ft.Faults(nan=0.1),
    "NaN 30 %": ft.Faults(nan=0.3),
    "infinite 10 %": ft.Faults(infinite=0.1),
    "1e6-fold 10 %": ft.Faults(huge=0.1),
    "wrong shape 10 %": ft.Faults(misshapen=0.1),
    "wrong names 10 %": ft.Faults(renamed=0.1),
}


@dataclass(frozen=True)
class Row:
    fault: str
    checked: float
    refused: int
    abandoned: int
    as_if_not_asked: bool
    unchecked: str

    def cells(self) -> list[str]:
        same = "yes" if self.as_if_not_asked else "no"
        return [self.fault, f"{self.checked:.3f}", str(self.refused), str(self.abandoned), same, self.unchecked]


def accuracy_row(name: str) -> Row:
    """One fault with the checks on, without its clients, and with the checks off."""
    faults = FAULTS[name]
    on = train(faults=faults, admission=ADMISSION, backend="serial")
    without = train(cohorts=[list(report.clients) for report in on.history], admission=ADMISSION, backend="serial")
    return Row(
        name,
        accuracy(on),
        sum(len(report.failures) for report in on.history),
        sum(report.abandoned for report in on.history),
        on.digest() == without.digest(),
        _unchecked(faults),
    )


def _unchecked(faults: ft.Faults) -> str:
    try:
        return f"{accuracy(train(faults=faults, admission=ft.Admission(checks=False), backend='serial')):.3f}"
    except ft.TrainingError as error:
        found = re.search(r"not finite after round \d+", str(error))
        return f"run stopped: model {found.group() if found else 'not finite'}"
    except Exception as error:
        return f"crash: {type(error).__name__}"


def mutated_uploads(count: int = 100_000) -> tuple[int, int, float]:
    from tests.faults.test_hostile_uploads import fuzz

    return fuzz(count, seed=2)


def resident_memory(folder: Path) -> dict[int, tuple[int, int]]:
    """Kilobytes resident, and clients seen, after 50 and after 500 rounds."""
    command = [sys.executable, "-m", "tests.faults.many_clients", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900, cwd=PAGE.parents[1])
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    return {after: (kilobytes, clients) for after, kilobytes, clients in lines}


FOUR = ("PFLEGO with server Adam", "FedDecay", "FedNAR(SCAFFOLD)", "Ditto")


def forty_kills(folder: Path) -> dict[str, Kills]:
    """Ten kills in a run of each of four algorithms."""
    return {name: kill_at_random(folder / name, KILLED[name], count=10, seed=4) for name in FOUR}


def _kills(folder: Path) -> str:
    found = forty_kills(folder).values()
    kills, runs, equal = (sum(getattr(each, field) for each in found) for field in ("kills", "runs", "equal"))
    return (
        f"* `kill -9` at {kills} random moments of {runs} runs of 120 rounds ({', '.join(FOUR)}): "
        f"{equal} of {runs} ends equal to the uninterrupted run, bit for bit."
    )


def _damage(folder: Path) -> str:
    seen = damaged_copies(folder)
    total = sum((counts for counts in seen.values()), Counter[str]())
    lines = [["damage", *OUTCOMES], ["---"] * (1 + len(OUTCOMES))]
    lines += [[kind, *(str(counts[o]) for o in OUTCOMES)] for kind, counts in {**seen, "together": total}.items()]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{total.total()} damaged copies of stopped and killed runs, each resumed:\n\n{table}"


def _accuracy(folder: Path) -> str:
    head = ["fault", "accuracy", "uploads lost", "rounds abandoned", "bitwise as without them", "checks off"]
    rows = [accuracy_row(name).cells() for name in FAULTS]
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"Digits, 10 of 20 clients a round, 60 rounds, quorum 3, `Admission(max_norm=50, max_ratio=10)`:\n\n{table}"


def _uploads(folder: Path) -> str:
    refused, accepted, longest = mutated_uploads()
    return (
        f"* {refused + accepted:,} mutated uploads: {refused:,} refused, {accepted:,} still legitimate uploads, "
        f"0 crashes, 0 accepted wrongly; the slowest verdict took {1000 * longest:.1f} ms."
    )


def _memory(folder: Path) -> str:
    found = resident_memory(folder / "memory")
    (early, few), (late, many) = found[50], found[500]
    return (
        f"* 500 rounds of 250 of 100,000 clients with personal heads: {early / 1024:.0f} MB resident after 50 rounds "
        f"({few:,} clients seen), {late / 1024:.0f} MB after 500 ({many:,} seen), {100 * (late / early - 1):+.1f} %."
    )


PARTS: dict[str, Callable[[Path], str]] = {
    "kills": _kills,
    "damage": _damage,
    "uploads": _uploads,
    "memory": _memory,
    "accuracy": _accuracy,
}


def write(name: str, text: str) -> None:
    """Put a part, with today's date, between its marks in the page."""
    page = PAGE.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = page.split(start)
    _, after = rest.split(end)
    dated = (
        f"{text} ({datetime.now(UTC):%Y-%m-%d})" if text.startswith("*") else f"{datetime.now(UTC):%Y-%m-%d}. {text}"
    )
    PAGE.write_text(f"{before}{start}{dated}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--write", action="store_true", help=f"put them into {PAGE.name}")
    given = parser.parse_args()
    for name in given.parts or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            text = PARTS[name](Path(folder))
        print(f"{text}\n[{name}: {time.monotonic() - began:.0f} s]\n", flush=True)
        if given.write:
            write(name, text)


if __name__ == "__main__":
    main()
