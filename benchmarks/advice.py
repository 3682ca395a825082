"""Does advice pay? `fedtempo advise` looks at one split; its suggestions are then compared fairly on another.

    python -m benchmarks.advice digits-0.1 digits-1 digits-10 femnist --out advice

Everybody's rate is tuned alike, on seeds that are not judged. The advised beta and K decay stand against FedAvg, and
the advised beta also against a beta that anybody would take without looking. All seeds are judged on one split that the
adviser has not seen; with --redraw every seed draws its own. What is done already in the folder is not done again.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedtempo as ft
from fedtempo.schedules import decaying_k
from fedtempo.theory import Advice, advise_for

STEPS, LR = 10, 0.3
"""Local steps, and the rate that the adviser is told."""
LOOKED_AT, JUDGED_ON = 2_000_000, 3_000_000
"""The seeds of the split that the adviser looks at, and of the one that is judged."""
UNSEEN_BETA = 0.6
"""What the FedDecay papers' grids have in the middle."""


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


def contestants(advice: Advice) -> dict[str, Callable[..., ft.Algorithm]]:
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
    advice = advise_for(federation.model(), looked_at, lr=LR, steps=STEPS, rounds=length)
    taking_part = contestants(advice)
    found = ft.compare(
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
    costs = {line.label: line.costs for line in found.comparison.lines}
    return {
        "federation": name,
        "advice": {"beta": advice.beta, "k_decay": advice.k_decay},
        "disagreement": advice.measurements.disagreement,
        "tuned": {label: dict(one.values) for label, one in found.tuned.items()},
        "steps": {label: cost["steps"] for label, cost in costs.items()},
        "scores": {
            line.label: {group: one["mean"].value for group, one in line.scores.items() if group.endswith("after")}
            for line in found.comparison.lines
        },
        "answers": [str(one) for one in found.decisions],
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
