"""What a server and a node are started with, and what of it a run folder keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedtempo.config import EXPERIMENT, ExperimentFile, bounded_toml, fingerprint, read_stored, write_experiment
from fedtempo.deploy.membership.keys import is_loopback
from fedtempo.errors import ConfigError, OutputError, is_count, is_number, require
from fedtempo.support.files import read_inside, write_atomically

DEPLOYMENT = "deployment.toml"
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class ServerPlan:
    """What a server is started with, besides the experiment."""

    keys: Path | None
    """The server's folder of keys; None for a trial without any, on loopback."""
    host: str = "127.0.0.1"
    port: int = 8000
    clients: int | None = None
    patience: float = 300.0
    without: tuple[str, ...] = ()
    """Nodes that a run which is resumed goes on without."""

    def __post_init__(self) -> None:
        require(0 <= self.port < 65536, "port", "an int in [0, 65535]", self.port)
        require(self.clients is None or is_count(self.clients), "clients", "an int >= 1", self.clients)
        require(is_number(self.patience) and 0 < self.patience < 1e9, "patience", "a number > 0", self.patience)
        if self.keys is None and not is_loopback(self.host):
            raise ConfigError(f"host must be a loopback address without keys (--insecure). Got {self.host!r}.")


def prepare_server(out: Path, file: ExperimentFile, plan: ServerPlan) -> None:
    """Write what a run folder needs to be served and, later, resumed. Where the server listens is not part of it."""
    kept = {"clients": plan.clients, "patience": plan.patience}
    write_experiment(out, file)
    write_atomically(out / DEPLOYMENT, tomli_w.dumps({n: v for n, v in kept.items() if v is not None}), "out")


def stored_server(
    out: Path,
    keys: Path | None,
    host: str,
    port: int,
    allow: Sequence[str] = (),
    allow_code: Sequence[str] = (),
    without: Sequence[str] = (),
) -> tuple[ExperimentFile, ServerPlan]:
    """What a run folder was served with. The folder may be a stranger's: it says nothing about keys and addresses."""
    file = read_stored(out / EXPERIMENT, allow, allow_code)
    try:
        values: dict[str, Any] = bounded_toml.loads(read_inside(out, DEPLOYMENT, MOST_BYTES).decode(), DEPLOYMENT)
        patience = values.get("patience", ServerPlan.patience)
        return file, ServerPlan(keys, host, port, values.get("clients"), patience, tuple(without))
    except (OSError, ValueError) as error:
        raise OutputError(f"{out / DEPLOYMENT} must say how the run was served: {error}.") from None


@dataclass(frozen=True)
class NodePlan:
    """What a node is started with."""

    keys: Path | None
    server: str
    state: Path
    part: tuple[int, int] | None = None
    """(number, of how many): its share of the experiment's own data set."""
    data: Path | None = None
    loader: str | None = None

    def __post_init__(self) -> None:
        host, separator, port = self.server.rpartition(":")
        holds = bool(separator) and bool(host) and port.isdecimal()
        require(holds, "server", "an address such as example.org:8000", self.server)
        if self.keys is None and not is_loopback(host):
            raise ConfigError(f"server must be a loopback address without keys (--insecure). Got {self.server!r}.")
        given = sum(source is not None for source in (self.part, self.data, self.loader))
        require(given == 1, "a node's data", "given by one of --part, --data and --loader", given)
        if self.data is not None and not self.data.is_dir():
            raise ConfigError(f"data must be a folder. Got {self.data}.")

    def config(self, file: ExperimentFile) -> dict[str, str | int]:
        """What the node is told about itself."""
        config: dict[str, str | int] = {"experiment": fingerprint(file), "state-dir": str(self.state.absolute())}
        if self.part is not None:
            return config | {"partition-id": self.part[0], "num-partitions": self.part[1]}
        if self.data is not None:
            return config | {"data-folder": str(self.data.absolute())}
        return config | {"data-loader": str(self.loader)}
