"""What an operator can see of a deployment: who is there, with which clients, and how it went so far."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fedtempo.deploy.launch.process import only_server
from fedtempo.deploy.membership.declared import read_declared
from fedtempo.errors import OutputError, StoreError
from fedtempo.support.files import read_inside, write_atomically
from fedtempo.training.view import Run

PRESENT = "run.present"
"""What a server keeps up to date about the nodes that it has seen."""
MOST_BYTES = 16 << 20


class Seen(NamedTuple):
    """A node as the server sees it."""

    here: bool
    last: float
    """When it sent something, in seconds since 1970."""
    received: int
    """Bytes of the requests that the server has let in."""


class NodeStatus(NamedTuple):
    """A node of a run."""

    name: str
    here: bool
    clients: int
    rounds: int
    """In how many rounds an answer of one of its clients counted."""
    failures: int
    received: int
    last: float | None


class Status(NamedTuple):
    """A deployment, from its run folder."""

    served: bool
    """Whether a server runs now."""
    rounds: int
    total: int | None
    nodes: list[NodeStatus]


def write_present(out: Path, nodes: Mapping[str, Seen]) -> None:
    """Keep who has been seen."""
    write_atomically(out / PRESENT, json.dumps({name: list(seen) for name, seen in nodes.items()}), "out")


def status_of(out: Path) -> Status:
    """What the run folder says; nothing is written, and the server is not asked."""
    try:
        run: Run | None = Run.of(out)
    except (StoreError, OutputError):  # before the first round there is none
        run = None
    history = [] if run is None else run.history
    seen, declared, served = _present(out), read_declared(out), _served(out)
    nodes = []
    for name in sorted({*seen, *declared}, key=lambda name: (len(name), name)):
        own = set(declared[name].numbers) if name in declared else set()
        at = seen.get(name)
        counted = sum(any(client in own for client in report.clients) for report in history)
        failed = sum(failure.client in own for report in history for failure in report.failures)
        here = served and at is not None and at.here
        received, last = (0, None) if at is None else (at.received, at.last)
        nodes.append(NodeStatus(name, here, len(own), counted, failed, received, last))
    return Status(served, len(history), None if run is None else run.total, nodes)


def lines_of(status: Status) -> Iterator[str]:
    """The status in words."""
    of = "" if status.total is None else f" of {status.total}"
    yield f"{status.rounds}{of} rounds; {'a server runs' if status.served else 'no server runs'}"
    for node in status.nodes:
        last = "never seen" if node.last is None else f"last seen {max(0.0, time.time() - node.last):.0f} s ago"
        yield (
            f"{node.name}: {'here' if node.here else 'away'}, {last}, {node.clients} clients, {node.rounds} rounds, "
            f"{node.failures} failures, {node.received / 1e6:.1f} MB received"
        )


def _present(out: Path) -> dict[str, Seen]:
    try:
        found = json.loads(read_inside(out, PRESENT, MOST_BYTES))
        return {str(name): Seen(bool(here), float(last), int(got)) for name, (here, last, got) in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise OutputError(f"{out / PRESENT} must say which nodes were seen: {error}.") from None


def _served(out: Path) -> bool:
    try:
        with only_server(out):
            return False
    except OutputError:
        return True
