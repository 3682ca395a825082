"""What no paper ran on one clock: decaying K and FedDecay against time on phones, FedBuff against rounds that wait.

Scores are compared where the same time has passed on the devices, and where the same energy has been used. Every method
has its own learning rate at medium scale, tuned with the same budget on seeds that are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedtempo.algorithms import Algorithm, fedavg, feddecay
from fedtempo.data import natural
from fedtempo.devices import Devices, classes, log_normal, phones
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import (
    Column,
    Curve,
    Data,
    Measure,
    Measured,
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
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.measures import AXES, learning
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.schedules import decaying_k, finish_by, over_time
from fedtempo.server.asynchrony import fedasync, fedbuff
from fedtempo.training.result import Result

USERS, NEW = "existing_after", "new_after"
RATES = (0.03, 0.1, 0.3)
LEAST_K = 0.2
"""Decaying K ends at this share of the first K."""
BETA = 0.95
POINTS = 25
"""Of a curve against time."""
SECONDS_PER_STEP = 0.1
FEDAVG, ROUNDS, TIME, DECAY, BOTH, TOGETHER = (
    *("FedAvg", "decaying K by round", "decaying K by time", "FedDecay"),
    *("FedDecay + decaying K by time", "all finish together"),
)
WAIT, DEADLINE, OVER, BUFFER, MIXING = (*("waits for everybody", "deadline", "over-selection", "FedBuff", "FedAsync"),)


def devices_spent(result: Result) -> Measured:
    """Seconds and joules of the devices in the whole run."""
    return Measured({"time": result.time, "energy": result.energy})


def at_clock(result: Result, group: str, budgets: Mapping[str, float]) -> Measured:
    """As `at_budgets`, but not a number where the budget was spent before the first evaluation.

    A slow method would otherwise be judged by a score that it reached later.
    """
    first = next(report for report in result.history if report.scores is not None)
    known = at_budgets(result, group, budgets).values
    early = {f"{group}/at_{axis}" for axis, budget in budgets.items() if AXES[axis](first) > budget}
    return Measured({name: math.nan if name in early else value for name, value in known.items()})


def against_time(result: Result, seconds: float) -> Measured:
    """The curve `by time`: existing users' score at evenly spaced times, the same ones for every run and seed."""
    reports = [report for report in result.history if report.scores is not None]
    scores = [
        report.scores.groups()[USERS].summary(report.scores.metric)["mean"] for report in reports if report.scores
    ]
    times = np.linspace(0.0, seconds, POINTS)[1:]
    found = np.interp(times, [report.total_time for report in reports], scores)
    return Measured(curves={"by time": Curve(tuple(times.tolist()), tuple(found.tolist()))})


def straggling() -> Devices:
    """Nine phones in ten are alike within a third; the tenth is twenty times as slow."""
    usual = log_normal(SECONDS_PER_STEP, 0.3, down=2e6, up=5e5, joules_per_step=0.2, joules_per_byte=5e-7)
    slow = log_normal(20 * SECONDS_PER_STEP, 0.3, down=5e5, up=1e5, joules_per_step=0.5, joules_per_byte=5e-7)
    return classes([(0.9, usual), (0.1, slow)])


def _phone_methods(scale: Scale) -> Mapping[str, Algorithm]:
    k, seconds = scale["k"], scale["seconds"]
    by_time = over_time(k, LEAST_K, seconds)
    rates = {label: scale.rate(label, 0.1) for label in (FEDAVG, ROUNDS, TIME, DECAY, BOTH, TOGETHER)}
    return {
        FEDAVG: fedavg(rates[FEDAVG], k),
        ROUNDS: fedavg(rates[ROUNDS], decaying_k(k, LEAST_K ** (1 / scale["rounds"]))),
        TIME: fedavg(rates[TIME], by_time),
        DECAY: feddecay(rates[DECAY], BETA, k),
        BOTH: feddecay(rates[BOTH], BETA, by_time),
        TOGETHER: fedavg(rates[TOGETHER], finish_by(k * SECONDS_PER_STEP, most=4 * k)),
    }


def _phone_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        _training(scale, seed, label, algorithm, {"devices": phones(SECONDS_PER_STEP)})
        for label, algorithm in _phone_methods(scale).items()
    ]


def _straggler_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    k, fleet = scale["k"], straggling()
    versions, buffer = 2 * scale["rounds"], max(1, scale["cohort"] // 2)
    rules: Mapping[str, dict[str, Any]] = {
        WAIT: {},
        DEADLINE: {"deadline": 3 * k * SECONDS_PER_STEP},
        OVER: {"over_selection": 0.3},
        # Evaluated after as many uploads as the others: two buffers are a cohort.
        BUFFER: {"asynchrony": fedbuff(buffer), "rounds": versions, "every": 2 * scale["every"]},
        MIXING: {"asynchrony": fedasync(0.6), "rounds": versions * buffer, "every": 2 * scale["every"] * buffer},
    }
    return [
        _training(scale, seed, label, fedavg(scale.rate(label, 0.1), k), {"devices": fleet, **rule})
        for label, rule in rules.items()
    ]


def _training(scale: Scale, seed: int, label: str, algorithm: Algorithm, rule: Mapping[str, Any]) -> PaperRun:
    every = rule.get("every", scale["every"])
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": 16,
        "seed": seed,
        "evaluation": Evaluation(every=every, users=scale["users"], lr=0.03),
        **{name: value for name, value in rule.items() if name != "every"},
    }
    budgets = {"time": scale["seconds"], "energy": scale["joules"]}
    scored: list[Measure] = [partial(at_clock, group=group, budgets=budgets) for group in (USERS, NEW)]
    measures: tuple[Measure, ...] = (devices_spent, learning, partial(against_time, seconds=scale["seconds"]), *scored)
    data = Data("mnist", natural(scale["clients"]), seed, {"new_clients": 0.2, "validation": 0.2, "test": 0.2})
    return Training(label, data, Model("mlp", {"hidden": [scale["hidden"]]}), algorithm, settings, measures)


COLUMNS = {
    f"{USERS}/at_time": score_column("existing users, equal time"),
    f"{NEW}/at_time": score_column("new users, equal time"),
    f"{USERS}/at_energy": score_column("existing users, equal energy"),
    f"{USERS}/best": score_column("best of the run"),
    "time": Column("seconds of the run", ".0f"),
    "energy": Column("joules of the run", ".0f"),
}
NOTES = (
    "No paper has these numbers. The claims are our questions.",
    "Times and energies are those of simulated devices in round figures, and of nobody's phones.",
    "Scores are of validation rows, after an epoch's fine-tuning at a rate of 0.03. Between two evaluations they are"
    " interpolated at the budget of seconds or joules; a run that spends less counts with its last. A curve begins with"
    " its first evaluation's score.",
)


SMOKE: dict[str, Any] = {"rounds": 4, "cohort": 3, "every": 2, "clients": 5, "hidden": 4, "k": 4, "users": 3}
SMALL: dict[str, Any] = {"rounds": 60, "cohort": 5, "every": 5, "clients": 30, "hidden": 32, "k": 10, "users": None}
WHOLE: dict[str, Any] = {**SMALL, "rounds": 500, "cohort": 20, "every": 10, "clients": 539, "hidden": 200, "k": 20}


def _scales(*labels: str, minutes: float, **medium: float) -> dict[str, Scale]:
    """Smoke, small, medium (tuned: the size is the study's own) and the whole data set.

    Rates are tuned for what is judged: the score at equal time.
    """
    tuning = Tuning({label: TunedSetting(label, RATES) for label in labels}, f"{USERS}/at_time")
    sizes = {**SMALL, "cohort": 10, "clients": 80, **medium}
    return {
        "smoke": sized(seeds=1, minutes=0.2, seconds=4.0, joules=4.0, **SMOKE),
        "small": sized(seeds=3, minutes=3, seconds=120.0, joules=400.0, **SMALL),
        "medium": sized(seeds=5, minutes=minutes, tuning=tuning, settling=Settling(USERS, 0.01), **sizes),
        "paper": sized(seeds=5, minutes=1500, seconds=2000.0, joules=20000.0, **WHOLE),
    }


def _figure(title: str) -> Curves:
    return Curves("time", "by time", Axes(title, "seconds of the devices", "accuracy, existing users"))


PHONES = Reproduction(
    name="clock-phones",
    paper="clock",
    source="Phones of three classes",
    title="decaying K and FedDecay against time",
    scales=_scales(
        *(FEDAVG, ROUNDS, TIME, DECAY, BOTH, TOGETHER), minutes=5, rounds=80, every=5, seconds=150.0, joules=500.0
    ),
    runs=_phone_runs,
    columns=COLUMNS,
    claims=(
        Claim("Decaying K by round is ahead of FedAvg at equal time.", higher(ROUNDS, FEDAVG, f"{USERS}/at_time")),
        Claim("Decaying K by time is ahead of FedAvg at equal time.", higher(TIME, FEDAVG, f"{USERS}/at_time")),
        Claim("FedDecay is ahead of FedAvg at equal time, for new users.", higher(DECAY, FEDAVG, f"{NEW}/at_time")),
        Claim("Both together are ahead of FedDecay alone at equal time.", higher(BOTH, DECAY, f"{USERS}/at_time")),
        Claim("Steps that finish together are ahead of equal steps.", higher(TOGETHER, FEDAVG, f"{USERS}/at_time")),
        Claim("Decaying K by time is ahead of FedAvg at equal energy.", higher(TIME, FEDAVG, f"{USERS}/at_energy")),
    ),
    figures=(_figure("Phones"),),
    notes=NOTES,
)

STRAGGLERS = Reproduction(
    name="clock-stragglers",
    paper="clock",
    source="One slow phone in ten",
    title="FedBuff and FedAsync against synchronous rounds",
    scales=_scales(*(WAIT, DEADLINE, OVER, BUFFER, MIXING), minutes=5, rounds=50, every=2, seconds=100.0, joules=500.0),
    runs=_straggler_runs,
    columns=COLUMNS,
    claims=(
        Claim("FedBuff is ahead of rounds that wait, at equal time.", higher(BUFFER, WAIT, f"{USERS}/at_time")),
        Claim(
            "FedBuff is ahead of rounds with a deadline, at equal time.", higher(BUFFER, DEADLINE, f"{USERS}/at_time")
        ),
        Claim("FedBuff is ahead of over-selection, at equal time.", higher(BUFFER, OVER, f"{USERS}/at_time")),
        Claim("FedBuff is ahead of FedAsync, at equal time.", higher(BUFFER, MIXING, f"{USERS}/at_time")),
        Claim("FedBuff is ahead of rounds that wait, for new users.", higher(BUFFER, WAIT, f"{NEW}/at_time")),
    ),
    figures=(_figure("One slow phone in ten"),),
    notes=NOTES,
)

REPRODUCTIONS = (PHONES, STRAGGLERS)
