"""A server and nodes of a deployment as Flower's own programs: a SuperLink, SuperNodes, and the run between them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import tomli_w

from fedtempo.config import ExperimentFile, fingerprint, read
from fedtempo.deploy import RUN_FOLDER
from fedtempo.deploy.appfolder import write_app
from fedtempo.deploy.keys import is_loopback, node_keys, server_keys
from fedtempo.deploy.processes import Crew, Running, environment, free_port, wait_for_port
from fedtempo.errors import ConfigError, OutputError, TrainingError, require
from fedtempo.files import write_atomically
from fedtempo.report import EXPERIMENT, write_experiment

DEPLOYMENT = "deployment.toml"
LINK = "fedtempo"
"""What the SuperLink is called in Flower's configuration."""
START_SECONDS = 120.0
SUMMARY = "summary.json"


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


class Server:
    """A SuperLink in a run folder, and the experiment's run on it."""

    def __init__(self, out: Path, file: ExperimentFile, plan: ServerPlan, crew: Crew) -> None:
        self._out, self._file, self._plan, self._crew = out.absolute(), file, plan, crew
        self._home = self._out / "flower"
        self._env = environment(self._home, {RUN_FOLDER: str(self._out)})
        self._keys = None if plan.keys is None else server_keys(Path(plan.keys))

    def start(self) -> Running:
        """Start the SuperLink and admit the nodes whose public keys are there."""
        plan, keys, home = self._plan, self._keys, self._home
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
        link_process = self._crew.start("SuperLink", command, home / "superlink.log", self._env)
        wait_for_port(link_process, plan.port, START_SECONDS)
        for public in () if keys is None else keys.nodes:
            self._register(public)
        return link_process

    def run(self, tell: Callable[[str], None]) -> None:
        """Submit the run and follow it to its end; `tell` gets a line per round."""
        before = (self._out / SUMMARY).stat().st_mtime_ns if (self._out / SUMMARY).exists() else 0
        command = ["flwr", "run", str(self._home / "app"), LINK, "--stream"]
        log = self._home / "run.log"
        told = len(log.read_text(errors="replace").splitlines()) if log.exists() else 0
        run = self._crew.start("run", command, log, self._env)
        while True:
            ended = run.wait(0.5)
            lines = run.log.read_text(errors="replace").splitlines()
            for line in lines[told : len(lines) if ended is not None else -1]:
                if line.startswith("fedtempo: "):
                    tell(line.removeprefix("fedtempo: "))
            told = max(told, len(lines) - (ended is None))
            if ended is not None:
                break
        if not (self._out / SUMMARY).exists() or (self._out / SUMMARY).stat().st_mtime_ns == before:
            why = next((line for line in reversed(lines) if "Error" in line), run.last_words())
            raise TrainingError(f"the run ended before its time: {why.strip()} (log: {run.log})")

    def _register(self, public: Path) -> None:
        """Admit a node by its public key; one that is admitted already stays so."""
        command = ["flwr", "supernode", "register", str(public), LINK]
        register = self._crew.start("register", command, self._home / "register.log", self._env)
        if register.wait(START_SECONDS) != 0 and "already in use" not in register.last_words(10):
            raise TrainingError(f"node key {public.name} could not be registered: {register.last_words()}")


def prepare_server(out: Path, file: ExperimentFile, plan: ServerPlan) -> None:
    """Write what a run folder needs to be served and, later, resumed."""
    keys = None if plan.keys is None else str(Path(plan.keys).absolute())
    values = {name: value for name, value in {**asdict(plan), "keys": keys}.items() if value is not None}
    write_experiment(out, file)
    write_atomically(out / DEPLOYMENT, tomli_w.dumps(values), "out")


def stored_server(out: Path) -> tuple[ExperimentFile, ServerPlan]:
    """What a run folder was served with."""
    try:
        values = tomllib.loads((out / DEPLOYMENT).read_text())
        return read(out / EXPERIMENT), ServerPlan(**{"keys": None, **values})
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


def node_command(file: ExperimentFile, plan: NodePlan) -> list[str]:
    """The SuperNode's command line."""
    config: dict[str, str | int] = {"experiment": fingerprint(file), "state-dir": str(plan.state.absolute())}
    if plan.part is not None:
        config |= {"partition-id": plan.part[0], "num-partitions": plan.part[1]}
    elif plan.data is not None:
        config["data-folder"] = str(plan.data.absolute())
    else:
        config["data-loader"] = str(plan.loader)
    settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    command = ["flower-supernode", "--superlink", plan.server, "--port", str(free_port()), "--node-config", settings]
    if plan.keys is None:
        return [*command, "--insecure"]
    keys = node_keys(plan.keys)
    return [*command, "--root-certificates", str(keys.authority), "--auth-supernode-private-key", str(keys.key)]


def start_node(file: ExperimentFile, plan: NodePlan, crew: Crew, name: str = "SuperNode") -> Running:
    """Start a SuperNode; its log and Flower's files are in its state folder."""
    if plan.data is not None and not plan.data.is_dir():
        raise ConfigError(f"data must be a folder. Got {plan.data}.")
    plan.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    paths = {"PYTHONPATH": found} if plan.loader else {}
    env = environment(plan.state / "flower", paths)
    return crew.start(name, node_command(file, plan), plan.state / "node.log", env)


def _check_port(host: str, port: int) -> None:
    import socket

    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"port must be one that can be listened on at {host}. Got {port}: {error.strerror}."
        ) from None
