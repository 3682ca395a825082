"""An attack on the private mean by somebody who knows the seed and every published file, and how well it does.

One client, the canary, either takes part with data that make its upload as long as the bound, or does not count. All
others upload nothing. The attacker sees the model after one round. Whoever can tell the two worlds apart at a rate of
true and false alarms beyond what (epsilon, delta) allows has shown that the guarantee is false.

    python -m tests.faults.distinguishing     the larger figures
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import fedtempo as ft
from fedtempo.randomness import seed_for
from fedtempo.server import robust
from fedtempo.server.noise import fresh_secret
from fedtempo.server.private_mean import clipped, private_aggregate
from fedtempo.server.sums import BlockSum
from tests.later import Later

stats = Later("scipy.stats")
BOUND, CLIENTS, SEED = 1.0, 4, 0
LOUD, SILENT, OPPOSITE = 100.0, 0.0, -100.0


def world(canary: float) -> ft.data.FederatedData:
    """Three silent clients and the canary; at a weight of 0 its gradient is a multiple of its target."""
    rows = [(np.ones((2, 1)), np.full((2, 1), value)) for value in (*[0.0] * (CLIENTS - 1), canary)]
    return ft.data.FederatedData.from_clients(rows)


def one_round(data: ft.data.FederatedData, noise: float, cohort: object) -> float:
    """How far the only weight moved in one private round, in units of the bound on the sum."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    result = ft.run(
        model=model,
        init="model",
        data=data,
        algorithm=ft.algorithms.fedavg(lr=1.0, steps=1),
        rounds=1,
        cohort=cohort,
        evaluation=None,
        aggregator=robust.private_mean(BOUND, noise),
        seed=SEED,
        dtype=torch.float64,
        backend="serial",
    )
    return result.params["weight"].item() * expected(cohort) / BOUND


def expected(cohort: object) -> float:
    if isinstance(cohort, ft.cohort.Cohort):
        return cohort.expected(ft.Now(clients=CLIENTS), CLIENTS)
    return float(CLIENTS if cohort == 1.0 else cohort)  # type: ignore[arg-type]


def predicted(noise: float) -> float:
    """The noise of the first round as it would follow from the run's seed, in units of the bound."""
    random = torch.Generator().manual_seed(seed_for(SEED, "noise", 0))
    return noise * torch.randn((1, 1), generator=random, dtype=torch.float64).item()


Attack = Callable[[np.ndarray], np.ndarray]


def attacks(noise: float) -> tuple[Attack, ...]:
    """Score the sum itself, and its distance from what would be left without the noise that the seed predicts."""
    return (lambda seen: seen, lambda seen: -np.abs(seen - predicted(noise) - 1.0))


def lower_bound(without: np.ndarray, with_canary: np.ndarray, delta: float, confidence: float = 0.99) -> float:
    """The epsilon that these scores prove, by Clopper and Pearson's intervals; large scores say "it took part".

    The threshold is chosen on one half of the runs and judged on the other. Both orders of the worlds are tried, so
    each of the four intervals may fail with a quarter of what confidence leaves.
    """
    choose = [half[::2] for half in (without, with_canary)]
    judge = [half[1::2] for half in (without, with_canary)]
    alpha = (1 - confidence) / 4

    def proven(world_0: np.ndarray, world_1: np.ndarray, threshold: float) -> float:
        bounds = []
        for alarms_0, alarms_1 in (
            ((world_0 > threshold).sum(), (world_1 > threshold).sum()),
            ((world_1 <= threshold).sum(), (world_0 <= threshold).sum()),
        ):
            false = stats.beta.ppf(1 - alpha, alarms_0 + 1, len(world_0) - alarms_0) if alarms_0 < len(world_0) else 1.0
            true = stats.beta.ppf(alpha, alarms_1, len(world_1) - alarms_1 + 1) if alarms_1 else 0.0
            bounds.append(math.log((true - delta) / false) if true > delta else -math.inf)
        return max(bounds)

    candidates = np.quantile(np.concatenate(choose), np.linspace(0.02, 0.98, 49))
    best = max(candidates, key=lambda threshold: proven(*choose, threshold))
    return proven(*judge, best)


Play = Callable[[float, float, object, int], np.ndarray]


def runs(canary: float, noise: float, cohort: object, count: int) -> np.ndarray:
    data = world(canary)
    return np.array([one_round(data, noise, cohort) for _ in range(count)])


def rounds_alone(canary: float, noise: float, cohort: object, count: int) -> np.ndarray:
    """The same without the run around it: a fresh key, the cohort it draws, clipped uploads, the noised sum."""
    rule = cohort if isinstance(cohort, ft.cohort.Cohort) else ft.cohort.uniform(cohort)  # type: ignore[arg-type]
    like = {"weight": (torch.Size([1, 1]), torch.float64)}
    upload = {"delta": clipped({"weight": torch.full((1, 1), canary, dtype=torch.float64)}, BOUND, noise)}
    everybody, now, seen = np.arange(CLIENTS), ft.Now(clients=CLIENTS), np.empty(count)
    for index in range(count):
        secret, block = fresh_secret(), BlockSum()
        if CLIENTS - 1 in rule.choose(everybody, now, secret.cohort_seed):
            block.add_upload(upload)
        aggregate = private_aggregate(block, like, noise * BOUND, secret, 0, expected(cohort))
        seen[index] = aggregate.means["delta"]["weight"].item() * expected(cohort) / BOUND
    return seen


def proven_epsilon(count: int, noise: float, cohort: object, absent: float, delta: float, play: Play = runs) -> float:
    """The best of the attacks, from so many rounds of each world."""
    without, present = play(absent, noise, cohort, count), play(LOUD, noise, cohort, count)
    return max(lower_bound(score(without), score(present), delta) for score in attacks(noise))


CASES = {
    "everybody, add-remove": (1.0, SILENT, ("none", "add-remove", 1.0)),
    "everybody, replace-one": (1.0, OPPOSITE, ("none", "replace-one", 1.0)),
    "Poisson, a half": (ft.cohort.bernoulli(0.5), SILENT, ("poisson", "add-remove", 0.5)),
    "fixed size, two of four": (2, OPPOSITE, ("fixed-size", "replace-one", 0.5)),
}


def accounted(noise: float, how: tuple[str, str, float], delta: float) -> float:
    sampling, adjacency, rate = how
    return robust.epsilon(noise, 1, rate, delta, sampling=sampling, adjacency=adjacency)  # type: ignore[arg-type]


if __name__ == "__main__":
    import sys

    whole, alone = (int(text) for text in (sys.argv[1:] or ["2000", "100000"]))
    for deviation in (1.0, 4.0):
        for name, (rule, other, how) in CASES.items():
            said = accounted(deviation, how, 1e-5)
            found = [
                proven_epsilon(count, deviation, rule, other, 1e-5, play)
                for count, play in ((whole, runs), (alone, rounds_alone))
            ]
            print(
                f"noise {deviation:g}, {name}: proven {found[0]:.2f} by runs, {found[1]:.2f} by rounds, "
                f"accounted {said:.2f}",
                flush=True,
            )
