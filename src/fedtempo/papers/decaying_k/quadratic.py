"""Figure 1 of the decaying-K paper: a quadratic problem on which constant K stops short of the minimiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtempo.algorithms import Algorithm, fedavg
from fedtempo.data import load, natural
from fedtempo.models.quadratic import quadratic
from fedtempo.schedules import Rate, decaying_k, decaying_lr
from fedtempo.training.run import train

CLIENT_LR = 0.1
COHORT = 10
START = 0.4


@dataclass(frozen=True)
class QuadraticCurve:
    """The global model after every round of one setting, averaged over runs, and the local steps of one client."""

    label: str
    x: list[float]
    steps: int


def settings(server_lr: float = 0.01) -> dict[str, Algorithm]:
    """The curves of panels (a) and (b).

    The text says eta = 0.001 with the mean of 10 clients, with which no curve comes near the minimiser in 3,000 rounds;
    0.01, which is their sum, gives the printed figure. The K of the decaying-gamma curve is not stated; it is 10 here.
    """

    def scheme(lr: Rate, steps: Rate) -> Algorithm:
        return fedavg(lr=lr, steps=steps, server_lr=server_lr)

    curves = {f"K = {k}": scheme(CLIENT_LR, k) for k in (1, 10, 20)}
    curves["K = 10, gamma decays by 0.995"] = scheme(decaying_lr(CLIENT_LR, 0.995), 10)
    for rate in (0.99, 0.995, 0.9995):
        curves[f"K = 10 decays by {rate}"] = scheme(CLIENT_LR, decaying_k(10, rate))
    return curves


def figure_1(rounds: int = 3000, runs: int = 10, clients: int = 1000, server_lr: float = 0.01) -> list[QuadraticCurve]:
    """Run every curve on the library's engine: one sample z per client, ten clients a round, x_1 = 0.4."""
    return [_curve(label, algorithm, rounds, runs, clients) for label, algorithm in settings(server_lr).items()]


def _curve(label: str, algorithm: Algorithm, rounds: int, runs: int, clients: int) -> QuadraticCurve:
    totals, steps = [0.0] * rounds, 0
    for seed in range(runs):
        data = load("quadratic", clients=clients, seed=seed).split(natural(), validation=0.0, test=0.0)
        reports = train(
            model=quadratic(START),
            data=data,
            algorithm=algorithm,
            rounds=rounds,
            cohort=COHORT,
            batch_size=1,
            seed=seed,
            loss="direct",
            dtype=torch.float64,
            evaluation=None,
            progress=False,
        )
        for report in reports:
            totals[report.round] += float(report.params["x"])
            steps = report.total_costs.steps // COHORT
    return QuadraticCurve(label, [value / runs for value in totals], steps)
