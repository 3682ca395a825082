"""Nodes before a run: the data they bring, what they say about them, and who is not let in."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.config import ExperimentFile, parse
from fedtempo.deploy import NodeData
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.membership.census import census_of, data_of, read_census
from fedtempo.deploy.membership.roster import Reply, Request
from fedtempo.deploy.node import Nodes, make_node
from fedtempo.deploy.nodedata import from_folder, placed, share
from fedtempo.deploy.orders import order_layout
from fedtempo.deploy.personal import DATABASE, PersonalStore
from fedtempo.deploy.server import RUN, Plan, serve_run
from fedtempo.deploy.wire import HASH, WireError
from fedtempo.training.state import digest_of
from tests.e2e.deploy.wires import FOUR, Wires, experiment, nodes_of, simulated

FIRST = bytes(HASH)


def own_clients(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [(rng.standard_normal((6 + c, 4)).astype(np.float32), rng.integers(0, 3, 6 + c)) for c in range(count)]


def own_data(count: int) -> ft.data.FederatedData:
    clients = own_clients(count)
    return ft.data.FederatedData.from_clients(clients, test=[(x[:2], y[:2]) for x, y in clients])


def loaded_by_function(config: dict[str, object]) -> NodeData:
    """A loader as a user writes one: two clients by their numbers in the run."""
    first = int(str(config["first"]))
    clients = own_clients(4)[first : first + 2]
    data = ft.data.FederatedData.from_clients(clients, test=[(x[:2], y[:2]) for x, y in clients])
    return NodeData(np.array([first, first + 1]), data)


def test_data_from_folders_and_functions_train_like_the_same_data_in_the_simulator(tmp_path: Path) -> None:
    settings = {"model": ft.models.mlp(4, [5], 3), "cohort": 3, "batch_size": 4, "rounds": 3}
    given = experiment(own_data(4), FOUR["PFLEGO"](), **settings)
    blueprint = blueprint_of(given)
    for number in (0, 1):
        x, y = own_clients(4)[number]
        (tmp_path / "folder").mkdir(exist_ok=True)
        np.savez(tmp_path / "folder" / f"{number}.npz", x=x, y=y, x_test=x[:2], y_test=y[:2])
    configs = [
        {"data-folder": str(tmp_path / "folder"), "state-dir": str(tmp_path / "a")},
        {"data-loader": f"{__name__}:loaded_by_function", "first": 2, "state-dir": str(tmp_path / "b")},
    ]
    nodes = {number: make_node(blueprint, config) for number, config in enumerate(configs)}  # type: ignore[arg-type]
    result = serve_run(Wires(nodes), blueprint, Plan(clients=4))
    assert result.digest() == simulated(given).digest()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "no such file"),
        ({"a": {"x": np.zeros((2, 3))}}, "'a.npz'"),
        ({"0": {"x": np.zeros((2, 3)), "x_extra": np.zeros(2)}}, "x_extra"),
        ({"0": {"new": np.array(True)}}, "must hold an array x"),
    ],
)
def test_a_wrong_folder_is_named(files: dict[str, dict[str, np.ndarray]], expected: str, tmp_path: Path) -> None:
    for name, arrays in files.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    with pytest.raises(ft.DataError, match=expected):
        from_folder(tmp_path)


def test_a_folder_says_who_is_new(tmp_path: Path) -> None:
    for number, (x, y) in enumerate(own_clients(3)):
        np.savez(tmp_path / f"{number + 10}.npz", x=x, y=y, **({"new": np.array(1)} if number == 1 else {}))
    found = from_folder(tmp_path)
    assert found.numbers.tolist() == [10, 11, 12]
    assert found.data.held_out.tolist() == [1]
    assert read_census(census_of(found, "e")).new == [11]
    assert placed(found).clients.tolist() == [10, 11, 12]


@pytest.mark.parametrize("name", ["nowhere:f", "json", "json:nothing", "json:dumps"])
def test_a_wrong_loader_is_named(name: str, digits: ft.data.FederatedData) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"]()))
    with pytest.raises((ft.ConfigError, ft.DataError), match="loader must"):
        make_node(blueprint, {"data-loader": name})


def loader_that_raises(config: dict[str, object]) -> NodeData:
    if config.get("how") == "exit":
        raise SystemExit(3)
    raise RuntimeError("the database is\nnot there")


def loader_of_wrong_numbers(config: dict[str, object]) -> NodeData:
    return NodeData(json.loads(str(config["numbers"])), own_data(2))  # type: ignore[arg-type]


@pytest.mark.parametrize(("how", "why"), [("raise", "RuntimeError: the database is."), ("exit", "SystemExit: 3.")])
def test_a_loader_that_raises_is_named_with_its_reason(how: str, why: str, digits: ft.data.FederatedData) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"]()))
    name = f"{__name__}:loader_that_raises"
    with pytest.raises(ft.DataError, match=re.escape(f"loader must return this node's clients. {name} raised {why}")):
        make_node(blueprint, {"data-loader": name, "how": how})


@pytest.mark.parametrize("numbers", ["[0]", "[0, 0]", "[0, -1]", "[0, 0.5]", "[[0, 1]]", "[0, 67108864]", "3", "[]"])
def test_wrong_numbers_of_clients_are_named(numbers: str, digits: ft.data.FederatedData) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"]()))
    with pytest.raises(ft.DataError, match=r"numbers of a node's clients must be 2 different ints"):
        make_node(blueprint, {"data-loader": f"{__name__}:loader_of_wrong_numbers", "numbers": numbers})


def loader_of_trained(config: dict[str, object]) -> NodeData:
    return loaded_by_function(config)._replace(trained=json.loads(str(config["trained"])))


def afl_file() -> ExperimentFile:
    """Data of the form of `own_data`; nodes bring their own."""
    model = {"name": "softmax_regression", "inputs": 4, "outputs": 3}
    data = {"name": "digits", "split": {"name": "iid", "clients": 4}}
    return parse(
        {"rounds": 2, "data": data, "model": model, "algorithm": {"name": "afl", "lr": 0.1, "weights_lr": 0.1}}
    )


def test_a_node_with_its_own_data_says_who_is_trained_on_where_weights_are_by_number() -> None:
    blueprint = blueprint_of(afl_file())
    own = {"data-loader": f"{__name__}:loaded_by_function", "first": 0}
    with pytest.raises(ft.ConfigError, match=r"data of a node must be .* who is trained on .* for afl. Got neither"):
        make_node(blueprint, own)
    told = {**own, "data-loader": f"{__name__}:loader_of_trained", "trained": "[3, 0, 1, 2]"}
    there = blueprint.server(own_data(4))
    expected = order_layout(there.federation, there.first_shared, True)
    for first in (0, 2):
        assert make_node(blueprint, {**told, "first": first}).training_layout == expected
    with pytest.raises(ft.DataError, match=r"numbers of training clients must be 2 different ints .* Got \[1, 1\]"):
        make_node(blueprint, {**told, "trained": "[1, 1]"})


def test_the_server_knows_counts_and_shapes_of_all(digits: ft.data.FederatedData) -> None:
    counted = {part: read_census(census_of(share(digits, part, 3), "e")) for part in range(3)}
    known = data_of(counted.values())
    for part in ("train", "validation", "test"):
        assert np.array_equal(known.sizes(part), digits.sizes(part))
    assert np.array_equal(known.held_out, digits.held_out)
    assert {n: (c.shape[1:], c.dtype) for n, c in known.columns.items()} == {
        n: (c.shape[1:], c.dtype) for n, c in digits.columns.items()
    }


def census(**changes: object) -> bytes:
    values = {
        "experiment": "e",
        "numbers": [0, 1],
        "rows": [[3, 0, 0], [4, 0, 1]],
        "new": [],
        "outputs": None,
        "columns": {"x": {"kind": "float32", "shape": [4], "normalised": False}},
        "population": 2,
    }
    return json.dumps({**values, **changes}).encode()


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"\xff\xfe",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "long": b" " * ((1 << 24) + 1),
    "a client twice": census(numbers=[0, 0]),
    "a negative client": census(numbers=[-1, 0]),
    "a huge client": census(numbers=[0, 2**62]),
    "a client that is text": census(numbers=["../0", 1]),
    "rows missing": census(rows=[[1, 0, 0]]),
    "negative rows": census(rows=[[-3, 0, 0], [4, 0, 1]]),
    "nobody": census(numbers=[], rows=[]),
    "nothing to train on": census(rows=[[0, 0, 0], [4, 0, 1]]),
    "a new client that is not counted": census(new=[7]),
    "a type by name": census(columns={"x": {"kind": "object", "shape": [4], "normalised": False}}),
    "an enormous row": census(columns={"x": {"kind": "float32", "shape": [2**30, 2**30], "normalised": False}}),
    "no columns": census(columns={}),
    "another key": census(path="/etc/passwd"),
    "outputs of nobody": census(outputs=[3]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_census_is_refused(name: str) -> None:
    with pytest.raises(WireError, match="census"):
        read_census(HOSTILE[name])
    assert read_census(census()).numbers == [0, 1]


def test_who_is_not_let_in(digits: ft.data.FederatedData, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = experiment(digits, FOUR["FedDecay"](), rounds=1, evaluation=None)
    blueprint = blueprint_of(given)
    other = blueprint_of(experiment(digits, FOUR["FedDecay"](), rounds=1, evaluation=None, seed=4))
    honest = nodes_of(blueprint, 2, None)
    intruders = {20: nodes_of(other, 2, None)[1], 21: nodes_of(blueprint, 2, None)[8], 22: honest[1]}
    spoiled = Wires({**honest, **intruders}, lambda node, kind, parts: [b"x"] if node == 22 else parts)
    order = dict(sorted(spoiled.made.items()))
    spoiled.made = order
    spoiled.exchange = _in_order(spoiled)  # type: ignore[method-assign]
    result = serve_run(spoiled, blueprint, Plan())
    assert result.digest() == simulated(given).digest()
    said = "\n".join(caplog.messages)
    assert "node 20 is refused: it was started for another experiment" in said
    assert "node 21 is refused: client 1 is on another node already" in said
    assert "node 22 is refused: a census must be" in said


def _in_order(wires: Wires) -> Callable[..., object]:
    def exchange(requests: dict[int, object], seconds: float | None) -> object:
        for node in sorted(requests, key=lambda node: (node != 8, node == 1, node)):  # one that is needed comes last
            yield from Wires.exchange(wires, {node: requests[node]}, seconds)  # type: ignore[dict-item]

    return exchange


def test_a_start_without_everybody_ends_in_time_and_says_who_is_missing(digits: ft.data.FederatedData) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"]()))
    one = {1: nodes_of(blueprint, 2, None)[1]}
    with pytest.raises(ft.TrainingError, match=r"10 of 20 clients connected in 0.1 s; without \[1, 3, 5, 7, 9\]"):
        serve_run(Wires(one), blueprint, Plan(patience=0.1))
    with pytest.raises(ft.TrainingError, match=r"run not started: no clients connected in 0.1 s"):
        serve_run(Wires({}), blueprint, Plan(patience=0.1))
    with pytest.raises(ft.TrainingError, match=r"0 of 10 clients .* node 1 was refused: there must be 10 clients"):
        serve_run(Wires(one), blueprint, Plan(clients=10, patience=0.1))


def test_a_node_started_for_another_experiment_does_not_serve_this_one(digits: ft.data.FederatedData) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"]()))
    with pytest.raises(ft.ConfigError, match="the one this node was started for"):
        make_node(blueprint, {"experiment": "0" * 64})


def test_a_process_loads_a_data_set_once(digits: ft.data.FederatedData) -> None:
    loads: list[int] = []

    def data() -> ft.data.FederatedData:
        loads.append(1)
        return digits

    blueprint, nodes = replace(blueprint_of(experiment(digits, FOUR["FedDecay"]())), data=data), Nodes()
    made = [nodes.get(blueprint, {"partition-id": part % 3, "num-partitions": 3}, None) for part in range(6)]
    assert loads == [1]
    assert all(first is again for first, again in zip(made[:3], made[3:], strict=True))
    assert [node.data.numbers[0] for node in made[:3]] == [0, 1, 2]


def test_a_node_refuses_orders_for_another_model(digits: ft.data.FederatedData) -> None:
    node = nodes_of(blueprint_of(experiment(digits, FOUR["FedDecay"]())), 1, None)[1]
    with pytest.raises(WireError, match="order must be"):
        node.train(b"nonsense", b"")


# ---------------------------------------------------------------------- personal state


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"head.weight": torch.full((2, 3), value), "head.bias": torch.zeros(2)}


def test_the_last_three_states_in_line_are_kept(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    line = [FIRST]
    for value in range(5):
        line.append(store.put("r", 4, line[-1], tensors(value)))
    for digest in line[3:]:
        assert digest_of(store.get("r", 4, digest)) == digest
    for digest in line[1:3]:
        with pytest.raises(ft.StoreError, match="not on this node"):
            store.get("r", 4, digest)
    retried = store.put("r", 4, line[-2], tensors(99.0))  # the server never got the last one, and asks again
    assert digest_of(PersonalStore(tmp_path).get("r", 4, retried)) == retried
    assert digest_of(store.get("r", 4, line[-2])) == line[-2]


def test_runs_and_clients_do_not_see_each_other(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    digest = store.put("one", 1, FIRST, tensors(1.0))
    for run, client in (("two", 1), ("one", 2)):
        with pytest.raises(ft.StoreError, match="not on this node"):
            store.get(run, client, digest)


def test_a_damaged_state_is_noticed_and_a_readable_database_refused(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    digest = store.put("r", 1, FIRST, tensors(1.0))
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        (data,) = connection.execute("SELECT tensors FROM states").fetchone()
        connection.execute("UPDATE states SET tensors = ?", (data[:-1] + bytes([data[-1] ^ 1]),))
    with pytest.raises(ft.StoreError, match="damaged"):
        store.get("r", 1, digest)
    (tmp_path / DATABASE).chmod(0o644)
    with pytest.raises(ft.OutputError, match="readable by its owner only"):
        PersonalStore(tmp_path)


def test_a_run_folder_without_its_token_is_not_resumed(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"](), rounds=1, evaluation=None))
    serve_run(Wires(nodes_of(blueprint, 1, None)), blueprint, Plan(out=tmp_path / "run"))
    (tmp_path / "run" / RUN).write_text("zz")
    with pytest.raises(ft.OutputError, match=r"run\.token"):
        serve_run(Wires(nodes_of(blueprint, 1, None)), blueprint, Plan(out=tmp_path / "run"))


def test_nodes_know_their_devices_and_the_clock_is_measured(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """Steps by device and by the client's own loss have the simulator's bits; time is what the rounds really took."""
    steps = ft.schedules.finish_by(3.0, most=6) * ft.schedules.by_own_loss(0.5, power=0.5)
    fleet = ft.devices.log_normal(seconds_per_step=1.0, sigma=0.8)
    given = experiment(digits, ft.algorithms.fedavg(lr=0.1, steps=steps), rounds=3, devices=fleet, evaluation=None)
    blueprint = blueprint_of(given)
    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan())
    alone = simulated(given)
    assert result.digest() == alone.digest()
    assert [report.energy for report in result.history] == [0.0] * 3
    measured = [report.time for report in result.history]
    assert all(0 < time < 60 for time in measured) and measured != [report.time for report in alone.history]
    assert result.time == pytest.approx(sum(measured))


def test_nodes_in_the_order_of_events_have_the_simulators_bits(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """Personal heads, a client that comes twice from one version, and late ones: the same rule, the same numbers."""
    pairs = [("start", 0), ("start", 1), ("start", 2), ("finish", 1), ("start", 1), ("finish", 1), ("start", 3)]
    events = [*pairs, ("finish", 0), ("finish", 3), ("finish", 2), ("start", 0), ("finish", 0)]
    rule = ft.asynchrony.fedbuff(2, events=events)
    given = experiment(digits, ft.algorithms.fedper(lr=0.1, steps=2), rounds=3, asynchrony=rule, evaluation=None)
    blueprint = blueprint_of(given)
    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan())
    assert result.digest() == simulated(given).digest()
    assert max(report.measurements["max_staleness"] for report in result.history) == 2


class InTurn:
    """Wires whose nodes, like real ones, work on one message at a time, whoever sends it."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.locks = {node: threading.Lock() for node in wires.made}

    def name(self, node: int) -> str:
        return f"node {node}"

    def nodes(self) -> list[int]:
        return self.wires.nodes()

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        for node, request in requests.items():
            with self.locks[node]:
                replies = list(self.wires.exchange({node: request}, seconds))
            yield from replies


def test_a_server_that_does_not_wait_for_stragglers(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """One node answers nothing until the run is over: the clients of the other make all versions of the model."""
    settings = {"rounds": 4, "cohort": 1.0, "asynchrony": ft.asynchrony.fedbuff(2), "evaluation": None}
    given = experiment(digits, FOUR["FedDecay"](), **settings)
    blueprint, over = blueprint_of(given), threading.Event()

    def stuck(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        if node == 1 and kind == "train":
            over.wait(60)
        return parts

    wires = Wires(nodes_of(blueprint, 2, tmp_path), stuck)
    slow = set(read_census(wires.made[1].census()[0]).numbers)
    try:
        result = serve_run(InTurn(wires), blueprint, Plan())
    finally:
        over.set()
    heard = {client for report in result.history for client in report.clients}
    assert len(result.history) == 4 and heard and not heard & slow
    assert all(len(report.clients) == 2 and report.time > 0 for report in result.history)
    assert result.time == pytest.approx(sum(report.time for report in result.history))


def test_what_was_asked_is_asked_again_after_a_restart(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    settings = {"rounds": 4, "cohort": 3, "asynchrony": ft.asynchrony.fedbuff(2), "evaluation": None}
    blueprint = blueprint_of(experiment(digits, ft.algorithms.fedper(lr=0.1, steps=2), **settings))
    nodes, left = nodes_of(blueprint, 2, tmp_path / "nodes"), [6]

    def breaks(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        left[0] -= kind == "train"
        if left[0] < 0:
            raise ConnectionError("the link is gone")
        return parts

    plan = Plan(out=tmp_path / "run")
    with pytest.raises(ConnectionError):
        serve_run(InTurn(Wires(nodes, breaks)), blueprint, plan)
    result = serve_run(InTurn(Wires(nodes)), blueprint, plan)
    assert [report.round for report in result.history] == [0, 1, 2, 3]
    assert not any(report.failures for report in result.history)
