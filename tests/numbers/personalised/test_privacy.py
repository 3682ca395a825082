"""What leaves a client, what reaches others, and that neither depends on who else is there or who came first."""

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.client.objectives import Received
from tests.numbers.personalised.cases import CASES
from tests.numbers.personalised.setting import (
    CLIENTS,
    COMMON_HEAD,
    PARTIAL,
    START,
    Rows,
    SplitNet,
    both_backends,
    run,
)
from tests.slow import slow_but

every_algorithm = pytest.mark.parametrize("name", CASES)


def uploads(result: ft.Result, clients: list[int]) -> dict[int, dict[str, torch.Tensor]]:
    """What each of these clients would send in the first round, by group and name."""
    experiment = result.experiment
    federation, received = experiment.federation, Received(experiment.first_shared, {})
    now = federation.problem.now(0, float(len(clients)))
    personal = [federation.first_personal(c, experiment.first_shared) for c in clients]
    sent: dict[int, dict[str, torch.Tensor]] = {}
    blocks = experiment.backend.train(
        federation.problem, federation.program, received, now, np.array(clients), personal
    )
    for trained in blocks:
        groups, _, _ = trained.each(lambda carry: federation.program.finish(received, carry))
        for lane, client in enumerate(trained.clients.tolist()):
            sent[client] = {f"{g}:{n}": t[lane] for g, group in groups.items() for n, t in group.items()}
    return sent


def constant(rows: Rows) -> Rows:
    """As many rows, all the same, with the same label."""
    return np.full_like(rows[0], 12345.678), np.zeros_like(rows[1])


def assert_unmoved(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], backend: str) -> None:
    assert set(a) == set(b)
    for name, value in a.items():
        if backend == "serial":
            assert torch.equal(value, b[name]), name
        else:
            assert float((value - b[name]).abs().max()) <= 1e-12, name


@both_backends
@every_algorithm
def test_personal_tensors_never_leave(backend: str, name: str) -> None:
    """Uploads and the shared model hold exactly the names they should; no group but the deltas travels."""
    case = CASES[name]
    result = case.run(PARTIAL, backend=backend)
    assert set(result.params) == set(case.shared)
    for client, sent in uploads(result, [0, 1, 2, 3]).items():
        assert set(sent) == {f"delta:{n}" for n in case.sent}
        assert set(result.client_state(client)) == set(case.personal)


@both_backends
@pytest.mark.parametrize("name", ["ditto", "pfedme", "local_only"])
def test_full_personal_models_do_not_influence_the_upload(backend: str, name: str) -> None:
    """Where shared and personal tensors have the same names: another personal model, the same bits sent."""
    other = {n: a + 1.0 for n, a in START.items()}
    results = [CASES[name].run([[0, 1]], backend=backend, starts=s) for s in ({}, {0: other, 1: other})]
    first, second = (uploads(r, [0, 1]) for r in results)
    for client in (0, 1):
        assert_unmoved(first[client], second[client], "serial")


@both_backends
@every_algorithm
@pytest.mark.parametrize("changed", slow_but([1], [0, 1], "the same of another client"))
def test_one_clients_data_do_not_reach_another(backend: str, name: str, changed: int) -> None:
    """One client's rows become a constant: its own upload and state may change, those of the others do not."""
    case, cohort = CASES[name], [0, 1, 2]
    replaced = [constant(rows) if client == changed else rows for client, rows in enumerate(CLIENTS)]
    before = case.run([cohort], backend=backend)
    after = case.run([cohort], backend=backend, clients=replaced)
    sent_before, sent_after = uploads(before, cohort), uploads(after, cohort)
    for client in set(range(4)) - {changed}:
        assert_unmoved(before.client_state(client), after.client_state(client), backend)
    for client in set(cohort) - {changed}:
        assert_unmoved(sent_before[client], sent_after[client], backend)
    own_before, own_after = (
        sent[changed] or result.client_state(changed) for sent, result in ((sent_before, before), (sent_after, after))
    )
    assert any(not torch.equal(own_before[n], own_after[n]) for n in own_before)


@both_backends
@every_algorithm
def test_absent_clients_state_stays(backend: str, name: str) -> None:
    """Client 3's personal state in a run without it is what it starts with, whatever the others' data are."""
    case = CASES[name]
    before = case.run([[0, 1], [1, 2]], backend=backend)
    after = case.run([[0, 1], [1, 2]], backend=backend, clients=[constant(CLIENTS[0]), *CLIENTS[1:]])
    assert_unmoved(before.client_state(3), after.client_state(3), "serial")


@both_backends
@pytest.mark.parametrize(
    "algorithm",
    [
        ft.algorithms.fedper(lr=0.3, steps=3, server_lr=0.0),
        ft.algorithms.ditto(lr=0.3, steps=2, server_lr=0.0),
        ft.algorithms.local_only(lr=0.3, steps=3),
    ],
    ids=lambda a: a.name,
)
def test_order_of_first_visits_does_not_matter(backend: str, algorithm: ft.Algorithm) -> None:
    """With a shared model that stands still one visit leaves the same bits, in the first round or in the last."""
    early = run(algorithm, [[2], [0], [3], [1]], backend=backend, start=None, model=SplitNet)
    late = run(algorithm, [[1], [3], [0], [2]], backend=backend, start=None, model=SplitNet)
    for client in range(4):
        assert_unmoved(early.client_state(client), late.client_state(client), "serial")


@both_backends
def test_first_heads_are_derived_from_the_client_alone(backend: str) -> None:
    """Heads drawn for clients that never came are the same in any run, and differ from client to client."""
    algorithm = ft.algorithms.fedper(lr=0.3, steps=3)
    heads = [run(algorithm, cohorts, backend=backend, start=None, model=SplitNet) for cohorts in ([[0]], [[1], [0]])]
    for client in (2, 3):
        assert_unmoved(heads[0].client_state(client), heads[1].client_state(client), "serial")
    assert not torch.equal(heads[0].client_state(2)["head.weight"], heads[0].client_state(3)["head.weight"])
    assert set(COMMON_HEAD) == set(heads[0].client_state(2))
