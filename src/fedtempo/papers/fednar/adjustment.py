"""The FedNAR paper's ablations: Figure 4 (self-adjustment) and Figure 5 (how often and how strongly it clips)."""

from __future__ import annotations

from collections.abc import Sequence

from fedtempo.papers.fednar.setting import (
    ACCURACY,
    ACCURACY_COLUMN,
    ACCURACY_NOTE,
    ALPHAS,
    BASELINE,
    CHECKSUM,
    DAY,
    FEDAVG,
    FEDPROX,
    LENGTH,
    LENGTH_COLUMN,
    NO_AUGMENTATION,
    PAPER,
    SCAFFOLD,
    SMALL,
    SMALL_CIFAR,
    SMOKE,
    algorithms,
    columns_with,
    on_cifar10,
    with_nar,
)
from fedtempo.papers.framework.claims import Claim, above, all_of, at_most, equal, higher, lower
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.frame import Column, PaperRun, Scale, Values, sized
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

SKEWED = 0.3
LARGE, GOOD = 0.1, 0.01
ADJUSTED = (FEDAVG, FEDPROX, SCAFFOLD)
UNCLIPPED = (FEDAVG, SCAFFOLD)
BEYOND_ALL_NORMS = 1e6


def _started(name: str, weight_decay: float) -> str:
    return f"{name}, WD = {weight_decay:g}"


def _unclipped(name: str) -> str:
    return f"{name}, nothing clipped"


def _adjustment_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    clipped = [
        on_cifar10(_started(label, weight_decay), scale, seed, SKEWED, algorithm)
        for name in ADJUSTED
        for weight_decay in (LARGE, GOOD)
        for label, algorithm in algorithms(name, scale["lr"], scale["steps"], weight_decay, scale["max_norm"]).items()
    ]
    unclipped = [
        on_cifar10(_unclipped(label), scale, seed, SKEWED, algorithm)
        for name in UNCLIPPED
        for label, algorithm in algorithms(name, scale["lr"], scale["steps"], LARGE, BEYOND_ALL_NORMS).items()
    ]
    return [*clipped, *unclipped]


def _costs_of_large(values: Values) -> Values:
    """What starting with the large weight decay costs against the good one."""
    names = [label for name in ADJUSTED for label in (name, with_nar(name))]
    return {
        _started(name, LARGE): {
            "cost": values[_started(name, GOOD)][ACCURACY] - values[_started(name, LARGE)][ACCURACY]
        }
        for name in names
    }


def _equal_without_clipping(name: str) -> Claim:
    mine, theirs = _unclipped(with_nar(name)), _unclipped(name)
    return Claim(
        f"FedNAR equals clip-then-decay, bit for bit, where nothing is clipped ({name}).",
        all_of(at_most(mine, "clipped", 0.0), equal(mine, theirs, CHECKSUM), equal(mine, theirs, ACCURACY)),
    )


SELF_ADJUSTMENT = Reproduction(
    name="fednar-self-adjustment",
    paper="fednar",
    source="Figure 4",
    title="CIFAR-10 from a good and from too large a weight decay",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=1.5, **SMALL),
        "paper": sized(seeds=3, minutes=210 * DAY, **PAPER),
    },
    runs=_adjustment_runs,
    columns=columns_with(cost=Column("lost against WD = 0.01", "+.2f")),
    derive=_costs_of_large,
    claims=(
        *(
            Claim(
                f"With too large a weight decay (0.1) FedNAR beats clip-then-decay ({name}).",
                higher(_started(with_nar(name), LARGE), _started(name, LARGE), ACCURACY),
            )
            for name in ADJUSTED
        ),
        *(_equal_without_clipping(name) for name in UNCLIPPED),
        *(
            Claim(
                f"FedNAR's accuracy depends less on the initial weight decay ({name}).",
                lower(_started(with_nar(name), LARGE), _started(name, LARGE), "cost"),
            )
            for name in ADJUSTED
        ),
        Claim(
            "FedNAR from 0.1 ends above the baseline from 0.01.",
            all_of(*(higher(_started(with_nar(name), LARGE), _started(name, GOOD), ACCURACY) for name in ADJUSTED)),
        ),
    ),
    figures=tuple(
        Curves(
            name.lower(),
            ACCURACY,
            Axes(f"{name}, alpha = 0.3", "round", "test accuracy, %"),
            tuple(_started(label, weight_decay) for weight_decay in (GOOD, LARGE) for label in (name, with_nar(name))),
        )
        for name in ADJUSTED
    ),
    notes=(
        BASELINE,
        "'Nothing clipped' has a largest norm of 1e6 and a weight decay of 0.1; the paper has none. The checksum "
        "is one of all bytes of the model.",
        SMALL_CIFAR,
        ACCURACY_NOTE,
        NO_AUGMENTATION,
    ),
)


def _at(alpha: float) -> str:
    return f"{with_nar(FEDAVG)}, alpha = {alpha:g}"


def _clipping_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    method = algorithms(FEDAVG, scale["lr"], scale["steps"], 0.05, scale["max_norm"])[with_nar(FEDAVG)]
    return [on_cifar10(_at(alpha), scale, seed, alpha, method) for alpha in ALPHAS]


CLIPPING = Reproduction(
    name="fednar-clipping",
    paper="fednar",
    source="Figure 5",
    title="How often and how strongly FedNAR clips",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=1, **{**SMALL, "rounds": 30, "max_norm": 5.0}),
        "paper": sized(seeds=3, minutes=40 * DAY, **PAPER),
    },
    runs=_clipping_runs,
    columns={
        "clipped_first": Column("steps clipped, first third of the rounds, %", ".1f"),
        "clipped_last": Column("last third, %", ".1f"),
        "clipped_norm_first": Column("their norm, first third", ".2f"),
        "clipped_norm_last": Column("last third", ".2f"),
        ACCURACY: ACCURACY_COLUMN,
        LENGTH: LENGTH_COLUMN,
    },
    claims=(
        Claim(
            "More steps are clipped as training goes on.",
            all_of(*(above(_at(alpha), "clipped_change", 0.0) for alpha in ALPHAS)),
        ),
        Claim(
            "The norm of clipped steps grows as training goes on.",
            all_of(*(above(_at(alpha), "clipped_norm_change", 0.0) for alpha in ALPHAS)),
        ),
    ),
    figures=(
        Curves("frequency", "clipped", Axes("How often", "round", "steps clipped, %")),
        Curves("strength", "clipped_norm", Axes("How strongly", "round", "mean norm of clipped steps")),
    ),
    notes=(
        "Weight decay is 0.05, as in the released script of FedAvg.",
        SMALL_CIFAR,
        "Here the largest norm is 5 below paper scale, so that some steps are clipped and others are not.",
        NO_AUGMENTATION,
    ),
)
