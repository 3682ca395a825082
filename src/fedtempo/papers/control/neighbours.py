"""Every other method with one shared model on digits: starts, directions, weights of clients and server's steps.

Each has one tuned number with four candidates, as the controls have. It is the clients' rate, or the server's where the
server divides by a running mean of squares and so undoes the length of the clients' steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedtempo.algorithms import (
    afl,
    diloco,
    fedadagrad,
    fedadamw,
    fedavg,
    fedinit,
    fedlesam,
    fedmuon,
    fedsgd,
    fedspeed,
    fedyogi,
    loss_weighted,
    moon,
    q_fedavg,
    q_fedsgd,
    reptile,
    server_decay,
)
from fedtempo.data import dirichlet
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.control.judging import (
    AT_STEPS,
    END,
    EQUAL_STEPS,
    GAIN,
    GAIN_AT_STEPS,
    NEW,
    TRAINED,
    ahead,
    control_gains,
)
from fedtempo.papers.control.methods import FEDAVG, USERS, Maker, rounds_run
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import (
    Column,
    Data,
    Measure,
    Model,
    PaperRun,
    Scale,
    Settling,
    Training,
    TunedSetting,
    Tuning,
    score_column,
    sized,
)
from fedtempo.papers.framework.figures import Points, Sweep
from fedtempo.papers.framework.measures import costs, learning, users
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

INIT, SPEED, LESAM, MOON = "FedInit", "FedSpeed", "FedLESAM", "MOON"
ADAMW, MUON, DILOCO = "FedAdamW", "FedMuon", "DiLoCo"
SGD, Q_AVG, Q_SGD, AFL, BY_LOSS = "FedSGD", "q-FedAvg", "q-FedSGD", "AFL", "weights by loss"
REPTILE, YOGI, ADAGRAD, DECAYED = "Reptile", "FedYogi", "FedAdagrad", "server decay"
FAIR = (Q_AVG, Q_SGD, AFL, BY_LOSS)
"""Methods for the users who are served worst; they are also judged by the bottom decile."""
BASELINES = {Q_SGD: SGD, AFL: SGD}
"""Who takes one step on all rows is compared with FedSGD, which does too; all others with FedAvg."""
CLIENT_RATE = 0.15
"""Of clients whose server's rate is tuned."""

METHODS: Mapping[str, Maker] = {
    FEDAVG: lambda rate, scale: fedavg(rate, scale["k"]),
    INIT: lambda rate, scale: fedinit(fedavg(rate, scale["k"]), beta=0.1),
    SPEED: lambda rate, scale: fedspeed(rate, scale["k"], pull=0.1, rho=0.1),
    LESAM: lambda rate, scale: fedlesam(fedavg(rate, scale["k"]), rho=0.05),
    MOON: lambda rate, scale: moon(rate, scale["k"], mu=1.0, weighting="uniform"),
    ADAMW: lambda rate, scale: fedadamw(rate, scale["k"]),
    MUON: lambda rate, scale: fedmuon(rate, scale["k"]),
    SGD: lambda rate, scale: fedsgd(rate, full_batch=True),
    Q_AVG: lambda rate, scale: q_fedavg(rate, scale["k"], q=1.0),
    Q_SGD: lambda rate, scale: q_fedsgd(rate, q=1.0),
    AFL: lambda rate, scale: afl(rate, weights_lr=0.1),
    BY_LOSS: lambda rate, scale: loss_weighted(fedavg(rate, scale["k"]), power=1.0),
    REPTILE: lambda rate, scale: reptile(rate, scale["k"], server_lr=0.5),
    YOGI: lambda rate, scale: fedyogi(CLIENT_RATE, scale["k"], server_lr=rate),
    ADAGRAD: lambda rate, scale: fedadagrad(CLIENT_RATE, scale["k"], server_lr=rate),
    DILOCO: lambda rate, scale: diloco(rate, scale["k"]),
    DECAYED: lambda rate, scale: server_decay(fedavg(rate, scale["k"]), decay=0.001),
}
"""From the tuned number and a scale to the algorithm, by label."""
CONTENDERS = [label for label in METHODS if label != FEDAVG]
RATES = (0.05, 0.15, 0.45, 1.35)
OTHER_RATES = {
    **dict.fromkeys((ADAMW, MUON), (0.001, 0.003, 0.01, 0.03)),
    DILOCO: (0.0003, 0.001, 0.003, 0.01),
    **dict.fromkeys((YOGI, ADAGRAD), (0.01, 0.03, 0.1, 0.3)),
}
"""Steps of AdamW and Muon have a length of their own, so their rates are smaller; FedYogi's and FedAdagrad's are the
server's."""
WORST = f"{USERS}/bottom_decile"
AMONG_WORST = "for the worst-served tenth"

COLUMNS = {
    END: score_column("test accuracy"),
    GAIN: score_column("gain over FedAvg", "+.3f", of_one_run=False),
    WORST: score_column("bottom decile"),
    NEW: score_column("new users"),
    AT_STEPS: Column("validation accuracy at equal steps", margin=0.01),
    GAIN_AT_STEPS: Column("gain over FedAvg", "+.3f"),
    "rounds": Column("rounds", ".0f"),
    "selected": Column("tested round", ".0f"),
    "steps": Column("local steps", ".0f"),
}
CLAIMS = (
    *(
        Claim(ahead(label, baseline, where), higher(label, baseline, column))
        for label in CONTENDERS
        for baseline in (BASELINES.get(label, FEDAVG),)
        for where, column in ((TRAINED, END), (EQUAL_STEPS, AT_STEPS))
    ),
    *(
        Claim(ahead(label, baseline, AMONG_WORST), higher(label, baseline, WORST))
        for label in FAIR
        for baseline in dict.fromkeys((BASELINES.get(label, FEDAVG), FEDAVG))
    ),
)


def mixed_digits(scale: Scale, seed: int) -> Data:
    """The digits of `control-digits`, mixed by Dirichlet(0.3)."""
    division = {"new_clients": 0.2, "validation": scale["validation"], "test": 0.2, "min_samples": 10}
    return Data("digits", dirichlet(scale["clients"], 0.3), seed, division, rows=scale["rows"])


DIGITS_MODEL = Model("mlp", {"inputs": 64, "hidden": [32], "outputs": 10})


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": scale["batch"],
        "seed": seed,
        "evaluation": Evaluation(every=scale["every"], users=scale["users"], steps=0, patience=scale["patience"]),
    }
    steps = float(scale["cohort"] * scale["k"] * max(1, scale["rounds"] // 10))
    budget = partial(at_budgets, group=USERS, budgets={"steps": steps})
    measures: tuple[Measure, ...] = (costs, users, partial(learning, group=USERS), rounds_run, budget)
    return [
        Training(
            label,
            mixed_digits(scale, seed),
            DIGITS_MODEL,
            make(scale.rate(label, _middle(label)), scale),
            settings,
            measures,
        )
        for label, make in METHODS.items()
    ]


def _candidates(label: str) -> tuple[float, ...]:
    return OTHER_RATES.get(label, RATES)


def _middle(label: str) -> float:
    """The number where nothing is tuned."""
    return _candidates(label)[1]


def digits_tuning(candidates: Mapping[str, tuple[float, ...]]) -> Tuning:
    """Every label with its candidates, chosen by existing users' validation rows on a seed that is not judged."""
    contestants = {label: TunedSetting(label, values) for label, values in candidates.items()}
    return Tuning(contestants, f"{USERS}/best")


SMOKE: dict[str, Any] = {
    **{"rounds": 2, "cohort": 2, "every": 2, "users": 2, "k": 2, "patience": None, "validation": 0.0},
    **{"batch": 16, "clients": 5, "rows": 400},
}
SMALL: dict[str, Any] = {**SMOKE, "rounds": 60, "cohort": 5, "every": 20, "users": None, "k": 10, "clients": 20}
MEDIUM: dict[str, Any] = {**SMALL, "rounds": 600, "every": 10, "patience": 4, "validation": 0.15, "rows": None}
LONG: dict[str, Any] = {**MEDIUM, "rounds": 2000, "clients": 40}
CONVERGED = Settling(USERS, within=0.01)


def digits_scales(candidates: Mapping[str, tuple[float, ...]], minutes: Sequence[float]) -> dict[str, Scale]:
    """Smoke, small, medium and paper on digits; the last two are tuned."""
    protocol: dict[str, Any] = {"tuning": digits_tuning(candidates), "settling": CONVERGED}
    smoke, small, medium, paper = minutes
    return {
        "smoke": sized(seeds=1, minutes=smoke, **SMOKE),
        "small": sized(seeds=2, minutes=small, **{**SMALL, "rows": None}),
        "medium": sized(seeds=10, minutes=medium, **MEDIUM, **protocol),
        "paper": sized(seeds=10, minutes=paper, **LONG, **protocol),
    }


def by_method(name: str, column: str, title: str, of: Sequence[str]) -> Sweep:
    """A column of every method, side by side."""
    places = {float(place): label for place, label in enumerate(of)}
    return Sweep(
        name, column, Axes(title, "method", "gain over FedAvg", reference=0.0, ticks=tuple(of)), {name: places}
    )


NOTES = (
    "No paper has these numbers. The claims are our questions.",
    "Data, network, cohort and K are those of `control-digits`. Validation is looked at every ten rounds and a run "
    "ends after four looks without a better one, because methods with one step a round need more rounds.",
    "Every method has one tuned number with four candidates: the clients' rate; for FedYogi and FedAdagrad the "
    "server's, with a client rate of 0.15. DiLoCo's server has 0.7 and Nesterov momentum 0.9, Reptile's server rate is "
    "0.5 (with 1 it is FedAvg). FedInit's beta is 0.1, FedSpeed's pull and rho 0.1, FedLESAM's rho 0.05, MOON's mu 1, "
    "q 1, AFL's rate of weights 0.1, server decay 0.001 a round; weights by loss are `loss_weighted` with power 1. All "
    "others have the library's defaults, which are the papers'. Clients count equally.",
    "FedSGD, q-FedSGD and AFL take one step a round on all rows of a client, as in their papers; the last two are "
    "compared with FedSGD. AFL serves the mean of all its models.",
    "Equal steps are those of a tenth of the rounds with K steps; a run that has ended keeps its last score.",
)

NEIGHBOURS = Reproduction(
    name="control-neighbours",
    paper="control",
    source="Digits",
    title="starts, directions, weights and server's steps",
    scales=digits_scales({label: _candidates(label) for label in METHODS}, (0.1, 1, 15, 60)),
    runs=_runs,
    columns=COLUMNS,
    claims=CLAIMS,
    figures=(
        by_method("gain", GAIN, "Digits: trained", CONTENDERS),
        Points("steps", "steps", END, Axes("Digits: accuracy and work", "local steps of the run", "test accuracy")),
    ),
    derive=control_gains,
    notes=NOTES,
)
