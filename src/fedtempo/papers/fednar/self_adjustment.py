"""The FedNAR paper's Figure 4: how FedNAR adjusts a weight decay that is too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedtempo.papers.fednar.measuring import (
    ACCURACY,
    CHECKSUM,
    FINAL,
    POINT,
)
from fedtempo.papers.fednar.setting import (
    ACCURACY_NOTE,
    AUGMENTATION,
    BASELINE,
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
    columns_with,
    fednar_tuning,
    on_cifar10,
    with_nar,
)
from fedtempo.papers.framework.claims import Claim, all_of, at_most, equal, higher, lower
from fedtempo.papers.framework.definitions import PaperRun, Scale, Values, score_column, sized
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

SKEWED = 0.3
LARGE, GOOD = 0.1, 0.01
ADJUSTED = (FEDAVG, FEDPROX, SCAFFOLD)
UNCLIPPED = (FEDAVG, SCAFFOLD)
BEYOND_ALL_NORMS = 1e6


def started_from(name: str, weight_decay: float) -> str:
    """The label of a run that starts with this weight decay."""
    return f"{name}, WD = {weight_decay:g}"


def _unclipped(name: str) -> str:
    return f"{name}, nothing clipped"


def _adjustment_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    clipped = [
        on_cifar10(started_from(label, weight_decay), scale, seed, SKEWED, algorithm)
        for name in ADJUSTED
        for weight_decay in (LARGE, GOOD)
        for label, algorithm in algorithms(name, scale, scale["steps"], weight_decay, scale["max_norm"]).items()
    ]
    # One rate for both, whatever was tuned: only then can they be equal.
    common = replace(scale, chosen={})
    unclipped = [
        on_cifar10(_unclipped(label), scale, seed, SKEWED, algorithm)
        for name in UNCLIPPED
        for label, algorithm in algorithms(name, common, scale["steps"], LARGE, BEYOND_ALL_NORMS).items()
    ]
    return [*clipped, *unclipped]


def _costs_of_large(values: Values) -> Values:
    """What starting with the large weight decay costs against the good one."""
    names = [label for name in ADJUSTED for label in (name, with_nar(name))]
    return {
        started_from(name, LARGE): {
            "cost": values[started_from(name, GOOD)][FINAL] - values[started_from(name, LARGE)][FINAL]
        }
        for name in names
    }


def _equal_without_clipping(name: str) -> Claim:
    mine, theirs = _unclipped(with_nar(name)), _unclipped(name)
    return Claim(
        f"FedNAR equals clip-then-decay, bit for bit, where nothing is clipped ({name}).",
        all_of(at_most(mine, "clipped", 0.0), equal(mine, theirs, CHECKSUM), equal(mine, theirs, FINAL)),
    )


SELF_ADJUSTMENT = Reproduction(
    name="fednar-self-adjustment",
    paper="fednar",
    source="Figure 4",
    title="CIFAR-10 from a good and from too large a weight decay",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=1.5, **SMALL),
        "medium": sized(
            5,
            30,
            fednar_tuning(
                {
                    label: [started_from(label, GOOD), started_from(label, LARGE)]
                    for name in ADJUSTED
                    for label in (name, with_nar(name))
                }
            ),
            SETTLED,
            **{**MEDIUM, "augmented": True},
        ),
        "paper": sized(seeds=3, minutes=210 * DAY, **PAPER),
    },
    runs=_adjustment_runs,
    columns=columns_with(cost=score_column("lost against WD = 0.01", "+.2f", POINT, of_one_run=False)),
    derive=_costs_of_large,
    looks=2,
    claims=(
        *(
            Claim(
                f"With too large a weight decay (0.1) FedNAR beats clip-then-decay ({name}).",
                higher(started_from(with_nar(name), LARGE), started_from(name, LARGE), FINAL),
                "5.2",
            )
            for name in ADJUSTED
        ),
        *(_equal_without_clipping(name) for name in UNCLIPPED),
        *(
            Claim(
                f"FedNAR's accuracy depends less on the initial weight decay ({name}).",
                lower(started_from(with_nar(name), LARGE), started_from(name, LARGE), "cost"),
            )
            for name in ADJUSTED
        ),
        *(
            Claim(
                f"FedNAR from 0.1 ends above the baseline from 0.01 ({name}).",
                higher(started_from(with_nar(name), LARGE), started_from(name, GOOD), FINAL),
                "5.2",
            )
            for name in ADJUSTED
        ),
    ),
    figures=tuple(
        Curves(
            name.lower(),
            ACCURACY,
            Axes(f"{name}, alpha = 0.3", "round", "accuracy, %"),
            tuple(
                started_from(label, weight_decay) for weight_decay in (GOOD, LARGE) for label in (name, with_nar(name))
            ),
        )
        for name in ADJUSTED
    ),
    notes=(
        BASELINE,
        "'Nothing clipped' has a largest norm of 1e6 and a weight decay of 0.1; the paper has none. The checksum "
        "is one of all bytes of the model.",
        "Rates are tuned at a weight decay of 0.01 and used for 0.1 too; 'nothing clipped' has one common rate.",
        "Accuracy is that of the last round, as in the paper: a round that validation selects comes before the harm.",
        SMALL_CIFAR,
        ACCURACY_NOTE,
        AUGMENTATION,
    ),
)
