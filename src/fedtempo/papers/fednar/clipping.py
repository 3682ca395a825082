"""The FedNAR paper's Figure 5: how often and how strongly it clips, and how the model grows."""

from __future__ import annotations

from collections.abc import Sequence

from fedtempo.papers.fednar.measuring import ACCURACY, ACCURACY_COLUMN, LENGTH, LENGTH_COLUMN
from fedtempo.papers.fednar.setting import (
    ALPHAS,
    AUGMENTATION,
    DAY,
    FEDAVG,
    FEDPROX,
    MEDIUM,
    PAPER,
    SCAFFOLD,
    SETTLED,
    SMALL,
    SMALL_CIFAR,
    SMOKE,
    algorithms,
    fednar_tuning,
    on_cifar10,
    with_nar,
)
from fedtempo.papers.fednar.weight_decay import where_run
from fedtempo.papers.framework.claims import Claim, above, all_of
from fedtempo.papers.framework.definitions import Column, PaperRun, Scale, sized
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

CLIPPED = (FEDAVG, FEDPROX, SCAFFOLD)


def _at(name: str, alpha: float) -> str:
    return f"{with_nar(name)}, alpha = {alpha:g}"


def _clipping_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        on_cifar10(_at(name, alpha), scale, seed, alpha, methods[with_nar(name)])
        for name in scale["backbones"]
        for methods in [algorithms(name, scale, scale["steps"], 0.05, scale["max_norm"])]
        for alpha in ALPHAS
    ]


def grows(text: str, column: str, name: str, section: str) -> Claim:
    """A claim that the column is above 0 at every alpha."""
    rule = all_of(*(above(_at(name, alpha), column, 0.0) for alpha in ALPHAS))
    return Claim(f"{text} ({name}).", where_run(_at(name, ALPHAS[0]), rule), section)


CLIPPING = Reproduction(
    name="fednar-clipping",
    paper="fednar",
    source="Figure 5",
    title="How often and how strongly FedNAR clips",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, backbones=(FEDAVG,), **SMOKE),
        "small": sized(seeds=3, minutes=1, backbones=(FEDAVG,), **{**SMALL, "rounds": 30, "max_norm": 5.0}),
        "medium": sized(
            5,
            20,
            fednar_tuning({with_nar(name): [_at(name, alpha) for alpha in ALPHAS] for name in CLIPPED}),
            SETTLED,
            backbones=CLIPPED,
            **{**MEDIUM, "max_norm": 5.0, "augmented": True},
        ),
        "paper": sized(seeds=3, minutes=120 * DAY, backbones=CLIPPED, **PAPER),
    },
    runs=_clipping_runs,
    columns={
        "clipped_first": Column("steps clipped, first third of the rounds, %", ".1f"),
        "clipped_last": Column("last third, %", ".1f"),
        "clipped_norm_first": Column("their norm, first third", ".2f"),
        "clipped_norm_last": Column("last third", ".2f"),
        "norm_first": Column("norm of the model, first third", ".2f"),
        "norm_last": Column("last third", ".2f"),
        ACCURACY: ACCURACY_COLUMN,
        LENGTH: LENGTH_COLUMN,
    },
    looks=3,
    claims=(
        *(grows("More steps are clipped as training goes on", "clipped_change", name, "5.2") for name in CLIPPED),
        *(
            grows("The norm of clipped steps grows as training goes on", "clipped_norm_change", name, "5.2")
            for name in CLIPPED
        ),
        *(grows("The norm of the model grows as training goes on", "norm_change", name, "4.3") for name in CLIPPED),
    ),
    figures=(
        Curves("frequency", "clipped", Axes("How often", "round", "steps clipped, %")),
        Curves("strength", "clipped_norm", Axes("How strongly", "round", "mean norm of clipped steps")),
        Curves("norm", "norm", Axes("How long the model is", "round", "norm of the model")),
    ),
    notes=(
        "Weight decay is 0.05, as in the released script of FedAvg.",
        "Below medium FedAvg alone. The growth of the model's norm is section 4.3's reason for the other two claims.",
        SMALL_CIFAR,
        "Here the largest norm is 5 below paper scale, so that some steps are clipped and others are not.",
        AUGMENTATION,
    ),
)
