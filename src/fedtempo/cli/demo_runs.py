"""The one-minute demonstration: what clients do between two aggregations, for similar and very different users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from fedtempo.algorithms import Algorithm, fedavg, feddecay, fednar, fedsgd, local_only, pflego
from fedtempo.data import FederatedData, dirichlet, load
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.models import mlp
from fedtempo.schedules import decaying_k
from fedtempo.study import Budget, from_functions, make_plan, tune_alike
from fedtempo.study.driver import PendingRun, perform_all
from fedtempo.support.accelerator import CPU
from fedtempo.support.files import sole_user
from fedtempo.training.loop import drained
from fedtempo.training.run import train
from fedtempo.training.view import Run
from fedtempo.tuning.space import dimensions_of

ROUNDS, SEEDS, STEPS = 40, 8, 10
DIFFERENT, SIMILAR = 0.1, 10.0
"""Dirichlet's alpha: how differently the digits are spread over users."""
BETAS = (0.0, 0.4, 0.8, 1.0)
BY_BETA = {0.0: "FedSGD", **{beta: f"FedDecay {beta:g}" for beta in BETAS[1:-1]}, 1.0: "FedAvg"}
"""FedDecay from one end to the other: beta = 0 is FedSGD, beta = 1 is FedAvg."""
FINE_TUNING = 0.1
"""The rate of everybody's fine-tuning, so that it measures the model and not the rate that trained it."""

MAKERS: dict[str, Callable[..., Algorithm]] = {
    "FedSGD": lambda lr: fedsgd(lr=lr),
    "FedDecay 0.4": lambda lr: feddecay(lr=lr, beta=0.4, steps=STEPS),
    "FedDecay 0.8": lambda lr: feddecay(lr=lr, beta=0.8, steps=STEPS),
    "FedAvg": lambda lr: fedavg(lr=lr, steps=STEPS),
    "FedNAR": lambda lr: fednar(fedavg(lr=lr, steps=STEPS), weight_decay=0.01, max_norm=1.0),
    "decaying K": lambda lr: fedavg(lr=lr, steps=decaying_k(STEPS, 0.96)),
    "PFLEGO": lambda head_lr, server_lr: pflego(head_lr=head_lr, server_lr=server_lr, steps=STEPS),
    "local only": lambda lr: local_only(lr=lr, steps=STEPS, newcomer_rounds=5),
}
RANGES: dict[str, Any] = {
    "lr": {"log": [0.02, 5.12]},
    "head_lr": {"log": [0.02, 5.12]},
    "server_lr": {"log": [0.02, 5.12]},
}
TUNED: Mapping[float, Mapping[str, Mapping[str, float]]] = {
    DIFFERENT: {
        "FedSGD": {"lr": 0.9051},
        "FedDecay 0.4": {"lr": 0.9051},
        "FedDecay 0.8": {"lr": 0.9051},
        "FedAvg": {"lr": 0.4525},
        "FedNAR": {"lr": 0.4525},
        "decaying K": {"lr": 0.4525},
        "PFLEGO": {"head_lr": 1.81, "server_lr": 0.4525},
        "local only": {"lr": 0.4525},
    },
    SIMILAR: {
        "FedSGD": {"lr": 0.9051},
        "FedDecay 0.4": {"lr": 1.81},
        "FedDecay 0.8": {"lr": 0.9051},
        "FedAvg": {"lr": 0.9051},
    },
}
"""What `fedtempo demo --tune --out tuned` found: the best of eight trials each, on two other seeds."""


@dataclass(frozen=True)
class DemoRun:
    """One run of the demo, as the table and the page need it."""

    label: str
    alpha: float
    seed: int
    run: Run


def demo_data(seed: int, alpha: float) -> FederatedData:
    """Digits among 40 clients, Dirichlet(alpha) over classes, a fifth of the clients held out as new users."""
    return load("digits").split(dirichlet(clients=40, alpha=alpha), new_clients=0.2, seed=seed, min_samples=5)


def settings_for(rounds: int, device: str = CPU) -> dict[str, Any]:
    """What all runs have in common."""
    return {
        "model": mlp(64, [64], 10),
        "rounds": rounds,
        "cohort": 0.25,
        "batch_size": 16,
        "evaluation": Evaluation(every=max(1, rounds // 4), lr=FINE_TUNING),
        "backend": "vectorised",
        "device": device,
    }


@dataclass(frozen=True)
class DemoJob:
    """A contestant with its rate, a kind of users and a seed, for the driver of all studies."""

    label: str
    alpha: float
    seed: int
    rounds: int
    command: str
    device: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.label}, alpha {self.alpha:g}, seed {self.seed}"

    def done(self) -> bool:
        """Nothing is kept: the whole demo takes less than a minute."""
        return False

    def perform(self) -> DemoRun:
        """Train, and return what the table and the page need."""
        algorithm = MAKERS[self.label](**TUNED[self.alpha][self.label])
        data = demo_data(self.seed, self.alpha)
        settings = {**settings_for(self.rounds, self.device), "data": data, "algorithm": algorithm, "seed": self.seed}
        result = drained(train(**settings, progress=False))
        result.history = [replace(report, params={}) for report in result.history]
        return DemoRun(self.label, self.alpha, self.seed, Run.of(result, self.label, self.command).drawn())


def run_demo(
    rounds: int, seeds: int, workers: int, announce: Callable[[int, int], None], device: str = CPU
) -> list[DemoRun]:
    """Every contestant on every seed, in as many processes as there are workers; `announce` gets how many are done."""
    command = f"fedtempo demo --rounds {rounds} --seeds {seeds}"
    jobs = [
        DemoJob(label, alpha, seed, rounds, command, device)
        for seed in range(seeds)
        for alpha, tuned in TUNED.items()
        for label in tuned
    ]
    found: dict[PendingRun, object] = {}
    # Forked: the contestants are functions of this module that need not be sent.
    failed = perform_all(jobs, workers, False, lambda done, total, name: announce(done, total), take=found.__setitem__)
    if failed:
        raise failed[0]
    return [cast(DemoRun, found[job]) for job in jobs]


def tune_demo(
    out: Path, rounds: int, workers: int, observe: Callable[[int, int, str], None], device: str = CPU
) -> dict[float, dict[str, Mapping[str, float]]]:
    """The best rates of every contestant: eight trials each, the same rounds, two seeds that the demo does not show."""
    found: dict[float, dict[str, Mapping[str, float]]] = {}
    for alpha, contestants in TUNED.items():
        folder = out / f"alpha-{alpha:g}"
        settings = {**settings_for(rounds, device), "data": _data_of(alpha)}
        makers = {label: MAKERS[label] for label in contestants}
        names = {name for label in contestants for name in contestants[label]}
        ranges = dimensions_of({name: RANGES[name] for name in RANGES if name in names})
        tunables = from_functions(makers, ranges, settings)
        plan = make_plan(tunables, Budget(trials=8, tuning_seeds=2, seeds=SEEDS, widen=0))
        with sole_user(folder, "tune.lock"):
            plan.write(folder)
            tuned, failed = tune_alike(tunables, plan, folder, workers, observe)
        if failed:
            raise failed[0]
        found[alpha] = {label: one.values for label, one in tuned.items()}
    return found


def _data_of(alpha: float) -> Callable[[int], FederatedData]:
    return lambda seed: demo_data(seed, alpha)


def by_label(runs: Sequence[DemoRun], alpha: float) -> dict[str, list[DemoRun]]:
    """The runs of one kind of users, by contestant."""
    found: dict[str, list[DemoRun]] = {}
    for one in runs:
        if one.alpha == alpha:
            found.setdefault(one.label, []).append(one)
    return found
