"""What a node claims before a run is bounded and checked; a false claim costs that node, not the run."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping

import pytest

import fedtempo as ft
from fedtempo.deploy.blueprint import Blueprint, blueprint_of
from fedtempo.deploy.membership.census import data_of, read_census
from fedtempo.deploy.membership.roster import Reply, Request
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.deploy.wire import WireError
from fedtempo.training.experiment import Experiment
from tests.e2e.deploy.experiments import experiment_file
from tests.e2e.deploy.wires import FOUR, Spoil, Wires, experiment, nodes_of, simulated
from tests.waiting import allowed

LIAR = 3
"""The liar's number: it is asked before the honest nodes, whose numbers are 1, 8 and 15, or between them."""


def changed(change: Callable[[dict[str, object]], None], liar: int = LIAR) -> Spoil:
    """A node whose census is not what it was."""

    def spoil(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        if (node, kind) != (liar, "census"):
            return parts
        claims = json.loads(parts[0])
        change(claims)
        return [json.dumps(claims).encode()]

    return spoil


def one_client(number: int, **claims: object) -> Callable[[dict[str, object]], None]:
    def change(census: dict[str, object]) -> None:
        census.update({"numbers": [number], "rows": [[5, 0, 0]], "new": [], **claims})

    return change


@pytest.fixture
def given(digits: ft.data.FederatedData) -> Experiment:
    return experiment(digits, FOUR["FedDecay"](), rounds=1, evaluation=None)


@pytest.fixture
def blueprint(given: Experiment) -> Blueprint:
    return blueprint_of(given)


OTHER_FORM = {"columns": {"x": {"kind": "float32", "shape": [3], "normalised": False}}}
LIES: dict[str, tuple[Callable[[dict[str, object]], None], str]] = {
    "a client beyond the last": (one_client(20), "client 20 must be below 20"),
    "a client far beyond": (one_client((1 << 26) - 1), "must be below 20"),
    "many clients to wait for": (one_client(0, population=1 << 25), "must be 20 clients"),
    "few clients to wait for": (one_client(0, population=1), "must be 20 clients"),
    "another form": (one_client(0, **OTHER_FORM), "columns must be"),
    "own outputs": (one_client(0, outputs=[3]), "columns must be"),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("clients", [None, 20])
def test_a_false_claim_costs_the_node_that_makes_it(
    name: str, clients: int | None, given: Experiment, blueprint: Blueprint, caplog: pytest.LogCaptureFixture
) -> None:
    change, reason = LIES[name]
    honest = nodes_of(blueprint, 3, None)
    wires = Wires({LIAR: honest[1], **honest}, changed(change))
    result = serve_run(wires, blueprint, Plan(clients=clients, patience=5.0))
    assert result.digest() == simulated(given).digest()
    said = "\n".join(caplog.messages)
    assert f"node {LIAR} is refused: " in said
    assert reason in said
    assert said.count("is refused") == 1


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Fail where more than 100 MB of new memory are taken."""
    tracemalloc.start()
    yield
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert highest < 100e6


@pytest.mark.parametrize("rows", [1 << 30, (1 << 31) - 1])
@pytest.mark.usefixtures("little_memory")
def test_a_claim_of_many_rows_costs_the_server_no_memory(rows: int) -> None:
    """The model is tried on the first client's rows."""
    blueprint = blueprint_of(experiment_file("FedDecay", rounds=1))

    def claim(census: dict[str, object]) -> None:
        counts = census["rows"]
        assert isinstance(counts, list)
        counts[0] = [rows, rows, 0]

    wires = Wires(nodes_of(blueprint, 2, None), changed(claim, liar=1))
    result = serve_run(wires, blueprint, Plan(patience=5.0))
    assert int(result.experiment.federation.problem.data.sizes("train")[0]) == rows


@pytest.mark.usefixtures("little_memory")
def test_labels_that_are_looked_at_one_by_one_cost_none_either(digits: ft.data.FederatedData) -> None:
    """With classes of their own, clients' labels are compared with them. A server has only zeros."""
    columns = {"x": {"kind": "float32", "shape": [64], "normalised": False}}
    columns["y"] = {"kind": "int64", "shape": [], "normalised": False}
    claims = census(2, rows=[[1 << 30, 0, 7], [3, 0, 0]], outputs=[10, 10], columns=columns)
    data = data_of([read_census(claims)])
    prepared = experiment(data, FOUR["PFLEGO"](), cohort=2)
    assert prepared.federation.problem.data.sizes("train").tolist() == [1 << 30, 3]


def census(clients: int, **changes: object) -> bytes:
    values = {
        "experiment": "e",
        "numbers": list(range(clients)),
        "rows": [[3, 0, 0]] * clients,
        "new": [],
        "outputs": None,
        "columns": {"x": {"kind": "float32", "shape": [4], "normalised": False}},
        "population": clients,
    }
    return json.dumps({**values, **changes}).encode()


TOO_MUCH: dict[str, bytes] = {
    "rows": census(1, rows=[[1 << 31, 0, 0]]),
    "clients": census(1, numbers=[1 << 26]),
    "bytes": census(1, rows=[[1 << 30, 0, 0]], columns={"x": {"kind": "int8", "shape": [1 << 19], "normalised": True}}),
    "a population": census(1, population=1 << 27),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_claims_are_bounded(name: str) -> None:
    with pytest.raises(WireError, match="census"):
        read_census(TOO_MUCH[name])


def test_a_long_census_is_read_in_time_that_grows_with_its_length() -> None:
    many = 50_000
    began = time.process_time()
    assert len(read_census(census(many, new=list(range(many)), rows=[[0, 0, 1]] * many)).new) == many
    assert time.process_time() - began < 5.0


def test_a_false_population_is_named_when_nobody_can_tell_who_is_right(blueprint: Blueprint) -> None:
    honest = nodes_of(blueprint, 1, None)
    wires = Wires({LIAR: honest[1], **honest}, changed(one_client(0, population=1 << 25)))
    began = time.monotonic()
    with pytest.raises(ft.TrainingError, match=r"nodes must agree .* 20 \(1 node\), 33554432 \(1 node\).*--clients"):
        serve_run(wires, blueprint, Plan(patience=0.5))
    assert time.monotonic() - began < allowed(10.0)


class SlowWires(Wires):
    """A transport on which somebody who does not answer is waited for, at the end."""

    silent: frozenset[int] = frozenset()
    waited = 0.0

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        yield from super().exchange({node: r for node, r in requests.items() if node not in self.silent}, seconds)
        if self.silent & requests.keys():
            self.waited += seconds or math.inf


@pytest.mark.parametrize("rounds", [1, 3])
def test_nobody_waits_for_a_node_that_does_not_say_who_it_is(rounds: int, digits: ft.data.FederatedData) -> None:
    """Neither at the start, where all clients are here without it, nor in a round whose clients all are."""
    given = experiment(digits, FOUR["FedDecay"](), rounds=rounds, evaluation=None)
    blueprint = blueprint_of(given)
    honest = nodes_of(blueprint, 2, None)
    wires = SlowWires({**honest, LIAR: honest[1]})
    wires.silent = frozenset({LIAR})
    assert serve_run(wires, blueprint, Plan()).digest() == simulated(given).digest()
    assert wires.waited == 0.0
