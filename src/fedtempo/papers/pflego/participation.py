"""The PFLEGO paper: Figure 6 (how many clients take part in a round)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedtempo.papers.framework.claims import Claim, all_of, lower, near
from fedtempo.papers.framework.definitions import Column, PaperRun, Scale, TunedSetting, Tuning, Values, sized
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.papers.pflego.cifar import MEDIUM_CIFAR, NOT_THE_NETWORK, PAPER_CIFAR, SMALL_CIFAR, SMOKE_CIFAR
from fedtempo.papers.pflego.degrees import CLASSES_DRAWN, USUAL_FEDAVG, training
from fedtempo.papers.pflego.setting import (
    ADAM,
    CANDIDATES,
    COLUMNS,
    FEDAVG,
    FEDPER,
    LOSS,
    PFLEGO,
    SERVED,
    three_methods,
)


def _participation_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        training(_at(label, share), method, at_share, seed, scale["degrees"]["high"])
        for share in scale["shares"]
        for at_share in [_with(scale, cohort=share)]
        for label, method in three_methods(at_share, f"{share:.0%}: ").items()
    ]


def _with(scale: Scale, **settings: Any) -> Scale:
    return replace(scale, settings={**scale.settings, **settings})


def _at(label: str, share: float) -> str:
    return f"{label}, r = {share:.0%}"


SHARES = (0.4, 1.0)


def _against_fewer(values: Values) -> Values:
    """Training loss with everybody over that with 40 %."""
    few, everybody = SHARES
    return {
        _at(label, everybody): {"loss_ratio": values[_at(label, everybody)][LOSS] / values[_at(label, few)][LOSS]}
        for label in (PFLEGO, FEDPER, FEDAVG)
    }


PARTICIPATION = Reproduction(
    name="pflego-participation",
    paper="pflego",
    source="Figure 6",
    title="CIFAR-10, high personalization, with 40 % and 100 % of the clients in each round",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE_CIFAR, shares=SHARES),
        "small": sized(seeds=3, minutes=2.5, **{**SMALL_CIFAR, "clients": 10, "rows": 1_500}, shares=SHARES),
        "medium": sized(
            seeds=5,
            minutes=50,
            tuning=Tuning(
                {
                    f"{share:.0%}: {label}": TunedSetting(_at(label, share), CANDIDATES[label])
                    for share in SHARES
                    for label in (PFLEGO, FEDPER, FEDAVG)
                },
                "existing_after/best",
            ),
            **{**MEDIUM_CIFAR, "rounds": 200, "every": 20, "clients": 10, "rows": 2_000},
            shares=SHARES,
        ),
        "paper": sized(seeds=1, minutes=90_000, **PAPER_CIFAR, shares=SHARES),
    },
    runs=_participation_runs,
    columns={**COLUMNS, "loss_ratio": Column("training loss, of that at 40 %")},
    claims=(
        Claim(
            "PFLEGO converges faster as r increases: its training loss is lower at 100 %.",
            lower(_at(PFLEGO, 1.0), _at(PFLEGO, 0.4), LOSS),
            "5.1",
        ),
        Claim(
            "FedAvg's and FedPer's speed does not vary with r (training losses within 10 %).",
            all_of(near(_at(FEDAVG, 1.0), "loss_ratio", 1.0, 0.1), near(_at(FEDPER, 1.0), "loss_ratio", 1.0, 0.1)),
            "5.1",
        ),
        Claim(
            "With everybody taking part PFLEGO's training loss is the lowest.",
            all_of(lower(_at(PFLEGO, 1.0), _at(FEDPER, 1.0), LOSS), lower(_at(PFLEGO, 1.0), _at(FEDAVG, 1.0), LOSS)),
        ),
    ),
    figures=(Curves("loss", "train_loss", Axes("training loss of the round's clients", "round", "loss", log_y=True)),),
    derive=_against_fewer,
    notes=(SERVED, CLASSES_DRAWN, USUAL_FEDAVG, ADAM, NOT_THE_NETWORK),
)

REPRODUCTIONS = (PARTICIPATION,)
