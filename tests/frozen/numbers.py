"""The numbers of the zoo, frozen in `numbers.json`: they show whether a change of code changed a bit of training.

    python -m tests.frozen.numbers                 compare, in under a minute: the zoo on serial and vectorised
    python -m tests.frozen.numbers --wide          compare everything: other models, processes, resumed, private, ...
    python -m tests.frozen.numbers --make          make the file anew
    python -m tests.frozen.numbers --make --at HEAD~1   make it by the code of that commit

The bits belong to a kind of processor and to a version of torch. On another kind nothing is compared: make the file
there from the commit before your change, then compare.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import fedtempo as ft
from tests import ROOT, zoo
from tests.frozen import kept

FILE = Path(__file__).with_name("numbers.json")
SAME, DIFFERENT, ELSEWHERE = 0, 1, 3
"""Exit codes: every number is equal, some number differs, or the file is of another kind of processor."""
CLOSE = 1e-12
SLOW = ft.devices.log_normal(
    seconds_per_step=1.0, sigma=1.0, down=1e4, up=1e3, bandwidth_sigma=0.5, latency=0.1, joules_per_step=2.0
)
EVENTS = [
    *[("start", 0), ("start", 1), ("finish", 1), ("start", 2), ("finish", 0), ("start", 3), ("finish", 3)],
    *[("finish", 2), ("start", 1), ("finish", 1)],
]
Numbers = dict[str, Any]
Case = Callable[[], Numbers]


def here() -> dict[str, str]:
    """What decides the last bits: the processor, the instructions that torch uses on it, and torch's version."""
    name = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return {
        "machine": platform.machine(),
        "processor": name,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def train(kind: str, name: str, **settings: Any) -> Numbers:
    usual = {
        "model": zoo.model(kind),
        "data": zoo.data(kind),
        "algorithm": zoo.EVERYTHING[name],
        "rounds": 2,
        "cohort": 4,
        "batch_size": 4,
        "seed": 1,
        "backend": "serial",
        "evaluation": ft.Evaluation(every=2),
        "dtype": torch.float64,
        "progress": False,
    }
    return numbers(ft.run(**{**usual, **settings}))


def resumed(kind: str, name: str) -> Numbers:
    """A run that stops after its first round and goes on from its folder."""
    with tempfile.TemporaryDirectory() as folder:
        train(kind, name, rounds=1, out=folder)
        return train(kind, name, rounds=2, out=folder, resume=True)


def compressed(kind: str, name: str) -> Numbers:
    plain = zoo.EVERYTHING[name]
    uploads = replace(plain.uploads, compress=ft.compress.top_k(0.5))
    return train(kind, name, algorithm=replace(plain, uploads=uploads))


def private(kind: str, name: str) -> Numbers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noise from a fixed key protects nobody, and says so
        return train(kind, name, aggregator=ft.robust.private_mean(0.5, 1.0, noise_seed=1))


def cases(wide: bool) -> Iterator[tuple[str, Case]]:
    """Every run by name."""
    for name in zoo.EVERYTHING:
        kind = "lora" if name in zoo.LORA else "mlp"
        yield f"{name}, {kind}, serial", lambda kind=kind, name=name: train(kind, name)
        yield (
            f"{name}, {kind}, vectorised",
            lambda kind=kind, name=name: train(kind, name, backend="vectorised", block=3),
        )
    if wide:
        yield from _wide_cases()


def _wide_cases() -> Iterator[tuple[str, Case]]:
    ways: dict[str, dict[str, Any]] = {
        "two processes": {"backend": "processes", "workers": 2},
        "float32, serial": {"dtype": torch.float32},
        "float32, vectorised": {"dtype": torch.float32, "backend": "vectorised", "block": 3},
        "devices and a deadline": {"devices": SLOW, "deadline": 5.0, "partial_work": True, "over_selection": 0.5},
    }
    for name in zoo.MECHANISMS:
        for kind in zoo.SHAPES:
            if kind != "mlp":
                for backend in ("serial", "vectorised"):
                    yield (
                        f"{name}, {kind}, {backend}",
                        lambda kind=kind, name=name, backend=backend: train(kind, name, backend=backend, block=3),
                    )
        for way, settings in ways.items():
            yield f"{name}, mlp, {way}", lambda name=name, settings=settings: train("mlp", name, **settings)
        yield f"{name}, mlp, compressed", lambda name=name: compressed("mlp", name)
        yield f"{name}, mlp, resumed", lambda name=name: resumed("mlp", name)
    for name in ("fedavg", "feddecay", "fedavgm"):
        yield f"{name}, mlp, private", lambda name=name: private("mlp", name)
    for name in ("fedavg", "fedper", "fedprox"):
        rule = ft.asynchrony.fedbuff(2, events=EVENTS)
        yield f"{name}, mlp, asynchronous", lambda name=name, rule=rule: train("mlp", name, asynchrony=rule)


def numbers(result: ft.Result) -> Numbers:
    """What is frozen of a run: its bits, costs and scores, and a weighted sum of every shared tensor.

    The sums say how far two runs lie apart where their bits differ.
    """
    weights = {name: torch.cos(torch.arange(value.numel())).double() for name, value in result.last.shared.items()}
    sums = {
        name: float(value.double().flatten() @ weights[name])
        for name, value in result.last.shared.items()
        if value.is_floating_point()
    }
    summary = result.scores.summary() if result.scores is not None else {}
    scores = {group: {name: one["mean"] for name, one in metrics.items()} for group, metrics in summary.items()}
    return {"digest": result.digest(), "costs": asdict(result.costs), "scores": _rounded(scores), "sums": sums}


def _rounded(tree: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(tree, Mapping):
        return {name: _rounded(value) for name, value in tree.items()}
    return None if tree != tree else tree


def made(wide: bool, only: str = "") -> dict[str, Any]:
    found = {}
    for name, case in cases(wide):
        if only in name:
            try:
                found[name] = case()
            except ft.ConfigError:  # two settings that exclude each other: that they do is frozen too
                found[name] = {"refused": True}
    return found


def difference(one: Any, other: Any, path: str = "") -> tuple[float, str]:
    """The largest relative difference of two trees of numbers and where it is; infinite where their forms differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return float("inf"), f"{path}: other names"
        found = [difference(one[name], other[name], f"{path}/{name}" if path else name) for name in one]
        return max(found, default=(0.0, ""))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) / max(1.0, abs(one), abs(other)), path
    return (0.0 if one == other else float("inf")), path


def compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each run that is not as it was."""
    lines = []
    for name in sorted(before.keys() | now.keys()):
        if name not in before or name not in now:
            lines.append(f"{name}: {'new' if name not in before else 'gone'}")
            continue
        if before[name] == now[name]:
            continue
        one, other = (
            {key: value for key, value in run.items() if key != "digest"} for run in (before[name], now[name])
        )
        most, where = difference(one, other)
        bits = "other bits" if before[name].get("digest") != now[name].get("digest") else "the same bits"
        if most == 0:
            lines.append(f"{name}: {bits}; costs, scores and sums are equal")
        else:
            close = f", within {CLOSE:g}" if most <= CLOSE else ""
            lines.append(f"{name}: {bits}; differs by {most:.2g} at {where}{close}")
    return lines


def make_by(commit: str, arguments: list[str]) -> int:
    """Run this tool with the code of another commit, in a copy of its own; what it makes is put here."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "worktree", "add", "--detach", str(copy), commit], cwd=ROOT, check=True)
        try:
            tool = copy / "tests" / "frozen"
            tool.mkdir(exist_ok=True)
            for path in Path(__file__).parent.glob("*.py"):  # the tool of today, whose cases are compared
                (tool / path.name).write_bytes(path.read_bytes())
            environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
            program = [sys.executable, "-m", "tests.frozen.numbers", "--make", *arguments]
            code = subprocess.run(program, cwd=copy, env=environment, check=False).returncode
            if code == 0:
                FILE.write_bytes((tool / FILE.name).read_bytes())
            return code
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(copy)], cwd=ROOT, check=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen.numbers", description=__doc__.splitlines()[0])
    parser.add_argument("--make", action="store_true", help="write numbers.json instead of comparing with it")
    parser.add_argument("--wide", action="store_true", help="everything: a few minutes")
    parser.add_argument("--at", default="", metavar="COMMIT", help="with --make: by the code of that commit")
    parser.add_argument("--only", default="", metavar="TEXT", help="compare the runs with this text in their name")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.make:
        if given.at:
            return make_by(given.at, [])
        kept.write(FILE, {"made_on": here()}, made(wide=True))
        print(f"{FILE.relative_to(ROOT)} is written")
        return SAME
    head, before = kept.read(FILE)
    if head["made_on"] != here():
        print(f"numbers.json was made on {head['made_on']}. Here is {here()}, which may have other last bits.")
        print("Nothing was compared. Make the file by the commit before yours, then compare:")
        print("  python -m tests.frozen.numbers --make --at COMMIT")
        return ELSEWHERE
    now = made(given.wide, given.only)
    chosen = {name for name, _ in cases(given.wide) if given.only in name}
    lines = compared({name: run for name, run in before.items() if name in chosen or given.wide}, now)
    print("\n".join(lines) if lines else f"all {len(now)} runs have the bits of numbers.json")
    return DIFFERENT if lines else SAME


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
