"""Fine-tuning and `personalize` do what the algorithm does, and every argument is obeyed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo import algorithms as known
from fedtempo.client import transforms
from fedtempo.client.phase import Phase, length
from fedtempo.evaluation.serving import fine_tuning_in_words, served_phases
from fedtempo.params import matching, submodule
from fedtempo.training.prepare import prepare
from tests.one_weight import OneWeight, clients_of
from tests.slow import slow_but
from tests.zoo import ALGORITHMS, MECHANISMS


def data(validation: float = 0.0) -> ft.data.FederatedData:
    rng = np.random.default_rng(3)
    clients = [(rng.standard_normal((20, 6)), rng.integers(0, 4, 20)) for _ in range(5)]
    return ft.data.FederatedData.from_clients(clients, validation=validation, test=validation, new_clients=1)


def run(algorithm: ft.Algorithm, **changes) -> ft.Result:
    given = {"model": ft.models.mlp(6, [5], 4), "data": data(), "rounds": 2, "dtype": torch.float64, "batch_size": 5}
    return ft.run(**{**given, "evaluation": None, **changes}, algorithm=algorithm)


def moved(result: ft.Result, **arguments) -> set[str]:
    """The tensors that serving a new user moves, from where it starts."""
    rows = result.experiment.federation.problem.client_rows(0)
    served, start = result.personalize(rows, **arguments), result.personalize(rows, steps=0)
    after, before = {**served.shared, **served.personal}, {**start.shared, **start.personal}
    return {name for name in after if not torch.equal(after[name], before[name])}


def test_a_run_that_trains_some_tensors_fine_tunes_these():
    phase = Phase(length(2), ft.schedules.constant(0.1), trains=matching("body.1.*"))
    result = run(ft.Algorithm((phase,)))
    assert moved(result) == moved(result, steps=3, lr=0.05) == {"body.1.weight", "body.1.bias"}


@pytest.mark.parametrize("arguments", [{}, {"steps": 3}, {"epochs": 2, "lr": 0.05}, {"lr": 0.01}])
def test_fedreps_body_stays_frozen_whatever_is_said(arguments):
    result = run(known.fedrep(lr=0.1, head_steps=2, body_steps=2))
    assert moved(result, **arguments) == {"head.weight", "head.bias"}


def test_steps_set_the_length_of_dittos_own_phase():
    """With a huge proximal term and a small rate the personal model hardly leaves the shared one."""
    weak, strong = (run(known.ditto(lr=0.01, steps=2, lam=lam)) for lam in (0.0, 80.0))
    distances = []
    for result in (weak, strong):
        served = result.personalize(result.experiment.federation.problem.client_rows(0), steps=50)
        gap = sum(float((served.personal[n] - result.params[n]).square().sum()) for n in result.params)
        distances.append(gap**0.5)
    assert distances[1] < 0.2 * distances[0]


def test_fedrecon_obeys_steps_and_rate():
    result = run(known.fedrecon(lr=0.1, head_lr=0.1, head_steps=2))
    assert moved(result, steps=0) == set()
    rows = result.experiment.federation.problem.client_rows(0)
    heads = [result.personalize(rows, **a).personal["head.weight"] for a in ({}, {"steps": 9}, {"lr": 0.5})]
    assert not torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_one_step_of_fine_tuning_is_the_algorithms_step_by_hand():
    """FedNAR: x - lr * min(1, A / |g + w x|) (g + w x), all rows in one batch."""
    algorithm = known.fednar(known.fedavg(lr=0.3, steps=1), weight_decay=0.2, max_norm=0.05)
    result = run(algorithm, batch_size=None)
    rows = result.experiment.federation.problem.client_rows(0)
    model = ft.models.mlp(6, [5], 4).double()
    model.load_state_dict(result.params)
    nn.functional.cross_entropy(model(rows["x"]), rows["y"]).backward()
    direction = {n: p.grad + 0.2 * p.detach() for n, p in model.named_parameters()}
    norm = torch.sqrt(sum(d.square().sum() for d in direction.values()))
    served = result.personalize(rows, steps=1).shared
    for name, parameter in model.named_parameters():
        expected = parameter.detach() - 0.3 * min(1.0, 0.05 / float(norm)) * direction[name]
        torch.testing.assert_close(served[name], expected, rtol=1e-12, atol=1e-12)


def test_new_users_of_a_wrapped_algorithm_are_clipped_too():
    wrapped = known.fednar(known.ditto(lr=0.1, steps=2), weight_decay=0.1, max_norm=0.5)
    assert all(phase.direction.schedules for phase in wrapped.serving.newcomer_phases)


@pytest.mark.parametrize(
    "name",
    slow_but([*MECHANISMS, "apfl of outputs"], sorted(ALGORITHMS), "one algorithm of every mechanism runs every time"),
)
def test_the_protocol_is_obeyed_by_every_algorithm(name):
    experiment = prepare(model=ft.models.mlp(6, [5], 4), data=data(), rounds=2, algorithm=ALGORITHMS[name])
    now = experiment.federation.problem.now(0, 1.0)
    protocol = ft.Evaluation(steps=7, lr=0.0125, trains="head")
    for newcomers in (False, True):
        phases, _ = served_phases(experiment.federation, protocol, newcomers)
        for phase in phases:
            assert phase.length.steps(now, 20, experiment.federation.problem.batching) == 7
            assert phase.lr.at(now) == 0.0125
            assert repr(phase.trains) == repr(submodule("head"))


def test_fine_tuning_never_decays_unless_it_is_told_to():
    lr = ft.schedules.per_step(0.1, 0.5)
    experiment = run(known.fedper(lr=lr, steps=2)).experiment
    now = experiment.federation.problem.now(0, 1.0)
    for newcomers in (False, True):
        (phase,), _ = served_phases(experiment.federation, ft.Evaluation(steps=3), newcomers)
        rates = [phase.lr.at(place) for place in phase.positions(now, 20, experiment.federation.problem.batching)]
        assert rates == [0.1] * 3
        (phase,), _ = served_phases(experiment.federation, ft.Evaluation(steps=3, decays=True), newcomers)
        rates = [phase.lr.at(place) for place in phase.positions(now, 20, experiment.federation.problem.batching)]
        assert rates == [0.1, 0.05, 0.025]


def test_a_decay_of_displacements_is_left_out_or_obeyed():
    algorithm = known.feddecay(lr=0.1, beta=0.5, epochs=2, per="epoch_displacement")
    scores = []
    for decays in (False, True):
        protocol = ft.Evaluation(every=2, epochs=3, decays=decays)
        scores.append(run(algorithm, evaluation=protocol).scores.existing_after.values["loss"])
    assert not np.allclose(scores[0], scores[1])


def test_the_result_says_what_fine_tuning_was_and_when_it_does_harm():
    result = run(known.fedavg(lr=0.1, steps=2), evaluation=ft.Evaluation(epochs=2, lr=0.05), data=data(0.3))
    assert "fine-tuning: 2 epochs at lr 0.05 on everything" in result.notes
    digits = ft.data.load("digits").split(ft.data.dirichlet(20, 0.3), seed=0, min_samples=10)
    settings = {"model": ft.models.mlp(64, [32], 10), "data": digits, "rounds": 20}
    harmed = ft.run(**settings, algorithm=known.fedsgd(lr=0.5), evaluation=ft.Evaluation(steps=20, lr=5.0))
    assert any(note.startswith("warning: fine-tuning made existing users worse") for note in harmed.notes)
    fine = ft.run(**settings, algorithm=known.fedsgd(lr=0.5), evaluation=ft.Evaluation(steps=1, lr=0.01))
    assert not any(note.startswith("warning") for note in fine.notes)


def test_words_name_the_objective_and_the_direction():
    federation = run(known.fednar(known.fedprox(lr=0.1, steps=2, mu=0.5), weight_decay=0.1, max_norm=2.0)).experiment
    words = fine_tuning_in_words(federation.federation, ft.Evaluation())
    assert words == (
        "1 epoch at lr 0.1 on everything, objective proximal, "
        "the algorithm's own direction (weight_decay 0.1, max_norm 2)"
    )


@pytest.mark.parametrize(
    ("lr", "said"),
    [
        (ft.schedules.constant(0.1) * ft.schedules.per_step(1.0, 0.6), "0.1"),
        (ft.schedules.per_round(0.1, 0.5) * ft.schedules.per_step(1.0, 0.6), "per_round(value=0.1, factor=0.5)"),
        (ft.schedules.sequence([0.3, 0.1]), "0.3"),
    ],
)
def test_words_name_the_rate_of_fine_tuning_and_not_that_of_a_round(lr: ft.schedules.Schedule, said: str):
    """Fine-tuning keeps the rate of the first step, so no decay inside a round is named."""
    federation = run(known.fedavg(lr=lr, steps=2)).experiment.federation
    assert fine_tuning_in_words(federation, ft.Evaluation()) == f"1 epoch at lr {said} on everything"
    assert repr(lr) in fine_tuning_in_words(federation, ft.Evaluation(decays=True))
    feddecay = run(known.feddecay(lr=0.1, beta=0.5, steps=2, travel="equal")).experiment.federation
    assert fine_tuning_in_words(feddecay, ft.Evaluation()) == "1 epoch at lr 0.1 on everything"


def test_fedbabu_fine_tunes_the_head_that_training_left_alone():
    assert "head.weight" in moved(run(known.fedbabu(lr=0.1, steps=2)))


def test_momentum_is_part_of_fine_tuning():
    plain, heavy = (run(known.fedavg(lr=0.1, steps=2, momentum=m)) for m in (0.0, 0.9))
    phases = served_phases(heavy.experiment.federation, ft.Evaluation(), False).phases
    assert phases[0].direction is not transforms.identity
    (phase,) = served_phases(plain.experiment.federation, ft.Evaluation(), False).phases
    assert phase.direction is transforms.identity


@pytest.mark.parametrize("relative", [False, True])
def test_a_rate_from_the_server_is_used_unless_the_protocol_sets_one(relative: bool) -> None:
    """One row of 7: a step at the rate l moves the weight by 2 l (7 - w)."""
    algorithm = known.fedhyper_server(known.fedavg(lr=0.05, steps=2), relative=relative)
    settings = {"batch_size": None, "dtype": torch.float64, "evaluation": None, "backend": "serial"}
    result = ft.run(model=OneWeight(), data=clients_of([1.0], [3.0]), algorithm=algorithm, rounds=3, **settings)
    newest, start = 0.05 * float(result.server_state["hyper"]["factor"]), float(result.params["w"])
    assert newest > 0.055
    for given, rate in (({}, newest), ({"lr": 0.02}, 0.02)):
        served = result.personalize((np.ones((1, 1)), np.array([[7.0]])), steps=1, **given)
        assert float(served.shared["w"]) == pytest.approx(start + 2 * rate * (7.0 - start), abs=1e-12)
