"""What a wrapper does at the server comes behind what the algorithm makes of the mean upload."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.contracts import distance, small_data

SETTINGS: dict[str, Any] = {
    **{"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 3, "cohort": 6, "batch_size": 4},
    **{"dtype": torch.float64, "backend": "serial", "evaluation": None, "progress": False},
}


def run(algorithm: ft.Algorithm, **settings: Any) -> ft.Result:
    return ft.run(algorithm=algorithm, **{**SETTINGS, **settings})


SAME = {
    "fednova with equal steps": a.fednova(0.1, 3, weighting="uniform"),
    "q_fedavg with q = 0": a.q_fedavg(0.1, 3, q=0.0),
    "one weight for all": a.loss_weighted(a.fedavg(0.1, 3), weigh=lambda loss: 10.0 + 0 * loss),
}
HYPER = {"global": a.fedhyper_global, "server": a.fedhyper_server, "client": a.fedhyper_client}
# FedNova normalises by the rates, which clients choose under FedHyper-CL: there it is not FedAvg.
CASES = [
    (name, wrapper) for name in SAME for wrapper in HYPER if not (name.startswith("fednova") and wrapper == "client")
]


@pytest.mark.parametrize(("name", "wrapper"), CASES)
def test_fedhyper_sees_the_displacement_that_the_server_steps_on(name: str, wrapper: str) -> None:
    """Each of these is FedAvg, so FedHyper around it is FedHyper around FedAvg."""
    plain = run(a.fedavg(0.1, 3))
    assert distance(plain, run(SAME[name])) <= 1e-12
    wrap = HYPER[wrapper]
    assert distance(run(wrap(a.fedavg(0.1, 3))), run(wrap(SAME[name]))) <= 1e-12


def test_the_mean_of_models_is_of_the_decayed_ones() -> None:
    """After one round AFL serves the mean of one model: the one that the server has."""
    result = run(a.server_decay(a.afl(0.1, weights_lr=0.01), decay=0.5), rounds=1)
    served, shared = result.served("last"), result.last.shared
    for name, tensor in shared.items():
        torch.testing.assert_close(served[name], tensor)


def test_a_history_of_what_clients_sent_bears_no_change_of_it() -> None:
    wrapped = ((a.fedinit, a.feddyn), (a.loss_weighted, a.feddyn), (a.loss_weighted, a.fedspeed))
    for wrap, algorithm in wrapped:
        with pytest.raises(ft.ConfigError, match="the mean of all clients' memories"):
            wrap(algorithm(0.1, 2))
    assert a.fedinit(a.feddyn(0.1, 2), sends="displacements").name == "fedinit"


@pytest.mark.parametrize("algorithm", [a.feddecay(0.1, 0.5, epochs=2, per="epoch_displacement"), a.pfedme()])
def test_a_client_does_not_stop_inside_steps_that_belong_together(algorithm: ft.Algorithm) -> None:
    with pytest.raises(ft.ConfigError, match="which steps belong together"):
        a.stop_early(algorithm, gradient=1.0)


def test_fedem_over_all_clients_needs_weights_that_absent_clients_have() -> None:
    with pytest.raises(ft.ConfigError, match="weighting must be 'samples' or 'uniform' over all clients"):
        a.fedem(0.1, 2, over="all", weighting="processed")


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_round_at_rate_zero_leaves_control_variates_as_they_are(backend: str) -> None:
    rests = a.scaffold(lambda now: 0.0 if now.round == 2 else 0.1, 3)
    two, three = (run(rests, rounds=rounds, backend=backend) for rounds in (2, 3))
    for name, tensor in two.server_state["control"].items():
        torch.testing.assert_close(three.server_state["control"][name], tensor)
    assert max(float(t.abs().max()) for t in two.server_state["control"].values()) > 0.01
    for client in range(6):
        for name, tensor in two.client_state(client).items():
            torch.testing.assert_close(three.client_state(client)[name], tensor)


class Tied(nn.Module):
    """The head has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Linear(6, 6), nn.Linear(6, 6)
        self.head.weight = self.emb.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.emb(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("algorithm", [a.fedper(0.1, 1), a.fedbabu(0.1, 1)])
def test_a_tied_tensor_is_not_personal_under_one_of_its_names(algorithm: ft.Algorithm) -> None:
    with pytest.raises(ft.ConfigError, match=r"tied weights under all their names, '(emb|head)\.weight'"):
        run(algorithm, model=Tied())
    assert run(a.fedavg(0.1, 1), model=Tied()).params


class Noted(nn.Module):
    """Has tensors with the names of what algorithms note."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 4)
        self.alpha = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("seen", torch.tensor(7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)) * self.alpha)  # type: ignore[no-any-return]


def test_a_models_names_do_not_meet_the_notes_of_algorithms() -> None:
    mixed = run(a.apfl(0.1, 2, adaptive=True), model=Noted(), rounds=1)
    own = mixed.client_state(0)
    assert 0 <= float(own["<alpha>"]) <= 1 and own["alpha"].shape == ()
    for wrap in (a.fedinit, a.fedlesam):
        plain, noted = (run(wrap(a.fedavg(0.1, 2)), model=model, init="model") for model in models())
        for name in ("body.weight", "head.weight", "alpha"):
            torch.testing.assert_close(noted.params[name], plain.params[name])


def models() -> list[nn.Module]:
    """The same weights, with a buffer of that name and with another one."""
    torch.manual_seed(0)
    noted = Noted()
    other = Noted()
    other.load_state_dict(noted.state_dict())
    del other.seen
    other.register_buffer("other", torch.tensor(7.0))
    return [other, noted]


ROBUST = {"median": ft.robust.median(), "trimmed": ft.robust.trimmed_mean(0.2), "bounded": ft.robust.norm_bounded(1.0)}


@pytest.mark.parametrize("name", ROBUST)
def test_what_a_robust_mean_would_not_see_is_refused(name: str) -> None:
    for algorithm in (a.fedexp(0.1, 2), a.scaffold(0.1, 2), a.fedcm(0.1, 2), a.feddyn(0.1, 2)):
        with pytest.raises(ft.ConfigError, match="aggregator must be the plain mean for"):
            run(algorithm, aggregator=ROBUST[name])
    if name != "bounded":
        with pytest.raises(ft.ConfigError, match="weighting must be 'uniform' for"):
            run(a.fedavg(0.1, 2, weighting="samples"), aggregator=ROBUST[name])


def test_a_median_is_of_statistics_too() -> None:
    """One client's inputs are a million times as large, and so would be the mean of BatchNorm's variances."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 6)) * (1e6 if i == 0 else 1), rng.integers(0, 4, 8)) for i in range(5)]
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))
    settings = {"model": model, "data": ft.data.FederatedData.from_clients(clients), "cohort": 5, "batch_size": None}
    plain = run(a.fedavg(0.01, 2), **settings)
    robust = run(a.fedavg(0.01, 2), **settings, aggregator=ft.robust.median())
    assert float(plain.params["1.running_var"].max()) > 1e6
    assert float(robust.params["1.running_var"].max()) < 10
