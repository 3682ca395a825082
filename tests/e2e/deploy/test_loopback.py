"""What a deployment computes is what the simulator computes; a bad node costs its own clients and nothing else."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.config import parse, settings_of
from fedtempo.deploy import NodeData
from fedtempo.deploy.blueprint import blueprint_of, of_file
from fedtempo.deploy.node import Node
from fedtempo.deploy.orders import scores_from_bytes, scores_to_bytes
from fedtempo.deploy.personal import DATABASE
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.deploy.wire import WireError
from tests.e2e.deploy.experiments import experiment_file
from tests.e2e.deploy.wires import FOUR, Gone, Wires, experiment, nodes_of, simulated
from tests.slow import slow_but


@pytest.mark.parametrize("name", slow_but(["FedNAR(SCAFFOLD)", "PFLEGO"], FOUR, "less to send or keep"))
@pytest.mark.parametrize("count", slow_but([3], [1, 3], "several nodes run every time"))
def test_the_digest_is_that_of_the_simulator(
    name: str, count: int, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    given = experiment(digits, FOUR[name]())
    blueprint = blueprint_of(given)
    here, there = simulated(given), serve_run(Wires(nodes_of(blueprint, count, tmp_path)), blueprint, Plan())
    assert there.digest() == here.digest()
    for mine, theirs in zip(here.history, there.history, strict=True):
        assert (mine.loss, mine.clients, mine.costs) == (theirs.loss, theirs.clients, theirs.costs)
        assert mine.measurements == theirs.measurements
        assert repr(mine.test) == repr(theirs.test)
        assert repr(mine.validation) == repr(theirs.validation)


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregator": ft.robust.median()},
        {"admission": ft.Admission(max_ratio=3.0)},
        {"faults": ft.Faults(nan=0.2, drop=0.2)},
    ],
    ids=["robust", "admission", "faults"],
)
def test_so_it_is_with_uploads_looked_at_one_by_one(
    changes: dict[str, object], digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    given = experiment(digits, FOUR["FedDecay"](), **changes)
    blueprint = blueprint_of(given)
    here, there = simulated(given), serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan())
    assert there.digest() == here.digest()
    assert [r.failures for r in here.history] == [r.failures for r in there.history]


KEEPING = {
    "weights by number": ft.algorithms.afl(lr=0.1, weights_lr=0.05),
    "a phase beside another": ft.algorithms.apfl(lr=0.1, steps=2, adaptive=True),
    "a phase that ends when it has": ft.algorithms.fedala(lr=0.1, steps=2, threshold=1.0, most_passes=12),
    "absent clients that mix": ft.algorithms.fedala(lr=0.1, steps=2, threshold=1.0, most_passes=12, mix_absent=True),
    "absent clients that train": ft.algorithms.pfedme(
        lr=0.01, personal_lr=0.05, lam=5.0, inner_steps=2, local_rounds=1, train_absent=True
    ),
}


@pytest.mark.parametrize("name", KEEPING)
def test_so_it_is_with_what_clients_keep(name: str, digits: ft.data.FederatedData, tmp_path: Path) -> None:
    given = experiment(digits, KEEPING[name], rounds=3, evaluation=None)
    blueprint = blueprint_of(given)
    there = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan())
    assert there.digest() == simulated(given).digest()


def test_a_private_mean_on_nodes_is_the_simulators(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """Nodes send plain uploads and know no key; the server clips, adds noise and withholds what it saw."""
    with pytest.warns(UserWarning, match="INSECURE"):
        predictable = ft.robust.private_mean(0.5, 1.0, noise_seed=3)
    for aggregator in (predictable, ft.robust.private_mean(0.5, 1.0)):
        given = experiment(digits, FOUR["FedDecay"](), aggregator=aggregator, cohort=ft.cohort.bernoulli(0.4))
        blueprint, out = blueprint_of(given), tmp_path / f"run {aggregator.noise_seed}"
        here = simulated(given)
        there = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan(out=out))
        assert (there.digest() == here.digest()) == (aggregator is predictable)
        assert all(not r.failures and not len(r.clients) and np.isnan(r.loss) for r in there.history)
        assert (there.releases, there.privacy) == (given.rounds, here.privacy)


def test_an_empty_cohort_waits_for_nobody(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    given = experiment(digits, FOUR["FedDecay"](), cohort=ft.cohort.bernoulli(0.07), rounds=8, evaluation=None)
    blueprint, here = blueprint_of(given), simulated(given)
    assert any(not len(report.clients) for report in here.history)
    there = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan(patience=5.0))
    assert there.digest() == here.digest()


@pytest.mark.parametrize("first", [1, 5])
def test_a_resumed_private_deployment_is_charged_one_mean_more(
    first: int, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    """The round that was cut may have been seen, and may be answered by others the next time. So at every kill."""
    given = experiment(digits, FOUR["FedDecay"](), aggregator=ft.robust.private_mean(0.5, 1.0))
    blueprint, plan, asked = blueprint_of(given), Plan(out=tmp_path / "run"), []

    def stop(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        asked.append(kind)
        if kind == "train" and asked.count("train") >= first:
            raise KeyboardInterrupt
        return parts

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            serve_run(Wires(nodes_of(blueprint, 2, tmp_path), stop), blueprint, plan)
    resumed = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, plan)
    assert resumed.releases == given.rounds + 2
    assert resumed.privacy is not None and resumed.privacy.rounds == given.rounds + 2


def test_afl_of_a_file_is_that_of_the_simulator(tmp_path: Path) -> None:
    """Its weights have an entry for every training client: a node must count all of them, not its own alone."""
    plain = experiment_file("FedDecay").model_dump()
    values = {name: value for name, value in plain.items() if value is not None}
    file = parse({**values, "algorithm": {"name": "afl", "lr": 0.1, "weights_lr": 0.05}, "rounds": 2})
    blueprint, here = of_file(file), ft.run(**settings_of(file), progress=False)
    there = serve_run(Wires(nodes_of(blueprint, 3, tmp_path)), blueprint, Plan())
    assert there.digest() == here.digest()
    assert not any(report.failures for report in there.history)


def test_a_node_needs_nothing_of_what_makes_a_mean_private(digits: ft.data.FederatedData) -> None:
    """A node has no held-out clients: rules about the whole run are the server's to check."""
    plain = experiment_file("FedDecay").model_dump()
    private = {"name": "private_mean", "bound": 0.5, "noise": 1.0}
    values = {name: value for name, value in plain.items() if value is not None}
    blueprint = of_file(parse({**values, "aggregator": private, "cohort": {"bernoulli": 0.5}}))
    everybody = NodeData(np.arange(len(digits)), replace(digits, held_out=digits.held_out[:0]))
    assert not blueprint.node(everybody).federation.private
    assert blueprint.server(digits).federation.private


def test_a_node_refuses_a_private_run_on_numbers_of_several_clients() -> None:
    plain = experiment_file("FedDecay").model_dump()
    values = {name: value for name, value in plain.items() if value is not None}
    blueprint = of_file(parse({**values, "aggregator": {"name": "private_mean", "bound": 0.5, "noise": 1.0}}))
    frame = {"user": list("aabb"), "x": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]}
    data = ft.data.from_frame(frame, client="user", target="y", standardise=True).split(seed=0)
    with pytest.raises(ft.ConfigError, match="means of training rows"):
        blueprint.node(NodeData(np.arange(len(data)), data))


def test_the_server_never_sees_a_personal_tensor_or_a_row(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["PFLEGO"]()))
    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan(out=tmp_path / "run"))
    assert {name for client in digits.clients for name in result.store.get(int(client)) or {}} == {"sha256"}
    assert not any(np.any(column) for column in result.experiment.federation.problem.data.columns.values())


@pytest.mark.parametrize("last", slow_but(["after"], ["before", "after"], "the other side of the same commit"))
def test_server_and_nodes_that_stop_in_a_round_go_on_to_the_same_digest(
    last: str, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    """Nodes have kept what the server never heard of, or the server has stopped before it asked."""
    given = experiment(digits, FOUR["PFLEGO"]())
    blueprint = blueprint_of(given)
    asked: list[str] = []

    def stop(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        asked.append(kind)
        if asked.count("train") == (5 if last == "before" else 6):
            raise KeyboardInterrupt
        return parts

    plan = Plan(out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        serve_run(Wires(nodes_of(blueprint, 2, tmp_path), stop), blueprint, plan)
    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, plan)
    assert result.digest() == simulated(given).digest()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("error 2: it fell over", "error 2: it fell over"),
        (None, "no answer"),
        ([], "no answer"),
        ([b"nonsense"] * 2, "malformed: upload must be"),
    ],
)
def test_a_node_that_does_not_answer_well_costs_its_own_clients(
    answer: list[bytes] | str | None, reason: str, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    cohorts = [[0, 1, 2, 3], [4, 5, 6], [12, 13]]
    mine = [[c for c in cohort if c % 2 == 0] for cohort in cohorts]
    changes = {"rounds": 3, "evaluation": None}
    clean = simulated(experiment(digits, FOUR["FedDecay"](), cohorts=[mine[0], cohorts[1], cohorts[2]], **changes))
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"](), cohorts=cohorts, **changes))
    calls: list[int] = []

    def spoil(node: int, kind: str, parts: list[bytes]) -> list[bytes] | str | None:
        calls.append(node) if kind == "train" else None
        return answer if kind == "train" and node == 8 and calls.count(8) == 1 else parts

    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path), spoil), blueprint, Plan())
    assert [f.client for f in result.history[0].failures] == [1, 3]
    assert all(f.reason.startswith(reason) for f in result.history[0].failures)
    assert not result.history[1].failures
    assert result.digest() == clean.digest()


def test_a_node_cannot_send_for_another_or_twice(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    changes = {"rounds": 1, "evaluation": None, "cohorts": [[0, 2, 4, 5]]}
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"](), **changes))

    def mixed(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        return [parts[1], parts[1], parts[0]] if kind == "train" and node == 1 else parts

    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path), mixed), blueprint, Plan())
    reasons = {f.client: f.reason for f in result.history[0].failures}
    assert reasons == {0: "another client's upload", 4: "another client's upload"}
    assert result.history[0].clients == (2, 5)


def test_more_answers_than_clients_are_none(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    changes = {"rounds": 1, "evaluation": None, "cohorts": [[0, 2, 5]]}
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"](), **changes))
    twice = Wires(nodes_of(blueprint, 2, tmp_path))
    twice.spoil = lambda node, kind, parts: parts * 2 if (node, kind) == (1, "train") else parts
    (report,) = serve_run(twice, blueprint, Plan()).history
    assert sorted(report.failures) == [(0, "4 answers for 2 clients"), (2, "4 answers for 2 clients")]
    assert report.clients == (5,)


@pytest.mark.parametrize("back", slow_but([True], [True, False], "it waits until patience is over"))
def test_where_all_nodes_go_in_the_middle_of_a_round_it_waits(
    back: bool, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    """`patience` holds after a node was asked, too. Whoever comes back is asked again, with the same result."""
    given = experiment(digits, FOUR["PFLEGO"](), rounds=2, evaluation=None)
    blueprint = blueprint_of(given)
    wires = Wires(nodes_of(blueprint, 2, tmp_path))
    asked: list[int] = []

    def go(node: int, kind: str, parts: list[bytes]) -> list[bytes] | Gone:
        asked.append(node) if kind == "train" else None
        if kind == "train" and len(asked) in (3, 4):  # both nodes, in the second round
            wires.away.add(node)
            if len(asked) == 4 and back:
                Timer(0.7, wires.away.clear).start()
            return Gone("error 5: Node Unavailable")
        return parts

    wires.spoil = go
    began = time.monotonic()
    result = serve_run(wires, blueprint, Plan(patience=300.0 if back else 1.0))
    if back:
        assert result.digest() == simulated(given).digest()
        assert not result.history[1].failures
        assert time.monotonic() - began < 150.0
    else:
        assert result.history[1].abandoned
        assert {failure.reason for failure in result.history[1].failures} == {"error 5: Node Unavailable"}


def test_a_node_that_goes_away_is_missed_and_welcome_back(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    given = experiment(digits, FOUR["PFLEGO"](), rounds=3, cohorts=[[0, 1], [0, 1], [0, 1]])
    blueprint = blueprint_of(given)
    wires = Wires(nodes_of(blueprint, 2, tmp_path))
    rounds: list[int] = []

    def come_and_go(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        if kind == "train" and node == 1:
            rounds.append(node)
            wires.away = {8} if len(rounds) == 1 else set()
        return parts

    wires.spoil = come_and_go
    result = serve_run(wires, blueprint, Plan())
    assert [r.failures for r in result.history] == [(), ((1, "not connected"),), ()]
    scores = result.history[-1].scores
    assert scores is not None
    assert (scores.existing_before.samples > 0).all()


def test_of_more_clients_than_needed_the_first_to_answer_count(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    given = experiment(digits, FOUR["PFLEGO"](), rounds=2, cohort=4, over_selection=1.0, evaluation=None)
    blueprint = blueprint_of(given)
    result = serve_run(Wires(nodes_of(blueprint, 4, tmp_path)), blueprint, Plan())
    for report in result.history:
        late = [failure.client for failure in report.failures]
        assert (len(report.clients), len(late)) == (4, 4)
        assert {failure.reason for failure in report.failures} == {"late: enough others had answered"}
        assert min(client % 4 for client in report.clients) >= max(client % 4 for client in late)  # nodes in reverse
    kept = {client for client, _ in result.store.items()}
    assert kept == {client for report in result.history for client in report.clients}


def test_users_that_do_not_answer_are_left_out_of_the_statistics(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    given = experiment(digits, FOUR["FedDecay"](), rounds=1)
    blueprint = blueprint_of(given)
    silent = Wires(nodes_of(blueprint, 2, tmp_path))
    silent.spoil = lambda node, kind, parts: None if (node, kind) == (8, "score") else parts
    here, there = simulated(given).history[0].scores, serve_run(silent, blueprint, Plan()).history[0].scores
    assert here is not None
    assert there is not None
    seen = there.existing_after.samples > 0
    assert [c % 2 for c in there.existing_after.clients[seen].tolist()] == [0] * int(seen.sum())
    assert np.array_equal(there.existing_after.values["loss"][seen], here.existing_after.values["loss"][seen])
    assert np.isfinite(there.existing_after.summary("loss")["mean"])


LIES = {
    "a share of a thousand million": ("accuracy", 1e9, {}),
    "a negative loss": ("loss", -1e9, {}),
    "the largest number": ("loss", 1e308, {}),
    "far from the others": ("loss", 1e6, {"admission": ft.Admission(max_ratio=100.0)}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_lies_about_scores_selects_no_model(
    lie: str, digits: ft.data.FederatedData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metric, value, more = LIES[lie]
    given = experiment(digits, FOUR["FedDecay"](), rounds=3, evaluation=ft.Evaluation(every=1, steps=0), **more)
    blueprint = blueprint_of(given)
    place = ["loss", *given.federation.problem.task.scores].index(metric)

    def lying(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        """Node 8 lies about the first user that it is asked for, after the first round only."""
        if kind != "score" or node != 8:
            return parts
        for number in (1, 2):  # validation alone, or validation and test
            with suppress(WireError):
                metrics = len(given.federation.problem.task.scores) + 1
                client, now, values = scores_from_bytes(parts[0], number, metrics)
                values[..., place] = value if now == 0 else values[..., place]
                return [scores_to_bytes(client, now, values), *parts[1:]]
        raise AssertionError("a node's scores must be those that it was asked for")

    here = simulated(given)
    there = serve_run(Wires(nodes_of(blueprint, 2, tmp_path), lying), blueprint, Plan())
    honest, told = (result.history[0].validation for result in (here, there))
    assert honest is not None
    assert told is not None
    counted = told.existing_after.samples > 0
    assert told.existing_after.clients[~counted].tolist() == [1]
    for name, values in honest.existing_after.among(told.existing_after.clients[counted]).values.items():
        assert np.array_equal(told.existing_after.values[name][counted], values, equal_nan=True)
    assert repr(here.history[1].validation) == repr(there.history[1].validation)
    assert "from node 8, are left out: score" in caplog.text


@pytest.mark.parametrize("checks", [True, False])
def test_a_diverging_client_is_treated_as_in_the_simulator(checks: bool, tmp_path: Path) -> None:
    """With checks it is refused; without, the run stops on either."""
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((8, 3)).astype(np.float32), rng.integers(0, 2, 8)) for _ in range(4)]
    data = ft.data.FederatedData.from_clients([*rows, (np.full((8, 3), 1e30, dtype=np.float32), rows[0][1])])
    settings = {"rounds": 2, "evaluation": None, "cohort": 5, "model": ft.models.mlp(3, [4], 2)}
    given = experiment(data, ft.algorithms.fedavg(lr=1.0, steps=3), admission=ft.Admission(checks=checks), **settings)
    blueprint = blueprint_of(given)
    ended = []
    for run in (
        lambda: simulated(given),
        lambda: serve_run(Wires(nodes_of(blueprint, 2, tmp_path)), blueprint, Plan()),
    ):
        try:
            result = run()
            ended.append((result.digest(), [report.failures for report in result.history]))
        except ft.TrainingError as error:
            ended.append((str(error), []))
    assert ended[0] == ended[1]
    assert ("stopped" in ended[0][0]) is not checks


def test_a_lost_personal_state_is_said_and_never_begun_afresh(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    changes = {"rounds": 3, "evaluation": None, "cohorts": [[0, 1], [0, 1], [0, 1]]}
    blueprint = blueprint_of(experiment(digits, FOUR["PFLEGO"](), **changes))
    rounds: list[int] = []

    def lose(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        rounds.append(node) if kind == "train" else None
        if rounds == [8]:
            (tmp_path / "node-1" / DATABASE).write_bytes(b"")
        return parts

    result = serve_run(Wires(nodes_of(blueprint, 2, tmp_path), lose), blueprint, Plan())
    assert [r.failures for r in result.history] == [(), *[((1, "its personal state is not on this node"),)] * 2]


def test_a_folder_for_personal_state_is_asked_for_where_it_is_needed(digits: ft.data.FederatedData) -> None:
    changes = {"rounds": 1, "evaluation": None}
    blueprint = blueprint_of(experiment(digits, FOUR["PFLEGO"](), **changes))
    result = serve_run(Wires(nodes_of(blueprint, 1, None)), blueprint, Plan())
    assert all("state-dir" in failure.reason for failure in result.history[0].failures)
    stateless = blueprint_of(experiment(digits, FOUR["FedDecay"](), **changes))
    assert not serve_run(Wires(nodes_of(stateless, 1, None)), stateless, Plan()).history[0].failures


def with_other_rows(node: Node) -> Node:
    """The node with one row less of its first client."""
    bounds = node.data.data.bounds.copy()
    bounds[0, 0] += 1
    return replace(node, data=node.data._replace(data=replace(node.data.data, bounds=bounds)))


def test_a_node_with_other_rows_is_named_and_the_run_goes_on_without_it(
    digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    given = experiment(digits, FOUR["FedDecay"](), evaluation=None)
    blueprint, asked = blueprint_of(given), list[str]()

    def stop(node: int, kind: str, parts: list[bytes]) -> list[bytes]:
        asked.append(kind)
        if asked.count("train") == 5:
            raise KeyboardInterrupt
        return parts

    plan = Plan(out=tmp_path / "run", patience=1.0)
    with pytest.raises(KeyboardInterrupt):
        serve_run(Wires(nodes_of(blueprint, 2, tmp_path), stop), blueprint, plan)
    nodes = nodes_of(blueprint, 2, tmp_path)
    nodes[8] = with_other_rows(nodes[8])
    client = int(nodes[8].data.numbers[0])
    with pytest.raises(ft.TrainingError, match=rf"node 8 was refused: client {client} must have the rows of the run's"):
        serve_run(Wires(nodes), blueprint, plan)
    with pytest.raises(ft.ConfigError, match="without must name nodes of the run"):
        serve_run(Wires(nodes), blueprint, replace(plan, without=("9",)))
    result = serve_run(Wires(nodes), blueprint, replace(plan, without=("8",)))
    lost = {failure.client for report in result.history[3:] for failure in report.failures}
    assert len(result.history) == given.rounds and lost and lost <= set(nodes[8].data.numbers.tolist())
    assert {failure.reason for report in result.history[3:] for failure in report.failures} == {"not connected"}
