"""`fedtempo deploy`: the same experiment on real clients, by way of Flower."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtempo.cli.options import AllowCode, AsJson, ExperimentPath, Overrides, Quiet, new_folder, saying_how_to_resume
from fedtempo.config import ExperimentFile, read
from fedtempo.config.own_code import make_importable
from fedtempo.deploy import check_installed
from fedtempo.deploy.blueprint import of_file
from fedtempo.deploy.launch.plans import DEPLOYMENT, NodePlan, ServerPlan, stored_server
from fedtempo.deploy.launch.process import private_process
from fedtempo.deploy.membership.keys import LOOPBACK, make_keys
from fedtempo.deploy.node import make_node
from fedtempo.deploy.personal import DATABASE
from fedtempo.errors import ConfigError, OutputError, TrainingError, is_count, require
from fedtempo.support.json_text import json_text
from fedtempo.support.terminal import say
from fedtempo.support.threads import usable_processors
from fedtempo.training.delivery import FORMATS, example_batch, preparation_notes, write_model
from fedtempo.training.log import lines_to
from fedtempo.training.storage.folders import SUMMARY

app = typer.Typer(
    help="Run an experiment on real clients, or try it on this machine.",
    no_args_is_help=True,
    add_completion=False,
    callback=private_process,
)

Nodes = Annotated[int, typer.Option(help="How many nodes.")]
NOWHERE = "localhost:1"
"""The address of a node that does not connect."""
NodeState = Annotated[Path, typer.Option(help="The node's own folder: personal state, log.")]
NodePart = Annotated[str | None, typer.Option(help="Its share of the experiment's data set, such as 0/2 and 1/2.")]
NodeFolder = Annotated[Path | None, typer.Option(help="A folder with one NUMBER.npz per client.")]
NodeLoader = Annotated[str | None, typer.Option(help="A function that loads its clients, module:function.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="No TLS and no keys; on loopback only.")]
ServerKeysFolder = Annotated[Path | None, typer.Option(help="The server's folder of keys.")]
Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")]


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for certificates and keys.")],
    nodes: Nodes = 2,
    host: Annotated[list[str] | None, typer.Option(help="A name or address that nodes reach the server by.")] = None,
) -> None:
    """Make a certificate authority, a server certificate, and a key for each node."""
    check_installed()
    make_keys(folder, nodes, [*dict.fromkeys([*(host or []), *LOOPBACK])])
    say(f"{folder / 'server'} belongs on the server, {folder / 'node-1'} and so on each on its node.")
    say(f"{folder / 'authority'} signs certificates: keep it where neither of them is.")


@app.command("server")
def server(
    experiment: ExperimentPath,
    out: Annotated[Path, typer.Option(help="A new run folder; every round is committed to it.")],
    keys: ServerKeysFolder = None,
    host: Host = ServerPlan.host,
    port: Port = ServerPlan.port,
    clients: Annotated[
        int | None, typer.Option(help="Clients to wait for, where nodes bring data of their own.")
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for them.")] = ServerPlan.patience,
    overrides: Overrides = None,
    allow_code: AllowCode = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Serve an experiment: listen for nodes, wait for the clients, train, and end."""
    check_installed()
    file = read(experiment, overrides, allow_code or [])
    _check_keys(keys, insecure)
    plan = ServerPlan(keys, host, port, clients, patience)
    new_folder(out)
    _served(out, file, plan, as_json, quiet, new=True)


def resume_server(
    out: Path,
    keys: Path | None,
    host: str,
    port: int,
    insecure: bool,
    as_json: bool,
    quiet: bool,
    allow: list[str] | None = None,
    allow_code: list[str] | None = None,
    without: list[str] | None = None,
) -> None:
    """Go on with a deployment after a restart of the server."""
    private_process()
    check_installed()
    _check_keys(keys, insecure)
    file, plan = stored_server(out, keys, host, port, allow or (), allow_code or (), without or ())
    _served(out, file, plan, as_json, quiet)


@app.command("client")
def client(
    experiment: ExperimentPath,
    server: Annotated[str, typer.Option(help="The server's address, HOST:PORT.")],
    state: NodeState,
    keys: Annotated[Path | None, typer.Option(help="The node's folder of keys.")] = None,
    part: NodePart = None,
    data: NodeFolder = None,
    loader: NodeLoader = None,
    overrides: Overrides = None,
    allow_code: AllowCode = None,
    insecure: Insecure = False,
    quiet: Quiet = False,
) -> None:
    """Be a node: hold clients' data, train on them when asked, until interrupted."""
    check_installed()
    file = read(experiment, overrides, allow_code or [])
    _check_keys(keys, insecure)
    plan = NodePlan(keys, server, state, None if part is None else _part(part), data, loader)
    if loader is not None:
        make_importable(Path.cwd())
    from fedtempo.deploy.launch.member import be_node

    with lines_to(_teller(quiet)):
        be_node(file, plan)


@app.command("export")
def export_from_node(
    experiment: ExperimentPath,
    state: NodeState,
    client: Annotated[int, typer.Option(help="The client whose model it is, by its number in the run.")],
    out: Annotated[Path, typer.Option(help="The file to write; without an ending it gets the format's.")],
    part: NodePart = None,
    data: NodeFolder = None,
    loader: NodeLoader = None,
    which: Annotated[str, typer.Option(help="The round: selected by validation, or last.")] = "selected",
    format: Annotated[
        str, typer.Option(help="safetensors (tensors), torch or onnx (computation too).")
    ] = "safetensors",
    overrides: Overrides = None,
    allow_code: AllowCode = None,
) -> None:
    """On a node, after the run: write one of its clients' models to a file. Give it the node's data as before."""
    require(format in FORMATS, "format", " or ".join(map(repr, FORMATS)), format)
    file = read(experiment, overrides, allow_code or [])
    if not (state / DATABASE).exists():
        raise OutputError(f"state must be a node's folder, with its {DATABASE}. Got {state}.")
    plan = NodePlan(None, NOWHERE, state, None if part is None else _part(part), data, loader)
    node = make_node(of_file(file), plan.config(file))
    model = node.model(client, which)  # type: ignore[arg-type]
    federation = node.experiment.federation
    example = example_batch(federation.problem, client)
    say(str(write_model(model, example, out, format, preparation_notes(federation))))  # type: ignore[arg-type]


@app.command("status")
def status(
    folder: Annotated[Path, typer.Argument(help="The run folder of a server.")], as_json: AsJson = False
) -> None:
    """Who is there: nodes, their clients, rounds, failures and bytes. Run it beside the server, or after it."""
    from fedtempo.deploy.launch.status import lines_of, status_of

    if not os.path.lexists(folder / DEPLOYMENT):
        raise OutputError(f"a folder to look at must hold a deployment. Got {folder}, which does not.")
    found = status_of(folder)
    if as_json:
        say(json.dumps({**found._asdict(), "nodes": [node._asdict() for node in found.nodes]}))
        return
    for line in lines_of(found):
        say(line)


@app.command("simulate")
def simulate(
    experiment: ExperimentPath,
    nodes: Nodes = 2,
    out: Annotated[Path | None, typer.Option(help="A new run folder.")] = None,
    overrides: Overrides = None,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
) -> None:
    """Run the experiment's apps on Flower's simulation engine, on this machine."""
    check_installed()
    file = read(experiment, overrides, allow_code or [])
    require(is_count(nodes), "nodes", "an int >= 1", nodes)
    if out is not None:
        new_folder(out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = out or Path(temporary) / "run"
        _simulated(file, nodes, folder, Path(temporary) / "nodes")
        _show(folder, as_json)


@app.command("trial")
def trial(
    experiment: Annotated[Path | None, typer.Argument(help="The experiment; a small demo by default.")] = None,
    nodes: Nodes = 2,
    rounds: Annotated[int, typer.Option(help="Rounds of the demo.")] = 3,
    out: Annotated[Path, typer.Option(help="A new folder; everything goes into it.")] = Path("trial"),
    overrides: Overrides = None,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Deploy on loopback with TLS and node keys, compare with the simulator, stop everything."""
    check_installed()
    require(is_count(nodes), "nodes", "an int >= 1", nodes)
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    from fedtempo.deploy.launch.trial import demonstration, try_out

    file = demonstration(rounds) if experiment is None else read(experiment, overrides, allow_code or [])
    began = time.monotonic()
    found = try_out(file, out, nodes, _teller(quiet or as_json))
    if as_json:
        say(json.dumps({"deployed": found.deployed, "simulated": found.simulated, "equal": found.equal}))
    elif found.equal:
        say(f"deployed and simulated runs have the same digest, {found.deployed[:16]}")
    if found.equal is False:
        raise TrainingError(f"digests differ: deployed {found.deployed[:16]}, simulated {str(found.simulated)[:16]}.")
    if not (quiet or as_json):
        say(f"{found.seconds:.0f} s of rounds, {time.monotonic() - began:.0f} s in all; everything is in {out}")


def _served(out: Path, file: ExperimentFile, plan: ServerPlan, as_json: bool, quiet: bool, new: bool = False) -> None:
    from fedtempo.deploy.launch.link import bind
    from fedtempo.deploy.launch.serving import be_server

    options = ["--insecure"] if plan.keys is None else ["--keys", shlex.quote(str(plan.keys))]
    with bind(plan.host, plan.port) as bound:
        options += ["--host", plan.host, "--port", str(bound.getsockname()[1])]
        with saying_how_to_resume(out, file, options):
            be_server(out, file, plan, bound, _teller(quiet or as_json), new)
    _show(out, as_json)


def _simulated(file: ExperimentFile, nodes: int, out: Path, state: Path) -> None:
    from fedtempo.deploy import make_apps
    from fedtempo.deploy.flower import simulate as on_flower

    on_flower(*make_apps(file, out=out, state=state), nodes, usable_processors())
    if not (out / SUMMARY).exists():
        raise TrainingError("the simulation ended before its time; its log is above.")


def _show(out: Path, as_json: bool) -> None:
    summary: dict[str, Any] = json.loads((out / SUMMARY).read_text())
    if as_json:
        say(json_text(summary))
        return
    for group, metrics in (summary["scores"] or {}).items():
        numbers = ", ".join(f"{name} {_number(values['mean'])}" for name, values in metrics.items())
        say(f"{group.replace('_', ' ')}: {numbers}")
    say(f"{summary['rounds']} rounds, digest {summary['digest'][:16]}")


def _number(value: float | None) -> str:
    """A score as the summary has it: null where it is undefined."""
    return "undefined" if value is None else f"{value:.4f}"


def _teller(quiet: bool) -> Callable[[str], None] | None:
    return None if quiet else say


def _check_keys(keys: Path | None, insecure: bool) -> None:
    if insecure and keys is not None:
        raise ConfigError("keys must be left out with --insecure. Got both.")
    if not insecure and keys is None:
        raise ConfigError(
            "keys must be given (fedtempo deploy init makes them), or --insecure on loopback. Got nothing."
        )


def _part(text: str) -> tuple[int, int]:
    number, separator, parts = text.partition("/")
    holds = bool(separator) and number.isdecimal() and parts.isdecimal() and int(number) < int(parts)
    require(holds, "part", "written NUMBER/PARTS with a number from 0 to PARTS - 1", text)
    return int(number), int(parts)
