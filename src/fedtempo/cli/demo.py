"""The one-minute demonstration: what within-round decay does for existing and for new users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedtempo.algorithms import Algorithm, fedavg, feddecay, fedsgd, local_only
from fedtempo.api import train
from fedtempo.data import FederatedData, dirichlet, load
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.models import mlp
from fedtempo.report import ResultTable, follow, write_report
from fedtempo.training.result import Result

STEPS, LR = 10, 0.1

CONTESTANTS: dict[str, Algorithm] = {
    "FedSGD": fedsgd(lr=LR),
    "FedDecay 0.4": feddecay(lr=LR, beta=0.4, steps=STEPS),
    "FedDecay 0.8": feddecay(lr=LR, beta=0.8, steps=STEPS),
    "FedDecay 0.9": feddecay(lr=LR, beta=0.9, steps=STEPS),
    "FedAvg": fedavg(lr=LR, steps=STEPS),
    "local only": local_only(lr=LR, steps=STEPS, newcomer_rounds=5),
}


def demo_data(seed: int) -> FederatedData:
    """Digits among 40 clients, Dirichlet(0.3) over classes, a fifth of the clients held out as new users."""
    return load("digits").split(dirichlet(clients=40, alpha=0.3), new_clients=0.2, seed=seed, min_samples=5)


def run_demo(
    rounds: int, seeds: int, quiet: bool, out: Path, announce: Callable[[str], None]
) -> tuple[ResultTable, Path]:
    """Run all contestants on all seeds; return the table and where the page was written."""
    results: list[Result] = []
    labels: list[str] = []
    for seed in range(seeds):
        data = demo_data(seed)
        for label, algorithm in CONTESTANTS.items():
            reports = train(
                model=mlp(64, [64], 10),
                data=data,
                algorithm=algorithm,
                rounds=rounds,
                cohort=0.25,
                batch_size=16,
                seed=seed,
                evaluation=Evaluation(every=max(1, rounds // 4)),
                progress=False,
            )
            results.append(follow(reports, rounds, label=f"seed {seed}, {label}", quiet=quiet))
            labels.append(label)
        announce(f"seed {seed} done")
    title = "Who gains from within-round decay? Digits, 32 existing and 8 new users"
    command = f"fedtempo demo --rounds {rounds} --seeds {seeds}"
    page = write_report(results, out / "report.html", labels, title, command=command)
    return ResultTable(results, labels), page
