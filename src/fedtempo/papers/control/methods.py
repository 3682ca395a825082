"""Every way to control local work in one comparison: rates, numbers of steps, corrections, and their baselines.

Each method has one number that is tuned, by the same number of candidates on the same seeds: the clients' rate, or what
takes its place (Delta-SGD's first rate, the bound of FedSPS). Everything else has the value of its paper or, where that
depends on the model's size, one that was fixed before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fedtempo.algorithms import (
    Algorithm,
    clip_then_decay,
    delta_sgd,
    fedavg,
    fedcm,
    feddecay,
    feddecsps,
    feddyn,
    fedexp,
    fedhyper_client,
    fedhyper_global,
    fedhyper_server,
    fednar,
    fednova,
    fedprox,
    fedsam,
    fedsps,
    scaffold,
    stop_early,
)
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.control.adaptive import beta_by_agreement, decay_by_norms, k_by_own_loss, uneven_steps
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.definitions import (
    FIRST_TUNING_SEED,
    Data,
    Measure,
    Measured,
    Model,
    PaperRun,
    Scale,
    Training,
    TunedSetting,
    Tuning,
)
from fedtempo.papers.framework.measures import costs, learning, users
from fedtempo.schedules import decaying_k, per_round, qsr
from fedtempo.theory import total_local_steps
from fedtempo.training.result import Result

USERS = "existing_after"
FEDAVG, UNEVEN, DECAYED, CLIPPED = "FedAvg", "FedAvg, uneven K", "FedAvg, decaying rate", "FedAvg, clip then decay"
FEDDECAY, DELTA, SPS, DECSPS = "FedDecay", "Delta-SGD", "FedSPS", "FedDecSPS"
GLOBAL, SERVER, CLIENT = "FedHyper-G", "FedHyper-SL", "FedHyper-CL"
FEWER, QSR, STOP, NOVA = "decaying K", "QSR", "stop early", "FedNova, uneven K"
NAR, PROX, SCAFFOLD, DYN, CM, SAM, EXP = "FedNAR", "FedProx", "SCAFFOLD", "FedDyn", "FedCM", "FedSAM", "FedExP"
BETA, OWN_K, OWN_DECAY = "beta by agreement", "K by own loss", "decay by norms"
BASELINES = {NAR: CLIPPED, NOVA: UNEVEN, QSR: DECAYED, OWN_DECAY: CLIPPED}
"""What a method is compared with where it differs from FedAvg in more than one thing; all others with FedAvg."""
LEAST = 0.2
"""Decaying K and decaying rates end at this share of their first value."""
WEIGHT_DECAY = 0.01

Maker = Callable[[float, Scale], Algorithm]


def _decaying(rate: float, scale: Scale) -> Algorithm:
    return fedavg(per_round(rate, LEAST ** (1 / scale["rounds"])), scale["k"])


def _fewer_steps(rate: float, scale: Scale) -> Algorithm:
    return fedavg(rate, decaying_k(scale["k"], LEAST ** (1 / scale["rounds"])))


def _synchronised(rate: float, scale: Scale) -> Algorithm:
    """K grows from a half to twice that of the others as the rate falls."""
    k, lr = scale["k"], per_round(rate, LEAST ** (1 / scale["rounds"]))
    first = max(1, k // 2)
    return fedavg(lr, qsr(lr, alpha=rate * math.sqrt(first), k_base=first, most=2 * k))


def _clipped(wrap: Callable[..., Algorithm], rate: float, scale: Scale) -> Algorithm:
    return wrap(fedavg(rate, scale["k"]), weight_decay=WEIGHT_DECAY, max_norm=scale["max_norm"])


METHODS: Mapping[str, Maker] = {
    FEDAVG: lambda rate, scale: fedavg(rate, scale["k"]),
    UNEVEN: lambda rate, scale: fedavg(rate, uneven_steps(scale["k"])),
    DECAYED: _decaying,
    CLIPPED: partial(_clipped, clip_then_decay),
    FEDDECAY: lambda rate, scale: feddecay(rate, 0.9, scale["k"]),
    DELTA: lambda rate, scale: delta_sgd(fedavg(rate, scale["k"]), gamma=2.0, delta=0.1),
    SPS: lambda rate, scale: fedsps(fedavg(rate, scale["k"])),
    DECSPS: lambda rate, scale: feddecsps(fedavg(10 * rate, scale["k"])),
    GLOBAL: lambda rate, scale: fedhyper_global(fedavg(rate, scale["k"])),
    SERVER: lambda rate, scale: fedhyper_server(fedavg(rate, scale["k"]), relative=True),
    CLIENT: lambda rate, scale: fedhyper_client(fedavg(rate, scale["k"]), step=0.01 * rate),
    FEWER: _fewer_steps,
    QSR: _synchronised,
    STOP: lambda rate, scale: stop_early(fedavg(rate, scale["k"]), relative=0.5),
    NOVA: lambda rate, scale: fednova(rate, uneven_steps(scale["k"])),
    NAR: partial(_clipped, fednar),
    PROX: lambda rate, scale: fedprox(rate, scale["k"], mu=0.01),
    SCAFFOLD: lambda rate, scale: scaffold(rate, scale["k"]),
    DYN: lambda rate, scale: feddyn(rate, scale["k"], alpha=0.01),
    CM: lambda rate, scale: fedcm(rate, scale["k"], alpha=0.1),
    SAM: lambda rate, scale: fedsam(fedavg(rate, scale["k"]), rho=0.05),
    EXP: lambda rate, scale: fedexp(rate, scale["k"]),
    BETA: lambda rate, scale: beta_by_agreement(rate, scale["k"]),
    OWN_K: lambda rate, scale: fedavg(rate, k_by_own_loss(scale["k"])),
    OWN_DECAY: lambda rate, scale: decay_by_norms(rate, scale["k"], 0.05),
}
"""From a rate and a scale to the algorithm, by label."""


def control_tuning(rates: Sequence[float], seeds: int = 1, rounds: int | None = None) -> Tuning:
    """The same candidates for every method, chosen by validation rows; in so many rounds, if not in all."""
    contestants = {label: TunedSetting(label, tuple(rates)) for label in METHODS}
    tuned_on = tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + seeds))
    return Tuning(contestants, f"{USERS}/best", seeds=tuned_on, settings={} if rounds is None else {"rounds": rounds})


def equal_steps(scale: Scale) -> float:
    """What decaying K takes in all rounds: scores are also compared where every method has taken so many steps."""
    fewer = decaying_k(scale["k"], LEAST ** (1 / scale["rounds"]))
    cohort: int = scale["cohort"]
    return float(cohort * total_local_steps(fewer, scale["rounds"]))


def rounds_run(result: Result) -> Measured:
    """`rounds`: how many rounds were run until validation stopped improving; `selected`: the round that is tested."""
    evaluated = [report.round + 1 for report in result.history if report.scores is not None]
    best = learning(result, USERS).curves[USERS].y
    return Measured({"rounds": len(result.history), "selected": evaluated[max(range(len(best)), key=best.__getitem__)]})


def control_trainings(scale: Scale, seed: int, data: Data, model: Model, **more: object) -> Sequence[PaperRun]:
    """One run for every method. Nobody fine-tunes: what is controlled is the training of one model."""
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": scale["batch"],
        "seed": seed,
        "evaluation": Evaluation(every=scale["every"], users=scale["users"], steps=0, patience=scale["patience"]),
        **more,
    }
    budget = partial(at_budgets, group=USERS, budgets={"steps": equal_steps(scale)})
    measures: tuple[Measure, ...] = (costs, users, partial(learning, group=USERS), rounds_run, budget)
    return [
        Training(label, data, model, make(scale.rate(label, scale["rate"]), scale), settings, measures)
        for label, make in METHODS.items()
    ]
