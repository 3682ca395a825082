"""`python -m benchmarks.peers`: FedTempo, the hand-written loop and other frameworks on the same work, in turn."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from benchmarks import handwritten, report
from benchmarks.experiments import compare as experiments
from benchmarks.experiments.plan import EXPERIMENTS, SMALL, Experiment
from benchmarks.measure import Timing, in_turn, ratio
from benchmarks.ours import federated, rounds
from benchmarks.peers import table
from benchmarks.peers.check import LARGEST, Replay
from benchmarks.peers.contender import Contender, PeerFailedError
from benchmarks.peers.environments import PEERS, Peer, installed
from benchmarks.peers.plan import opened
from benchmarks.peers.table import LOOP, OURS
from benchmarks.workloads import FOLDER, WORKLOADS, Workload

FASTEST = {
    "W1": ("pfl", "fedlab", "fedjax", "fedjax-pmap", "blazefl", "flower"),
    "W2": ("pfl", "fedlab", "fedjax", "fedjax-pmap", "blazefl", "flower"),
    "W3": ("pfl", "fedlab-one", "fedjax", "blazefl", "flower"),
    "W4": ("pfl", "fedlab", "fedjax", "blazefl", "flower"),
    "W5": ("pfl", "fedlab-one", "fedjax", "blazefl", "flower"),
    "E1": ("pfl", "fedlab", "fedjax", "blazefl", "flower"),
    "E2": ("pfl", "fedlab", "fedjax", "blazefl", "flower"),
    "E3": ("pfl", "fedlab", "fedjax", "blazefl", "flower"),
    "E4": ("pfl", "fedlab", "fedjax", "blazefl", "flower"),
    "E5": ("pfl", "fedlab", "fedjax", "blazefl", "flower"),
}
"""Every framework in the configuration that was fastest when all were tried, both where none was; `--peers` names
others."""
CONFIGURATIONS = {
    OURS: "backend auto, two workers",
    LOOP: "autograd.grad, one update of all weights, channels last, two forked workers",
}
WARM_UP, ENOUGH_ROUNDS = 2, 5
PATIENCE, LONGEST = 150.0, 300.0
"""Seconds to start or to answer, and for a whole experiment; who takes longer is stopped and stays in the table."""
ALLOWANCE_SECONDS, LEAST_ROUNDS = 60.0, 3
"""A framework whose counted rounds together take longer than this does no more of them than the least."""
Command = Callable[[], list[str]]
"""Makes ready whatever a framework needs and says how to run it."""


def main(arguments: list[str] | None = None) -> None:
    """Measure what was asked for and print it; with all frameworks and enough rounds it is kept, too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=main.__doc__)
    parser.add_argument("--only", default=",".join(WORKLOADS), help="such as W1,W3,E1; W1 to W5 by default")
    parser.add_argument("--peers", help=f"of {', '.join(PEERS)}; by default each framework at its fastest")
    parser.add_argument(
        "--rounds", type=int, default=ENOUGH_ROUNDS, help=f"rounds of W that count, after {WARM_UP} that do not"
    )
    parser.add_argument("--repeats", type=int, default=1, help="runs of each experiment E")
    parser.add_argument(
        "--patience",
        type=float,
        help=f"seconds a framework may take to start or answer ({PATIENCE:.0f}), or for an E ({LONGEST:.0f})",
    )
    parser.add_argument("--small", action="store_true", help="short experiments, to see that everything works")
    parser.add_argument("--write", action="store_true", help="keep the results and renew the page, whatever was chosen")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # Whoever ends this process wants the stopped frameworks ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # All names are looked up before anything runs for an hour.
    plan = {name: FASTEST[name] for name in _known(parser, chosen.only, FASTEST)}
    if chosen.peers:
        plan = dict.fromkeys(plan, _known(parser, chosen.peers, PEERS))
    wrong = []
    for name, peers in plan.items():
        try:
            (_experiment if name in EXPERIMENTS else _workload)(name, [PEERS[peer] for peer in peers], chosen)
        except Exception:  # the others are still to be measured
            traceback.print_exc()
            wrong.append(name)
    if wrong:
        sys.exit(f"not measured: {', '.join(wrong)}")


def _known(parser: argparse.ArgumentParser, names: str, among: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in a list with commas."""
    chosen = tuple(names.split(","))
    for name in chosen:
        if name not in among:
            parser.error(f"{name!r} is none of {', '.join(among)}")
    return chosen


def _workload(name: str, peers: list[Peer], chosen: argparse.Namespace) -> None:
    """Rounds of one workload."""
    workload = WORKLOADS[name]
    print(f"\n{workload.title}", flush=True)
    commands = {peer.title: partial(command, peer, workload) for peer in peers}
    found = compare(workload, commands, chosen.rounds, chosen.patience or PATIENCE)
    print("\n".join(table.lines(name, found)), flush=True)
    if chosen.write or (not chosen.peers and chosen.rounds >= ENOUGH_ROUNDS):
        table.keep(name, found)


def _experiment(name: str, peers: list[Peer], chosen: argparse.Namespace) -> None:
    """One whole experiment."""
    commands = {peer.title: partial(experiment_command, peer) for peer in peers}
    known = name + SMALL if chosen.small else name
    found = experiments.measured(known, commands, chosen.repeats, chosen.patience or LONGEST)
    print("\n".join(experiments.lines(found)), flush=True)
    # A few frameworks would take the place of the table with all of them.
    if not chosen.small and (chosen.write or not chosen.peers):
        experiments.keep("experiments-peers", {name: found}, write_page=True)


def experiment_command(peer: Peer, experiment: Experiment) -> list[str]:
    """How to run an experiment with a framework; installs it first."""
    return [installed(peer), "-m", peer.experimenter, experiment.name, *peer.arguments]


def about() -> dict[str, str]:
    """When, with what, on what."""
    return {**report.about(), "fedtempo": importlib.metadata.version("fedtempo")}


def command(peer: Peer, workload: Workload) -> list[str]:
    """How to run a framework; installs it first."""
    return [installed(peer), "-m", peer.runner, workload.name, *peer.arguments]


def compare(
    workload: Workload, peers: Mapping[str, Command], count: int, patience: float, folder: Path = FOLDER
) -> dict[str, Any]:
    """One workload with everybody: a round each, again and again. Who cannot take part is listed with the reason."""
    before = about()
    inputs, labels = opened(workload, folder)
    with ExitStack() as stack:
        started, failed = _start(workload, peers, patience, folder, stack)
        ours = rounds(workload, federated(workload, inputs, labels), workers=2)
        stack.callback(ours.close)  # type: ignore[attr-defined]
        loop = stack.enter_context(handwritten.processes(workload, inputs, labels))
        contenders: dict[str, Iterator[Any]] = {OURS: ours, LOOP: loop, **started}
        in_turn(contenders, 0, warm_up=WARM_UP)
        differences = _differences(started, Replay(workload, inputs, labels), folder)
        for peer in started.values():
            peer.allow(ALLOWANCE_SECONDS, LEAST_ROUNDS)
        timings = in_turn(contenders, count, warm_up=0)
    facts = {name: _facts(name, timings, started, differences) for name in contenders}
    facts |= {name: {"failed": reason} for name, reason in failed.items()}
    return {"title": workload.title, "about": before, "contenders": facts}


def _facts(
    name: str, timings: Mapping[str, Timing], started: Mapping[str, Contender], differences: Mapping[str, float]
) -> dict[str, Any]:
    """What is kept of one contender."""
    facts: dict[str, Any] = {"configuration": CONFIGURATIONS.get(name)}
    peer = started.get(name)
    if peer is not None:
        if peer.failure is not None:
            return {"failed": peer.failure}
        facts = {**peer.about, "start_up": peer.start_up, "difference": differences[name]}
    mine, ours = (_first(timings[n], peer.taken if peer else None) for n in (name, OURS))
    facts |= {**mine._asdict(), "median": mine.median}
    return facts if name == OURS else {**facts, "ratio": ratio(mine, ours)}


def _first(timing: Timing, count: int | None) -> Timing:
    return Timing(timing.wall[:count], timing.processor[:count])


def _start(
    workload: Workload, peers: Mapping[str, Command], patience: float, folder: Path, stack: ExitStack
) -> tuple[dict[str, Contender], dict[str, str]]:
    """Frameworks that are ready for their first round, and why the others are not."""
    started: dict[str, Contender] = {}
    failed: dict[str, str] = {}
    for number, (title, making) in enumerate(peers.items()):
        print(f"starting {title}", flush=True)
        try:
            contender = Contender(making(), folder / "peers" / f"{workload.name}-{number}.log", patience)
        except PeerFailedError as error:
            failed[title] = str(error)
            continue
        if contender.failure is not None:
            failed[title] = contender.failure
            continue
        stack.callback(contender.close)
        started[title] = contender
    return started, failed


def _differences(started: Mapping[str, Contender], replay: Replay, folder: Path) -> dict[str, float]:
    """How far each framework's weights are from the hand-written loop's; too far is a failure."""
    found: dict[str, float] = {}
    for number, (name, contender) in enumerate(started.items()):
        weights = contender.weights((folder / f"peer-{number}.npz").resolve())
        if weights is None:
            continue
        found[name] = replay.difference(weights, contender.cohorts)
        if not found[name] <= LARGEST:
            contender.give_up(f"not the same work: its weights are off by {found[name]:.1e} of the way they went")
    return found


if __name__ == "__main__":
    main()
