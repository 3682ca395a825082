"""Costs: bytes, steps and operations worked out by hand for a small network."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.federation.costs import Costs, Ledger, OperationCounter, measured_stages
from fedtempo.params import select
from fedtempo.training.prepare import prepare
from tests import zoo

# mlp(6, [5], 4): 6*5 + 5 + 5*4 + 4 = 59 parameters of 4 bytes.
PARAMETERS = 59
BODY, HEAD = 2 * 6 * 5, 2 * 5 * 4  # multiply-adds of one row, forward


def run(algorithm: ft.Algorithm, clients: list[tuple[object, object]], **settings: object) -> ft.Result:
    data = ft.data.FederatedData.from_clients(clients)  # type: ignore[arg-type]
    defaults = {"rounds": 2, "cohorts": [[1, 3]], "batch_size": 4, "evaluation": None}
    return ft.run(model=ft.models.mlp(6, [5], 4), data=data, algorithm=algorithm, **{**defaults, **settings})


def test_fedavg(clients) -> None:  # type: ignore[no-untyped-def]
    """Clients of 12 and 16 rows, one epoch of batches of 4: 3 + 4 steps, 28 rows. Backward is twice forward, but the
    first layer needs no gradient for its input: one BODY less."""
    costs = run(a.fedavg(lr=0.1, epochs=1), clients).history[0].costs
    assert (costs.bytes_down, costs.bytes_up) == (2 * 4 * PARAMETERS, 2 * 4 * PARAMETERS)
    assert (costs.steps, costs.samples) == (7, 28)
    assert costs.flops == 28 * (2 * BODY + 3 * HEAD)


def test_costs_add_up_over_rounds(clients) -> None:  # type: ignore[no-untyped-def]
    result = run(a.fedavg(lr=0.1, steps=3), clients)
    assert result.costs == result.history[0].costs + result.history[1].costs


def test_scaffold_sends_twice_as_much(clients) -> None:  # type: ignore[no-untyped-def]
    costs = run(a.scaffold(lr=0.1, steps=1), clients).history[0].costs
    assert (costs.bytes_down, costs.bytes_up) == (2 * 8 * PARAMETERS, 2 * 8 * PARAMETERS)


def test_heads_are_not_sent(clients) -> None:  # type: ignore[no-untyped-def]
    costs = run(a.fedper(lr=0.1, steps=1), clients).history[0].costs
    assert costs.bytes_up == costs.bytes_down == 2 * 4 * (PARAMETERS - 24)
    frozen = run(a.fedbabu(lr=0.1, steps=1), clients).history[0].costs
    assert frozen.bytes_up == 2 * 4 * (PARAMETERS - 24)
    assert run(a.local_only(lr=0.1, steps=1), clients).costs.bytes == 0


@pytest.mark.parametrize("tau", [2, 10, 50])
def test_pflego_passes_through_the_body_twice_whatever_tau_is(clients, tau: int) -> None:  # type: ignore[no-untyped-def]
    """One forward pass for the features, one forward and backward for the joint gradient."""
    rows = 28
    costs = run(a.pflego(head_lr=0.1, server_lr=0.1, steps=tau), clients, rounds=1).history[0].costs
    body_passes = BODY + 2 * BODY
    head_passes = (tau - 1) * 2 * HEAD + 3 * HEAD
    assert costs.flops == rows * (body_passes + head_passes)
    fedper = run(a.fedper(lr=0.1, steps=tau), clients, rounds=1, batch_size=None).history[0].costs
    assert fedper.flops == rows * tau * (2 * BODY + 3 * HEAD)


def test_steps_saved_by_decaying_k(clients) -> None:  # type: ignore[no-untyped-def]
    result = run(a.fedavg(lr=0.1, steps=ft.schedules.decaying_k(4, 0.5)), clients, rounds=3)
    assert [r.costs.steps for r in result.history] == [8, 4, 2]
    assert [r.costs.steps_saved for r in result.history] == [0, 4, 6]
    assert result.costs.steps_saved == 10


@pytest.mark.parametrize("kind", ["mlp", "cnn", "batchnorm", "gru"])
def test_operations_are_those_torch_counts(kind: str) -> None:
    """Our counter against torch's own, forward and backward."""
    model, inputs = zoo.model(kind), torch.randn(4, *zoo.SHAPES[kind])
    with OperationCounter() as ours:
        model(inputs).sum().backward()
    with FlopCounterMode(display=False) as theirs:
        model(inputs).sum().backward()
    assert ours.operations == theirs.get_total_flops() > 0


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "pflego", "fedrep", "delta-sgd", "fedem"])
def test_a_run_charges_what_the_checks_have_counted(name: str) -> None:
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS[name]}
    experiment = prepare(**settings, rounds=2)
    shared, server = experiment.first_shared, experiment.federation.algorithm.server
    extra = server.extra(server.init(select(shared, experiment.federation.stepped_names)))
    assert experiment.operations == tuple(measured_stages(experiment.federation, shared, extra))
    assert sum(stage.step + stage.enter for stage in experiment.operations) > 0


def test_a_ledger_counts_clients_of_one_size_at_once(clients) -> None:  # type: ignore[no-untyped-def]
    result = run(zoo.ALGORITHMS["fedrep"], clients)
    federation = result.experiment.federation
    ledger = Ledger(federation, result.params, {})
    one_by_one = sum((ledger.clients([client], result.now) for client in (0, 1, 2, 0, 0)), Costs())
    assert ledger.clients([0, 1, 2, 0, 0], result.now) == one_by_one
