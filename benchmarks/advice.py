"""Does advice pay? An adviser looks at one split; what it suggests is then compared fairly on another.

`fedtempo advise` once made these suggestions. It no longer does, because of this test and that of `stored_advice`; the
rules live on here, so that both can be repeated.

    python -m benchmarks.advice digits-0.1 digits-1 digits-10 femnist --out advice

Everybody's rate is tuned alike, on seeds that are not judged. The advised beta and K decay stand against FedAvg, and
the advised beta also against a beta that anybody would take without looking. All seeds are judged on one split that the
adviser has not seen; with --redraw every seed draws its own. What is done already in the folder is not done again.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedtempo as ft
from fedtempo.client.phase import Length
from fedtempo.schedules import Now, decaying_k
from fedtempo.theory import Measurements, beta_for_ratio, drift, measure

STEPS, LR = 10, 0.3
"""Local steps, and the rate that the adviser is told."""
LOOKED_AT, JUDGED_ON = 2_000_000, 3_000_000
"""The seeds of the split that the adviser looks at, and of the one that is judged."""
UNSEEN_BETA = 0.6
"""What the FedDecay papers' grids have in the middle."""

TOLERATED_DRIFT = 0.1
"""Local steps may change the balance between clients by this share before K is made smaller."""
SMALLEST_BETA = 0.2
"""The smallest beta that the FedDecay papers found best; at 0 all local steps but the first would do nothing."""
FEWEST_DIGITS = 5
"""Decimals of a suggested decay of K; it gets more where fewer would not bring K to where it should go."""


@dataclass(frozen=True)
class Suggestion:
    """What the adviser suggests."""

    beta: float
    """FedDecay's within-round factor: 0 is FedSGD, 1 is FedAvg."""
    k_decay: float
    """d in K_t = ceil(K_0 d^t); 1 keeps K."""


def suggested(measurements: Measurements) -> Suggestion:
    """Beta and K decay by plain rules, made from the papers' theory without a look at any result.

    * beta: R is set to `disagreement` times FedAvg's R (FedDecay: similar clients want small R, diverse ones large),
      but beta never goes below 0.2.
    * K decay: K falls, over the first half of the rounds, to the largest K whose drift is at most 0.1.

    A disagreement that can't be told counts as 0, as it did when the rules were tested.
    """
    share = measurements.disagreement
    known = measurements if share is not None else replace(measurements, disagreement=0.0)
    return Suggestion(_beta(known), _k_decay(known))


def last_steps(measurements: Measurements) -> int:
    """The largest K, of those planned, whose `drift` is tolerated; 1 always is."""
    allowed = (k for k in range(measurements.steps, 1, -1) if (drift(measurements, k) or 0.0) <= TOLERATED_DRIFT)
    return next(allowed, 1)


def _beta(m: Measurements) -> float:
    if m.steps == 1:
        return 1.0
    return max(SMALLEST_BETA, round(beta_for_ratio((m.disagreement or 0.0) * m.ratio, m.steps, m.lr), 2))


def _k_decay(m: Measurements) -> float:
    """The decay that brings K to `last_steps` after half of the rounds, with as few digits as that takes."""
    half, last = max(1, m.rounds // 2), last_steps(m)
    exact = float((last / m.steps) ** (1 / half))
    for digits in range(FEWEST_DIGITS, 18):
        # Rounded up, a decay may leave K one step above what is wanted; rounded down, many steps may end up below.
        unit = 10.0**-digits
        for decay in (round(exact, digits), round(math.floor(exact / unit) * unit, digits)):
            if 0 < decay <= 1 and Length(decaying_k(m.steps, decay)).units(Now(round=half)) == last:
                return decay
    return exact


@dataclass(frozen=True)
class Federation:
    """Data of a seed, a model, and how long it is trained."""

    data: Callable[[int], ft.data.FederatedData]
    model: Callable[[], Any]
    rounds: int
    cohort: float


def digits(alpha: float, seed: int) -> ft.data.FederatedData:
    """Digits among 40 users, a fifth of them new."""
    split = ft.data.dirichlet(clients=40, alpha=alpha)
    return ft.data.load("digits").split(split, new_clients=0.2, seed=seed, min_samples=5)


def femnist(seed: int) -> ft.data.FederatedData:
    """The writers of the FEMNIST sample; a fifth of them are new, others in every seed."""
    return ft.data.load("femnist").split(ft.data.natural(), new_clients=0.2, seed=seed)


FEDERATIONS = {
    **{
        f"digits-{alpha:g}": Federation(
            functools.partial(digits, alpha), functools.partial(ft.models.mlp, 64, [64], 10), 160, 0.25
        )
        for alpha in (0.1, 1.0, 10.0)
    },
    "femnist": Federation(femnist, functools.partial(ft.models.mlp, 784, [64], 62), 120, 0.1),
}


def contestants(advice: Suggestion) -> dict[str, Callable[..., ft.Algorithm]]:
    """FedAvg, and what follows each suggestion; a suggestion to change nothing is left out."""
    fedavg, feddecay = ft.algorithms.fedavg, ft.algorithms.feddecay
    found: dict[str, Callable[..., ft.Algorithm]] = {
        "FedAvg": lambda lr: fedavg(lr=lr, steps=STEPS),
        f"beta {UNSEEN_BETA:g}": lambda lr: feddecay(lr=lr, beta=UNSEEN_BETA, steps=STEPS),
        "advised beta": lambda lr: feddecay(lr=lr, beta=advice.beta, steps=STEPS),
    }
    if advice.k_decay < 1:
        found["advised K decay"] = lambda lr: fedavg(lr=lr, steps=decaying_k(STEPS, advice.k_decay))
    return found


def tested(
    name: str, out: Path, seeds: int, trials: int, workers: int, redraw: bool = False, rounds: int | None = None
) -> dict[str, Any]:
    """The advice and what came of it, as plain data; also written to the folder."""
    federation = FEDERATIONS[name]
    length = rounds or federation.rounds
    looked_at = federation.data(LOOKED_AT)
    found = measure(federation.model(), looked_at, lr=LR, steps=STEPS, rounds=length)
    advice = suggested(found)
    taking_part = contestants(advice)
    compared = ft.compare(
        taking_part,
        tune={"lr": {"log": [0.02, 2.56]}},
        trials=trials,
        tuning_seeds=1,
        seeds=seeds,
        patience=5,
        claims=[(label, "FedAvg") for label in taking_part if label != "FedAvg"]
        + [("advised beta", f"beta {UNSEEN_BETA:g}")],
        out=out / name,
        workers=workers,
        model=federation.model,
        data=federation.data if redraw else federation.data(JUDGED_ON),
        rounds=length,
        cohort=federation.cohort,
        batch_size=16,
        evaluation=ft.Evaluation(every=max(1, length // 20), lr=0.1),
    )
    costs = {line.label: line.costs for line in compared.comparison.lines}
    return {
        "federation": name,
        "advice": {"beta": advice.beta, "k_decay": advice.k_decay},
        "disagreement": found.disagreement,
        "tuned": {label: dict(one.values) for label, one in compared.tuned.items()},
        "steps": {label: cost["steps"] for label, cost in costs.items()},
        "scores": {
            line.label: {group: one["mean"].value for group, one in line.scores.items() if group.endswith("after")}
            for line in compared.comparison.lines
        },
        "answers": [str(one) for one in compared.decisions],
    }


def main() -> None:
    """Test the advice on the federations that are named, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # No `choices`: argparse would look for the whole default among them.
    parser.add_argument("federations", nargs="*", default=list(FEDERATIONS), help=f"of {', '.join(FEDERATIONS)}")
    parser.add_argument("--out", type=Path, default=Path("advice"))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--redraw", action="store_true")
    parser.add_argument("--rounds", type=int)
    given = parser.parse_args()
    if unknown := set(given.federations) - set(FEDERATIONS):
        parser.error(f"federations must be of {', '.join(FEDERATIONS)}. Got {', '.join(sorted(unknown))}.")
    for name in given.federations:
        found = tested(name, given.out, given.seeds, given.trials, given.workers, given.redraw, given.rounds)
        print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
