"""Client optimizers: torch's own numbers, and what becomes of their state between rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client.optimizer_state import PREFIX
from fedtempo.client.optimizers import OPTIMIZERS, Optimizer, adam, adamw, rmsprop, sgd
from fedtempo.contracts import distance, small_data
from fedtempo.errors import ConfigError
from fedtempo.schedules import per_round
from tests.slow import slow_but

Torchs = Callable[..., torch.optim.Optimizer]
PAIRS: dict[str, tuple[Callable[..., Optimizer], Torchs]] = {
    "sgd": (partial(sgd, weight_decay=0.03), partial(torch.optim.SGD, weight_decay=0.03)),
    "momentum": (partial(sgd, 0.9), partial(torch.optim.SGD, momentum=0.9)),
    "nesterov": (
        partial(sgd, 0.8, nesterov=True, weight_decay=0.01),
        partial(torch.optim.SGD, momentum=0.8, nesterov=True, weight_decay=0.01),
    ),
    "adam": (partial(adam, weight_decay=0.02), partial(torch.optim.Adam, weight_decay=0.02)),
    "adamw": (
        partial(adamw, 0.8, 0.95, weight_decay=0.1),
        partial(torch.optim.AdamW, betas=(0.8, 0.95), weight_decay=0.1),
    ),
    "rmsprop": (partial(rmsprop, 0.9, weight_decay=0.01), partial(torch.optim.RMSprop, alpha=0.9, weight_decay=0.01)),
    "rmsprop with momentum": (
        partial(rmsprop, momentum=0.7, centered=True),
        partial(torch.optim.RMSprop, momentum=0.7, centered=True),
    ),
}
LR, STEPS, ROUNDS = 0.02, 4, 3


def one_client() -> ft.data.FederatedData:
    rng = np.random.default_rng(5)
    return ft.data.FederatedData.from_clients(
        [(rng.standard_normal((12, 6)), rng.integers(0, 4, 12))], validation=0, test=0
    )


def start() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def by_torch(make: Torchs, fresh_each_round: bool) -> dict[str, torch.Tensor]:
    """The same steps by a plain loop over torch's own class."""
    model, rows = start(), one_client().client(0, "train", torch.float64)
    optimizer = make(model.parameters(), lr=LR)
    for _ in range(ROUNDS):
        if fresh_each_round:
            optimizer = make(model.parameters(), lr=LR)
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows["x"]), rows["y"]).backward()
            optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def by_us(optimizer: Optimizer, backend: str) -> ft.Result:
    return ft.run(
        model=start(),
        data=one_client(),
        algorithm=ft.algorithms.fedavg(LR, STEPS, optimizer=optimizer),
        rounds=ROUNDS,
        batch_size=None,
        dtype=torch.float64,
        backend=backend,
        evaluation=None,
    )


KINDS = ("reset", "keep", "average")
LOOPS = [(n, s, b) for n in PAIRS for s in ("reset", "keep", "average") for b in ("serial", "vectorised", "processes")]
EVERY_TIME = [
    (name, state, backend)
    for name, state, backend in LOOPS
    if backend == {"reset": "serial", "keep": "vectorised", "average": "serial"}[state] or name == "adamw"
]


@pytest.mark.parametrize(
    "case", slow_but(EVERY_TIME, LOOPS, "every optimizer with every state, and one on every backend, run every time")
)
def test_the_numbers_are_torchs(case: tuple[str, str, str]) -> None:
    """Alone in the cohort, a client that keeps its state, or averages it with nobody, is one long torch loop."""
    name, state, backend = case
    ours, torchs = PAIRS[name]
    expected = by_torch(torchs, fresh_each_round=state == "reset")
    result = by_us(ours(state=state), backend)
    for tensor, number in expected.items():
        torch.testing.assert_close(result.params[tensor], number, rtol=1e-12, atol=1e-12)


SETTINGS = {
    "model": ft.models.mlp(6, [5], 4),
    "data": small_data(),
    "rounds": 3,
    "cohort": 4,
    "batch_size": 4,
    "dtype": torch.float64,
    "evaluation": None,
}


def run(algorithm: ft.Algorithm, **settings: object) -> ft.Result:
    return ft.run(algorithm=algorithm, **{**SETTINGS, **settings})  # type: ignore[arg-type]


def test_kept_state_is_the_clients_own() -> None:
    kept = run(ft.algorithms.fedavg(0.05, 2, optimizer=adam(state="keep")))
    seen = {client for report in kept.history for client in report.clients}
    for client in range(6):
        states = {n: t for n, t in kept.client_state(client).items() if n.startswith(PREFIX)}
        counts = {float(t) for n, t in states.items() if "/count/" in n}
        rounds = sum(client in report.clients for report in kept.history)
        assert counts == {2.0 * rounds}, "a state counts the steps of the client that it belongs to"
    assert len(seen) > 4
    assert kept.history[0].costs.bytes == run(ft.algorithms.fedavg(0.05, 2)).history[0].costs.bytes


def test_averaged_state_travels_and_is_paid_for() -> None:
    plain = run(ft.algorithms.fedavg(0.05, 2))
    averaged = run(ft.algorithms.fedavg(0.05, 2, optimizer=sgd(0.9, state="average")))
    model = sum(t.numel() * 8 for t in plain.params.values())
    per_client = averaged.history[0].costs.bytes_up // 4 - plain.history[0].costs.bytes_up // 4
    assert per_client == model, "one velocity of the model's size goes up"
    assert averaged.history[0].costs.bytes_down - plain.history[0].costs.bytes_down == 4 * model
    assert not averaged.client_state(0)


def test_the_average_of_velocities_by_hand() -> None:
    """Two clients, one step each, f_i = (y - c_i)^2 / 2 from y = 0: u_i = -c_i, so u = -(1 + 3) / 2 = -2, y = 0.2.

    In round two u_i = 0.5 (-2) + (0.2 - c_i), so y = 0.2 - 0.1 (-1 + 0.2 - 2) = 0.48.
    """

    class Point(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.y = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0.5 * (self.y - x).square()

    data = ft.data.FederatedData.from_clients(
        [{"x": np.array([[1.0]])}, {"x": np.array([[3.0]])}], validation=0, test=0
    )
    result = ft.run(
        model=Point(),
        data=data,
        algorithm=ft.algorithms.fedavg(0.1, 1, optimizer=sgd(0.5, state="average")),
        rounds=2,
        loss="direct",
        dtype=torch.float64,
        evaluation=None,
    )
    assert float(result.params["y"]) == pytest.approx(0.48, abs=1e-12)


def test_what_belongs_to_a_personal_tensor_never_leaves() -> None:
    algorithm = ft.algorithms.fedper(0.05, 2, optimizer=adam(state="average"))
    ft.check_algorithm(algorithm)
    result = run(algorithm)
    kept = {n.rsplit("/", 1)[-1] for n in result.client_state(0) if n.startswith(PREFIX)}
    assert kept == {"head.weight", "head.bias"}


BACKBONES: dict[str, Callable[..., ft.Algorithm]] = {
    "fedavg": partial(ft.algorithms.fedavg, 0.05, 2),
    "feddecay": partial(ft.algorithms.feddecay, 0.05, 0.6, 3),
    "feddecay by epochs": partial(ft.algorithms.feddecay, 0.05, 0.6, epochs=2, per="epoch_displacement"),
    "fedprox": partial(ft.algorithms.fedprox, 0.05, 2),
    "scaffold": partial(ft.algorithms.scaffold, 0.05, 2),
    "fedexp": partial(ft.algorithms.fedexp, 0.05, 2),
    "fedadam": partial(ft.algorithms.fedadam, 0.05, 2),
    "fomaml": partial(ft.algorithms.fomaml, 0.05, 2),
    "pflego": partial(ft.algorithms.pflego, 0.05, 0.05, 3),
    "fedper": partial(ft.algorithms.fedper, 0.05, 2),
    "fedrep": partial(ft.algorithms.fedrep, 0.05, 2, 2),
    "fedbabu": partial(ft.algorithms.fedbabu, 0.05, 2),
    "fedrecon": partial(ft.algorithms.fedrecon, 0.05, 0.05, 2, 2),
    "fedrecon_stateful": partial(ft.algorithms.fedrecon_stateful, 0.05, 0.05, 2),
    "ditto": partial(ft.algorithms.ditto, 0.05, 2),
    "pfedme": partial(ft.algorithms.pfedme, 0.01, 0.05, inner_steps=2, local_rounds=2),
    "fedem": partial(ft.algorithms.fedem, 0.05, 2, components=2),
    "local_only": partial(ft.algorithms.local_only, 0.05, 2),
}


STATES = [(name, state) for name in BACKBONES for state in ("reset", "keep", "average")]
OFTEN = [(name, "average") for name in ("scaffold", "fedadam", "pflego", "ditto", "fedem")]
OFTEN += [("fedavg", state) for state in ("reset", "keep")]


@pytest.mark.parametrize(
    "case", slow_but(OFTEN, STATES, "every kind of state, and an averaged one with every mechanism, runs every time")
)
def test_every_backbone_steps_with_adamw(case: tuple[str, str]) -> None:
    name, state = case
    ft.check_algorithm(BACKBONES[name](optimizer=adamw(weight_decay=per_round(0.01, 0.9), state=state)))


@pytest.mark.parametrize("state", ["keep", "average"])
def test_fednar_clips_what_the_optimizer_is_fed(state: str) -> None:
    """One SGD-momentum step under a tiny limit: the velocity is the clipped gradient, however long the gradient."""
    backbone = ft.algorithms.fedavg(1.0, 1, optimizer=sgd(0.9, state="keep"))
    wrapped = ft.algorithms.fednar(backbone, weight_decay=0.1, max_norm=1e-3)
    ft.check_algorithm(wrapped)
    ft.check_algorithm(
        ft.algorithms.fednar(
            ft.algorithms.scaffold(0.05, 2, optimizer=adam(state=state)), weight_decay=0.1, max_norm=0.5
        )
    )
    result = run(wrapped, rounds=1, cohort=6)
    for client in range(6):
        velocity = [t for n, t in result.client_state(client).items() if n.startswith(PREFIX)]
        assert math.sqrt(sum(float(t.square().sum()) for t in velocity)) == pytest.approx(1e-3, rel=1e-12)


def test_a_resumed_run_goes_on_with_the_states(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for state in ("keep", "average"):
        algorithm = ft.algorithms.fedavg(0.05, 2, optimizer=adam(state=state))
        whole = run(algorithm, rounds=4)
        reports = ft.train(algorithm=algorithm, **{**SETTINGS, "rounds": 4}, out=tmp_path / state)
        next(reports), next(reports)
        reports.close()
        again = run(algorithm, rounds=4, out=tmp_path / state, resume=True)
        assert again.digest() == whole.digest()


def test_newcomers_and_fine_tuning_start_afresh() -> None:
    """Serving a user neither needs nor changes the states of training."""
    result = run(ft.algorithms.fedper(0.05, 2, optimizer=adamw(state="keep")))
    before = result.client_state(0)
    rows = result.experiment.federation.problem.client_rows(0)
    result.personalize(rows)
    assert all(torch.equal(t, before[n]) for n, t in result.client_state(0).items())


@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_micro_batches_give_the_batchs_gradient(pieces: int) -> None:
    whole = run(ft.algorithms.fedprox(0.1, 3, mu=0.1), batch_size=5, backend="serial")
    for backend in ("serial", "vectorised"):
        cut = run(ft.algorithms.fedprox(0.1, 3, mu=0.1, accumulate=pieces), batch_size=5, backend=backend)
        assert distance(whole, cut) < 1e-12
        assert cut.history[0].costs == whole.history[0].costs


def test_micro_batches_weigh_rows_as_the_loss_does() -> None:
    """Rows of weights 0 and 3, classes of weights, ignored targets: the pieces' mean is still the batch's."""
    rng = np.random.default_rng(1)
    weights = [rng.choice([0.0, 1.0, 3.0], n) for n in (7, 12, 5)]
    rows = [
        {
            "x": rng.standard_normal((len(w), 6)),
            "y": np.where(w == 1, -100, rng.integers(0, 4, len(w))),
            "sample_weight": w,
        }
        for w in weights
    ]
    data = ft.data.FederatedData.from_clients(rows, validation=0, test=0)
    settings = {"data": data, "loss": ft.tasks.classification(class_weights=[1.0, 2.0, 5.0, 1.0]), "cohort": 3}
    whole = run(ft.algorithms.fedavg(0.1, 3), batch_size=5, backend="serial", **settings)
    for backend in ("serial", "vectorised"):
        cut = run(ft.algorithms.fedavg(0.1, 3, accumulate=3), batch_size=5, backend=backend, **settings)
        assert distance(whole, cut) < 1e-12


def test_micro_batches_are_seen_by_the_model_one_by_one() -> None:
    largest = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.dropout = nn.Linear(6, 4), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            largest.append(len(x)) if self.training else None
            return self.layer(self.dropout(x))

    algorithm = ft.algorithms.fedavg(0.1, 3, accumulate=4)
    ft.check_algorithm(algorithm, model=Watched())
    largest.clear()
    reports = list(
        ft.train(
            model=Watched(),
            data=small_data(),
            algorithm=algorithm,
            rounds=1,
            batch_size=8,
            backend="serial",
            evaluation=None,
        )
    )
    assert reports and max(largest[-20:]) == 2


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: adam(1.0), "b1 must be"),
        (lambda: rmsprop(-0.1), "smoothing must be"),
        (lambda: sgd(nesterov=True), "nesterov must be"),
        (lambda: adamw(weight_decay=-1), "weight_decay must be"),
        (lambda: adamw(weigth_decay=1), "Did you mean 'weight_decay'"),
        (lambda: adam(state="forget"), "state must be 'reset' or 'keep' or 'average'"),
        (lambda: ft.algorithms.fedavg(0.1, 1, optimizer="adam"), "optimizer must be an optimizer"),
        (lambda: ft.algorithms.fedavg(0.1, 1, accumulate=0), "accumulate must be"),
        (lambda: ft.algorithms.fedavg(0.1, 1, momentum=0.9, optimizer=adam()), "momentum must be"),
    ],
)
def test_wrong_settings_are_refused(build, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=words):
        build()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": "kept"}, "state must be 'reset' or 'keep' or 'average'. Got 'kept'."),
        ({"transform": adam()}, "transform must be an ft.Transform of (init, update). Got adam()."),
        ({"transform": lambda g: g}, "transform must be an ft.Transform of (init, update). Got <function"),
        ({"afresh": ["m"]}, "afresh must be a frozenset of slots. Got ['m']."),
    ],
)
def test_an_optimizer_of_your_own_is_checked_too(given, words: str) -> None:  # type: ignore[no-untyped-def]
    """A state that nobody knows was taken for "reset"."""
    with pytest.raises(ConfigError) as told:
        Optimizer(**{"transform": adam().transform, "name": "mine", **given})
    assert words in str(told.value)


def test_every_optimizer_prints_as_its_call() -> None:
    assert repr(ft.algorithms.fedavg(0.1, 2, optimizer=adamw(weight_decay=0.01))) == (
        "fedavg(lr=0.1, steps=2, optimizer=adamw(weight_decay=0.01))"
    )
    assert all(repr(make()) == f"{name}()" for name, make in OPTIMIZERS.items())


def heavy_ball(in_place: bool, state: str) -> Optimizer:
    """Momentum 0.9 that writes its state over, or returns a new one."""

    def init(params: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: torch.zeros_like(value) for name, value in params.items()}

    def update(gradient, momentum, params, now):  # type: ignore[no-untyped-def]
        if in_place:
            moved = {name: value.mul_(0.9).add_(gradient[name]) for name, value in momentum.items()}
        else:
            moved = {name: 0.9 * value + gradient[name] for name, value in momentum.items()}
        return moved, moved

    return Optimizer(ft.Transform(init, update), state=state, name="heavy_ball")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "case",
    slow_but(
        [*(("serial", state) for state in KINDS), ("processes", "average")],
        [(backend, state) for backend in ("serial", "processes") for state in KINDS],
        "a state that all clients get is the one that a worker could spoil",
    ),
)
def test_an_optimizer_may_write_over_its_own_state(case: tuple[str, str]) -> None:
    backend, state = case
    # Averaged states come down to all clients, and what a refused client keeps stays as it was.
    ends = [
        ft.run(
            model=start(),
            data=small_data(),
            algorithm=ft.algorithms.fedavg(lr=LR, steps=2, optimizer=heavy_ball(in_place, state)),
            rounds=4,
            cohort=3,
            faults=ft.Faults(nan=0.4),
            evaluation=None,
            progress=False,
            dtype=torch.float64,
            backend=backend,
            workers=2 if backend == "processes" else None,
        )
        for in_place in (True, False)
    ]
    assert ends[0].digest() == ends[1].digest()
