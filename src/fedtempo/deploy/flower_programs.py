"""A server and nodes of a deployment as Flower's own programs: a SuperLink, SuperNodes, and the run between them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedtempo.config import EXPERIMENT, ExperimentFile, bounded_toml, fingerprint, stored_file, write_experiment
from fedtempo.deploy import RUN_FOLDER
from fedtempo.deploy.appfolder import write_app
from fedtempo.deploy.keys import check_server, is_loopback, node_keys, public_keys, server_keys
from fedtempo.deploy.leftovers import end_leftovers, write_record
from fedtempo.deploy.processes import ProcessGroup, Running, environment, free_port, wait_for_port
from fedtempo.deploy.registered import Registered
from fedtempo.errors import ConfigError, OutputError, TrainingError, require
from fedtempo.support.files import write_atomically
from fedtempo.training.log import LOGGER
from fedtempo.training.storage.folders import SUMMARY

DEPLOYMENT = "deployment.toml"
LINK = "fedtempo"
"""What the SuperLink is called in Flower's configuration."""
START_SECONDS = 120.0
RECORD_SECONDS = 2.0
"""How old the record of running processes, and a look at the nodes' keys, may be."""


@dataclass(frozen=True)
class ServerPlan:
    """What a server is started with, besides the experiment; kept in the run folder so that it can be resumed."""

    keys: str | None
    """The server's folder of keys; None for a trial without any, on loopback."""
    host: str = "127.0.0.1"
    port: int = 8000
    clients: int | None = None
    patience: float = 300.0

    def __post_init__(self) -> None:
        require(0 < self.port < 65536, "port", "an int in [1, 65535]", self.port)
        if self.keys is None and not is_loopback(self.host):
            raise ConfigError(f"host must be a loopback address without keys (--insecure). Got {self.host!r}.")


class ServerLaunch:
    """A SuperLink in a run folder, and the experiment's run on it."""

    def __init__(self, out: Path, file: ExperimentFile, plan: ServerPlan, processes: ProcessGroup) -> None:
        self._out, self._file, self._plan, self._processes = out.absolute(), file, plan, processes
        self._home = self._out / "flower"
        self._env = environment(self._home, more={RUN_FOLDER: str(self._out)})
        self._keys = None if plan.keys is None else server_keys(Path(plan.keys))
        self._registered = Registered(self._home, LINK, self._start)

    def start(self) -> Running:
        """Start the SuperLink and admit the nodes whose public keys are there."""
        plan, keys, home = self._plan, self._keys, self._home
        for left in end_leftovers(home):
            what = f"{left.name} (process {left.pid}), left by an earlier server of this run"
            LOGGER.warning("ended %s", what)
        # The SuperLink's database holds clients' uploads as they came. Flower leaves it readable to every user.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        _check_port(plan.host, plan.port)
        write_app(home / "app", self._file, plan.clients, plan.patience)
        link: dict[str, object] = {"address": f"127.0.0.1:{plan.port}"}
        link |= {"insecure": True} if keys is None else {"root-certificates": str(keys.authority.absolute())}
        write_atomically(home / "config.toml", tomli_w.dumps({"superlink": {"default": LINK, LINK: link}}), "out")
        command = ["flower-superlink", "--host", plan.host, "--port", str(plan.port)]
        command += ["--database", str(home / "superlink.db"), "--disable-runtime-dependency-installation"]
        if keys is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", str(keys.authority), "--ssl-certfile", str(keys.certificate)]
            command += ["--ssl-keyfile", str(keys.key), "--enable-supernode-auth"]
        link_process = self._start("SuperLink", command, home / "superlink.log")
        wait_for_port(link_process, plan.port, START_SECONDS)
        self._admit()
        return link_process

    def run(self, tell: Callable[[str], None]) -> None:
        """Submit the run and follow it to its end; `tell` gets a line per round."""
        before = (self._out / SUMMARY).stat().st_mtime_ns if (self._out / SUMMARY).exists() else 0
        command = ["flwr", "run", str(self._home / "app"), LINK, "--stream"]
        log = self._home / "run.log"
        shown = len(log.read_text(errors="replace").splitlines()) if log.exists() else 0
        run, recorded = self._start("run", command, log), time.monotonic()
        while True:
            ended = run.wait(0.5)
            text = run.log.read_text(errors="replace")
            lines = text.splitlines()
            whole = len(lines) - (ended is None and not text.endswith("\n"))  # the last line may still be growing
            for line in lines[shown:whole]:
                if line.startswith("fedtempo: "):
                    tell(line.removeprefix("fedtempo: "))
            shown = max(shown, whole)
            if ended is not None:
                break
            if time.monotonic() > recorded + RECORD_SECONDS:
                recorded = self._record()  # Flower starts more as it goes
                self._admit(during_a_run=True)
        if not (self._out / SUMMARY).exists() or (self._out / SUMMARY).stat().st_mtime_ns == before:
            why = next((line for line in reversed(lines) if "Error" in line), run.log_tail())
            raise TrainingError(f"the run ended before its time: {why.strip()} (log: {run.log})")

    def _start(self, name: str, command: list[str], log: Path) -> Running:
        running = self._processes.start(name, command, log, self._env)
        self._record()
        return running

    def _record(self) -> float:
        """Write down what runs for this server, for whoever has to clean up after it; returns the time."""
        write_record(self._home, self._processes.named())
        return time.monotonic()

    def _admit(self, during_a_run: bool = False) -> None:
        """Let in the nodes whose keys are in the folder now, and nobody else."""
        if self._plan.keys is not None:
            self._registered.follow(public_keys(Path(self._plan.keys)), during_a_run)


def prepare_server(out: Path, file: ExperimentFile, plan: ServerPlan) -> None:
    """Write what a run folder needs to be served and, later, resumed."""
    keys = None if plan.keys is None else str(Path(plan.keys).absolute())
    values = {name: value for name, value in {**asdict(plan), "keys": keys}.items() if value is not None}
    write_experiment(out, file)
    write_atomically(out / DEPLOYMENT, tomli_w.dumps(values), "out")


def stored_server(out: Path, allow_code: Sequence[str] = ()) -> tuple[ExperimentFile, ServerPlan]:
    """What a run folder was served with."""
    file = stored_file(out / EXPERIMENT, allow_code)
    try:
        values: dict[str, Any] = bounded_toml.loads((out / DEPLOYMENT).read_text(), DEPLOYMENT)
        return file, ServerPlan(**{"keys": None, **values})
    except (OSError, ValueError, TypeError) as error:
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

    def config(self, file: ExperimentFile) -> dict[str, str | int]:
        """What the node is told about itself."""
        config: dict[str, str | int] = {"experiment": fingerprint(file), "state-dir": str(self.state.absolute())}
        if self.part is not None:
            return config | {"partition-id": self.part[0], "num-partitions": self.part[1]}
        if self.data is not None:
            return config | {"data-folder": str(self.data.absolute())}
        return config | {"data-loader": str(self.loader)}


def node_command(file: ExperimentFile, plan: NodePlan) -> list[str]:
    """The SuperNode's command line."""
    settings = " ".join(f"{name}={json.dumps(value)}" for name, value in plan.config(file).items())
    command = ["flower-supernode", "--superlink", plan.server, "--port", str(free_port()), "--node-config", settings]
    if plan.keys is None:
        return [*command, "--insecure"]
    keys = node_keys(plan.keys)
    return [*command, "--root-certificates", str(keys.authority), "--auth-supernode-private-key", str(keys.key)]


def check_admitted(node: Running) -> None:
    """The server lets the node in. Flower's own program only says that a request was refused, and tries on."""
    output = node.output()
    if "401 Unauthorized" in output or "Failed to activate SuperNode" in output:
        raise TrainingError(
            f"the server must have this node's key among those it lets in. It has not, or no more. (log: {node.log})"
        )


def check_reachable(plan: NodePlan) -> None:
    """The server that a node is started for has a valid certificate, if it listens already and there are keys."""
    if plan.keys is not None:
        host, _, port = plan.server.rpartition(":")
        check_server(host, int(port), node_keys(plan.keys).authority)


def start_node(file: ExperimentFile, plan: NodePlan, processes: ProcessGroup, name: str = "SuperNode") -> Running:
    """Start a SuperNode; its log and Flower's files are in its state folder."""
    if plan.data is not None and not plan.data.is_dir():
        raise ConfigError(f"data must be a folder. Got {plan.data}.")
    plan.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = environment(plan.state / "flower", [Path.cwd()] if plan.loader else [])
    return processes.start(name, node_command(file, plan), plan.state / "node.log", env)


def _check_port(host: str, port: int) -> None:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"port must be one that can be listened on at {host}. Got {port}: {error.strerror}."
        ) from None
