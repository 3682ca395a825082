"""The round is a transaction: interrupted, killed, damaged or misused, a stored run loses at most the running round."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.contracts import small_data
from fedtempo.training.faultpoints import faults
from fedtempo.training.loop import drained
from fedtempo.training.storage.on_disk import DATABASE
from tests import zoo
from tests.faults.dying import in_child
from tests.logged import logged
from tests.programs import Forked
from tests.slow import slow_but

HEADS = a.pflego(head_lr=0.1, server_lr=0.05, steps=3, server_optimizer="adam")


def settings(**more: Any) -> dict[str, Any]:
    defaults = {"rounds": 6, "cohort": 3, "batch_size": 4, "seed": 2, "evaluation": None, "backend": "serial"}
    return {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "algorithm": HEADS, **defaults, **more}


@cache
def uninterrupted(rounds: int = 6) -> str:
    """The digest of the run that nothing happened to."""
    return ft.run(**settings(rounds=rounds)).digest()


def resumed_from(folder: Path, **more: Any) -> ft.Result:
    """Go on to the end, without the report and the tables that `ft.run` writes then."""
    return drained(ft.train(**settings(**more), out=folder, resume=True))


def stopped_after(count: int, folder: Path, **more: Any) -> None:
    reports = ft.train(**settings(**more), out=folder)
    for _ in range(count):
        next(reports)
    reports.close()


RESUMED = [(backend, name) for backend in ("serial", "vectorised") for name in zoo.ALGORITHMS]
SIDE_BY_SIDE = ["pflego", "fedem", "four at once"]
OFTEN = [(b, name) for b, name in RESUMED if name in (zoo.MECHANISMS if b == "serial" else SIDE_BY_SIDE)]


@pytest.mark.parametrize("case", slow_but(OFTEN, RESUMED, "one algorithm of every kind of state runs every time"))
def test_resumed_is_uninterrupted(case: tuple[str, str], tmp_path: Path) -> None:
    backend, name = case
    more = {"algorithm": zoo.ALGORITHMS[name], "backend": backend, "rounds": 4}
    stopped_after(2, tmp_path, **more)
    resumed = resumed_from(tmp_path, **more)
    whole = ft.run(**settings(**more))
    assert resumed.digest() == whole.digest()
    assert [r.loss for r in resumed.history] == [r.loss for r in whole.history]
    assert resumed.costs == whole.costs


STOPS = [(rounds, commit_every) for rounds in range(1, 6) for commit_every in (1, 2, 4)]


@pytest.mark.parametrize("stop", slow_but(STOPS[::2], STOPS, "every round and every length of a commit run every time"))
def test_stopping_anywhere(stop: tuple[int, int], tmp_path: Path) -> None:
    rounds, commit_every = stop
    stopped_after(rounds, tmp_path, commit_every=commit_every)
    assert resumed_from(tmp_path, commit_every=commit_every).digest() == uninterrupted()


def test_processes_resume_what_serial_began(tmp_path: Path) -> None:
    stopped_after(3, tmp_path)
    assert resumed_from(tmp_path, backend="processes", workers=2).digest() == uninterrupted()


def test_evaluations_survive(tmp_path: Path) -> None:
    data = ft.data.load("digits").split(ft.data.iid(10), new_clients=2, seed=0)
    more = {"model": ft.models.mlp(64, [8], 10), "data": data, "evaluation": ft.Evaluation(every=2)}
    stopped_after(4, tmp_path, **more)
    resumed, whole = ft.run(**settings(**more), out=tmp_path, resume=True), ft.run(**settings(**more))
    assert resumed.scores.summary() == whole.scores.summary()
    assert str(resumed.table()) == str(whole.table())
    assert {p.name for p in tmp_path.iterdir()} >= {"run.sqlite", "metrics.jsonl", "summary.json", "report.html"}


OTHER_RUNS: dict[str, dict[str, Any]] = {
    "seed": {"seed": 3},
    "algorithm": {"algorithm": a.pflego(head_lr=0.2, server_lr=0.05, steps=3, server_optimizer="adam")},
    "model": {"model": ft.models.mlp(6, [7], 4)},
    "data": {"data": ft.data.FederatedData.from_clients([(np.zeros((5, 6)), np.zeros(5, dtype=int))] * 4)},
    "rounds": {"rounds": 3},
    "batching": {"batch_size": 5},
    "cohort": {"cohort": 2},
    "backend": {"backend": "vectorised"},
}


@pytest.mark.parametrize("field", OTHER_RUNS)
def test_another_run_is_refused_and_the_field_named(field: str, tmp_path: Path) -> None:
    stopped_after(2, tmp_path)
    with pytest.raises(ft.OutputError, match=f"^{field} must be that of the stored run"):
        ft.run(**settings(**OTHER_RUNS[field]), out=tmp_path, resume=True)


def test_another_version_is_refused(tmp_path: Path) -> None:
    stopped_after(2, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute("UPDATE identity SET value = '0.0.1' WHERE field = 'version'")
    with pytest.raises(ft.StoreError, match="description of the run is damaged"):
        ft.run(**settings(), out=tmp_path, resume=True)


def test_a_folder_is_neither_overwritten_nor_made_up(tmp_path: Path) -> None:
    stopped_after(2, tmp_path / "a")
    with pytest.raises(ft.OutputError, match="must be a new folder"):
        ft.run(**settings(), out=tmp_path / "a")
    with pytest.raises(ft.OutputError, match="must hold a run"):
        ft.run(**settings(), out=tmp_path / "b", resume=True)


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    reports = ft.train(**settings(), out=tmp_path)
    next(reports)
    with pytest.raises(ft.OutputError, match="no other process"):
        ft.run(**settings(), out=tmp_path, resume=True)
    reports.close()
    assert len(ft.run(**settings(), out=tmp_path, resume=True).history) == 6


POINTS = ["commit:begin", "commit:clients", "commit:shared", "commit:reports", "commit:end"]


FAILING = [(error, point) for error in ("full", "interrupt") for point in POINTS]


@pytest.mark.parametrize(
    "case",
    slow_but(
        [*FAILING[::2], FAILING[3]],
        FAILING,
        "every point fails every time, by a full disk or by Ctrl-C: they take turns",
    ),
)
def test_failing_at_any_point_of_a_commit(case: tuple[str, str], tmp_path: Path) -> None:
    error: BaseException = OSError(28, "no space left") if case[0] == "full" else KeyboardInterrupt()
    point, passed = case[1], 0

    def fail(here: str) -> None:
        nonlocal passed
        passed += here == point
        if passed == 3:
            raise error

    with faults(fail), pytest.raises(type(error)):
        ft.run(**settings(), out=tmp_path)
    assert resumed_from(tmp_path).digest() == uninterrupted()


@pytest.mark.parametrize("point", POINTS)
def test_dying_at_any_point_of_a_commit(point: str, tmp_path: Path) -> None:
    """The process is gone at once, as after kill -9; the newest committed round is there."""
    child = os.fork()
    if child == 0:
        passed = 0

        def die(here: str) -> None:
            nonlocal passed
            passed += here == point
            if passed == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        with faults(die):
            ft.run(**settings(), out=tmp_path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    committed = 3 if point == "commit:end" else 2
    reports = ft.train(**settings(), out=tmp_path, resume=True)
    assert next(reports).round == committed
    reports.close()
    assert resumed_from(tmp_path).digest() == uninterrupted()


def test_an_asynchronous_run_that_is_killed_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    """Who was at work, from which model and until when, is committed with every version."""
    fleet = ft.devices.log_normal(seconds_per_step=1.0, sigma=1.0)
    more = {"algorithm": a.fedper(lr=0.1, steps=2), "devices": fleet, "asynchrony": ft.asynchrony.fedbuff(2)}
    whole = ft.run(**settings(**more))
    assert max(report.measurements["max_staleness"] for report in whole.history) > 0
    child = os.fork()
    if child == 0:
        passed = 0

        def die(here: str) -> None:
            nonlocal passed
            passed += here == "commit:reports"
            if passed == 4:
                os.kill(os.getpid(), signal.SIGKILL)

        with faults(die):
            ft.run(**settings(**more), out=tmp_path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    again = resumed_from(tmp_path, **more)
    assert again.digest() == whole.digest()
    assert [report.total_time for report in again.history] == [report.total_time for report in whole.history]


def outcome(folder: Path, expected: str) -> str:
    """refused, stepped back loudly, or unharmed; anything else is a wrong result that nobody noticed."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            digest = resumed_from(folder).digest()
        except (ft.StoreError, ft.OutputError):
            return "refused"
    if digest != expected:
        return "wrong"
    return "stepped back" if any("going on from round" in str(w.message) for w in said) else "unharmed"


def damage_cases(size: int, count: int) -> list[Callable[[bytearray], None]]:
    rng = np.random.default_rng(0)

    def flip(data: bytearray, place: int, bit: int) -> None:
        data[place] ^= 1 << bit

    def cut(data: bytearray, place: int) -> None:
        del data[place:]

    def blank(data: bytearray, place: int) -> None:
        data[place : place + 64] = bytes(len(data[place : place + 64]))

    cases: list[Callable[[bytearray], None]] = []
    for index, place in enumerate(rng.integers(0, size, count).tolist()):
        bit = int(rng.integers(0, 8))
        kinds = (
            lambda d, p=place, b=bit: flip(d, p, b),
            lambda d, p=place: blank(d, p),
            lambda d, p=place: cut(d, p),
            lambda d, p=place, b=bit: flip(d, p, b),
        )
        cases.append(kinds[index % 4])
    return cases


def check_damage(tmp_path: Path, count: int) -> dict[str, int]:
    stopped_after(4, tmp_path / "good")
    original = (tmp_path / "good" / DATABASE).read_bytes()
    expected = uninterrupted()
    seen = dict.fromkeys(("refused", "stepped back", "unharmed", "wrong"), 0)
    for case in damage_cases(len(original), count):
        data = bytearray(original)
        case(data)
        folder = tmp_path / "damaged"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        (folder / DATABASE).write_bytes(data)
        seen[outcome(folder, expected)] += 1
    return seen


def test_damaged_databases_are_never_taken_for_good(tmp_path: Path) -> None:
    seen = check_damage(tmp_path, 16)
    assert seen["wrong"] == 0
    assert seen["refused"] > 0


@pytest.mark.slow("fifty times the damage that runs every time")
def test_eight_hundred_damaged_databases(tmp_path: Path) -> None:
    seen = check_damage(tmp_path, 800)
    print(seen)
    assert seen["wrong"] == 0


@pytest.mark.parametrize("column", ["tensors", "numbers", "manifest"])
def test_a_damaged_newest_round_steps_back_loudly(column: str, tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        value = connection.execute(f"SELECT {column} FROM shared WHERE round = 3").fetchone()[0]
        # The last byte always changes: a manifest's hash covers measured seconds, so it ends in any digit.
        worse = value[:-1] + (bytes([value[-1] ^ 1]) if isinstance(value, bytes) else chr(ord(value[-1]) ^ 1))
        connection.execute(f"UPDATE shared SET {column} = ? WHERE round = 3", (worse,))
    with logged() as said:
        assert resumed_from(tmp_path).digest() == uninterrupted()
    assert said[0].endswith("1 of 4 committed rounds are lost: going on after round 3")


def test_without_database_log_and_count_a_run_does_not_begin_again(tmp_path: Path) -> None:
    """Whoever lost both would train 64 rounds anew without a word, and a private run would draw another key."""

    def work() -> int:
        rounds = ft.train(**settings(), out=tmp_path)
        for _ in range(2):
            next(rounds)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert in_child(work) == (None, signal.SIGKILL)
    for name in ("run.count", f"{DATABASE}-wal", f"{DATABASE}-shm"):
        (tmp_path / name).unlink()
    with pytest.raises(ft.StoreError, match=r"holds no round, and run\.count, .* is missing or damaged\. Start afresh"):
        resumed_from(tmp_path)


def test_a_lost_count_is_told(tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    (tmp_path / "run.count").unlink()
    with logged() as said:
        assert resumed_from(tmp_path).digest() == uninterrupted()
    assert said[0] == "run.count is missing or damaged: rounds after round 4 may be lost"


def test_a_run_folder_is_its_owners(tmp_path: Path) -> None:
    """Users' names and scores are in there; a folder that was there keeps its mode."""
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    for folder in (tmp_path / "new", there):
        ft.run(**settings(), out=folder, trackers=["csv", "jsonl"])
        assert stat.S_IMODE(folder.stat().st_mode) == (0o755 if folder == there else 0o700)
        told = [
            DATABASE,
            "run.count",
            "users.csv",
            "summary.json",
            "metrics.csv",
            "report.html",
            "rounds.csv",
            "rounds.jsonl",
        ]
        assert {
            name: oct(stat.S_IMODE((folder / name).stat().st_mode)) for name in told if (folder / name).exists()
        } == {name: "0o600" for name in told if (folder / name).exists()}


def test_two_damaged_rounds_are_refused(tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute("UPDATE shared SET numbers = '{}'")
    with pytest.raises(ft.StoreError, match="Start afresh"):
        ft.run(**settings(), out=tmp_path, resume=True)


@pytest.mark.parametrize("statement", ["DELETE FROM clients", "UPDATE clients SET client = 77"])
def test_a_lost_or_renamed_client_is_not_a_new_client(statement: str, tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        changed_last = {row[0] for row in connection.execute("SELECT client FROM earlier")}
        kept = [row[0] for row in connection.execute("SELECT client FROM clients") if row[0] not in changed_last]
        connection.execute(f"{statement} WHERE client = {kept[0]}")
    with pytest.raises(ft.StoreError, match="do not belong"):
        ft.run(**settings(), out=tmp_path, resume=True)


def test_personal_state_is_read_from_disk(tmp_path: Path) -> None:
    result = ft.run(**settings(), out=tmp_path)
    whole = ft.run(**settings())
    for client in range(6):
        ours, theirs = result.client_state(client), whole.client_state(client)
        assert set(ours) == set(theirs) == {"head.weight", "head.bias"}
        assert all((ours[n] == theirs[n]).all() for n in theirs)


def start(folder: Path, resume: bool = False) -> Forked:
    """Sixty rounds in a process of their own, which says `ready` first and its digest last."""

    def work() -> None:
        print("ready", flush=True)
        print(drained(ft.train(**settings(rounds=60), out=folder, resume=resume)).digest())

    return Forked(work)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """kill -9 three times at moments a seed decides; the end is that of the uninterrupted run."""
    rng, kills = np.random.default_rng(1), 0
    while kills < 3:
        process = start(tmp_path, resume=(tmp_path / DATABASE).exists())
        process.stdout.readline()
        time.sleep(float(rng.uniform(0.05, 0.35)))
        process.kill()
        output = process.communicate()[0]
        kills += 1
        if output.strip():
            break
    final = start(tmp_path, resume=(tmp_path / DATABASE).exists()).communicate()[0].split()[-1]
    assert final == uninterrupted(60)


def interrupted_at(event: int, folder: Path, commit_every: int) -> bool:
    """Run with Ctrl-C at the n-th line that the store executes from its second commit on; False past the end."""
    watched, lines, commits = {"commit", "_write", "_write_clients", "_write_reports"}, 0, 0

    def trace(frame: Any, kind: str, _: Any) -> Any:
        nonlocal lines, commits
        if frame.f_code.co_name not in watched or not frame.f_code.co_filename.endswith("storage/on_disk.py"):
            return None
        commits += kind == "call" and frame.f_code.co_name == "commit"
        if kind == "line" and commits >= 2:
            lines += 1
            if lines == event:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    reports = ft.train(**settings(rounds=4), out=folder, commit_every=commit_every)
    before = sys.gettrace()
    try:
        sys.settrace(trace)
        for _ in reports:
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        reports.close()
    return False


LINES = [(1, 4), (1, 1), (3, 1)]
"""Rounds in a commit, and how many lines further the next interruption is."""


@pytest.mark.parametrize("case", slow_but(LINES[:1], LINES, "every line; every fourth one runs every time"))
def test_ctrl_c_at_lines_of_a_commit(case: tuple[int, int], tmp_path: Path) -> None:
    (commit_every, further), event = case, 1 - case[1]
    while interrupted_at(event := event + further, tmp_path / str(event), commit_every) and event < 45:
        resumed = resumed_from(tmp_path / str(event), rounds=4)
        assert resumed.digest() == uninterrupted(4), f"line {event}"
        assert [report.round for report in resumed.history] == [0, 1, 2, 3]
    assert event > 25
