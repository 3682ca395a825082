"""What each node said it holds when a run began, kept with the run: who resumes it compares, and can name a node."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fedtempo.deploy.membership.census import LONGEST, Census, read_census
from fedtempo.deploy.wire import WireError
from fedtempo.errors import ConfigError, OutputError, shown
from fedtempo.support.files import read_inside, write_atomically

DECLARED = "run.nodes"
MOST_NODES = 100_000


def write_declared(out: Path, nodes: Mapping[str, Census]) -> None:
    """Keep what nodes have said, by their names."""
    text = json.dumps({name: census.model_dump_json() for name, census in nodes.items()})
    write_atomically(out / DECLARED, text, "out")


def read_declared(out: Path) -> dict[str, Census]:
    """What nodes said when the run began; nothing if it was stopped before all were there."""
    try:
        found = json.loads(read_inside(out, DECLARED, 4 * LONGEST))
        if not isinstance(found, dict) or len(found) > MOST_NODES:
            raise ValueError(f"it must name at most {MOST_NODES} nodes")
        return {str(name): read_census(str(census).encode()) for name, census in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, WireError) as error:
        raise OutputError(f"{out / DECLARED} must say what the run's nodes hold: {error}.") from None


def left_out(declared: Mapping[str, Census], without: Iterable[str]) -> dict[str, Census]:
    """The nodes that the run goes on without, by names with or without the word `node`."""
    names = [name if name in declared else f"node {name}" for name in without]
    unknown: Collection[str] = [name for name in names if name not in declared]
    if unknown:
        raise ConfigError(f"without must name nodes of the run, {shown(sorted(declared))}. Got {shown(unknown)}.")
    return {name: declared[name] for name in names}
