"""The FedNAR paper's Table 1 with Figure 3: CIFAR-10, six backbones with and without the plug-in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from fedtempo.papers.fednar.measuring import ACCURACY, POINT, TO_TARGET, plug_in_gains, printed_pairs, same_side
from fedtempo.papers.fednar.setting import (
    ACCURACY_NOTE,
    ALPHAS,
    AUGMENTATION,
    BACKBONES,
    BASELINE,
    DAY,
    FEDADAM,
    FEDAVG,
    FEDAVGM,
    FEDEXP,
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
    sooner,
    to_target_column,
    with_nar,
)
from fedtempo.papers.framework.claims import Claim, higher, lower
from fedtempo.papers.framework.definitions import PaperRun, Scale, Values, score_column, sized
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

RELEASED = {FEDAVG: 0.05, FEDPROX: 0.05, SCAFFOLD: 0.05, FEDEXP: 0.01, FEDADAM: 0.01, FEDAVGM: 0.01}
"""The weight decay of each backbone in the released scripts; the paper does not say."""
AUGMENTED = {"augmented": True, "patience": 5}
"""Images are cropped and flipped, as in the paper."""
RATES = (0.01, 0.03, 0.1, 0.3)
"""A baseline decays by the rate times the weight decay, so that small rates suit it where decays are large."""


def _at(name: str, alpha: float) -> str:
    return f"{name}, alpha = {alpha:g}"


def _table_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        on_cifar10(_at(label, alpha), scale, seed, alpha, algorithm)
        for alpha in ALPHAS
        for name in BACKBONES
        for label, algorithm in algorithms(name, scale, scale["steps"], RELEASED[name], scale["max_norm"]).items()
    ]


PAIRS = {name: {_at(with_nar(name), alpha): _at(name, alpha) for alpha in ALPHAS} for name in BACKBONES}
CONTESTANTS = {label: [_at(label, alpha) for alpha in ALPHAS] for name in BACKBONES for label in (name, with_nar(name))}
"""Each method's rate is tuned once, on the most skewed clients."""


def table_gains(values: Values) -> Values:
    """The plug-in's gains, and their mean over the backbones at each alpha (`gain_at_alpha`, on FedAvg's label)."""
    found = plug_in_gains(PAIRS, values)
    for alpha in ALPHAS:
        gains = [found[_at(with_nar(name), alpha)]["gain"] for name in BACKBONES]
        found[_at(with_nar(FEDAVG), alpha)]["gain_at_alpha"] = fmean(gains)
    for label in (_skewed(FEDAVG), _at(FEDAVG, ALPHAS[0])):
        both = {name: with_nar(name) if label == _skewed(FEDAVG) else name for name in BACKBONES}
        rounds = [values[_at(method, ALPHAS[0])].get(TO_TARGET, math.nan) for method in both.values()]
        found[label]["mean_to_target"] = fmean(rounds)
    return found


REPORTED_CIFAR10 = {
    FEDAVG: (85.19, 87.64, 88.50, 89.55, 89.45, 90.23),
    FEDPROX: (85.02, 87.45, 88.56, 89.58, 89.37, 90.38),
    SCAFFOLD: (86.89, 89.17, 89.52, 91.13, 90.64, 91.85),
    FEDEXP: (86.46, 88.55, 88.28, 89.51, 88.82, 89.69),
    FEDADAM: (84.12, 85.81, 87.35, 87.78, 88.86, 89.56),
    FEDAVGM: (90.33, 90.43, 91.60, 91.76, 92.19, 91.15),
}


def _skewed(name: str) -> str:
    return _at(with_nar(name), 0.3)


TABLE = Reproduction(
    name="fednar-cifar10",
    paper="fednar",
    source="Table 1 and Figure 3",
    title="CIFAR-10, six backbones with and without FedNAR",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=2.5, **SMALL),
        "medium": sized(5, 60, fednar_tuning(CONTESTANTS, RATES), SETTLED, **{**MEDIUM, **AUGMENTED}),
        "paper": sized(seeds=3, minutes=480 * DAY, **PAPER),
    },
    runs=_table_runs,
    columns=columns_with(
        gain=score_column("gain by FedNAR", "+.2f", POINT, of_one_run=False),
        gain_of_backbone=score_column("its mean over alpha", "+.2f", POINT, of_one_run=False),
        gain_at_alpha=score_column("its mean over backbones", "+.2f", POINT, of_one_run=False),
        of_backbone=score_column("accuracy, mean over alpha", ".2f", POINT, of_one_run=False),
        of_all=score_column("accuracy, mean over everything", ".2f", POINT, False, partial(same_side, PAIRS)),
        rounds_to_target=to_target_column(MEDIUM),
        mean_to_target=replace(to_target_column(MEDIUM), made_of=partial(same_side, PAIRS)),
    ),
    derive=table_gains,
    reported=printed_pairs(PAIRS, REPORTED_CIFAR10),
    claims=(
        Claim(
            "FedNAR helps, on average over backbones and alpha.",
            higher(_skewed(FEDAVG), _at(FEDAVG, ALPHAS[0]), "of_all"),
        ),
        *(
            Claim(
                f"FedNAR helps {name}, on average over alpha.",
                higher(_skewed(name), _at(name, ALPHAS[0]), "of_backbone"),
                "7",
            )
            for name in BACKBONES
        ),
        Claim(
            "FedNAR helps more on skewed data (alpha = 0.3) than on balanced (alpha = 10), on average over backbones.",
            higher(_skewed(FEDAVG), _at(with_nar(FEDAVG), ALPHAS[-1]), "gain_at_alpha"),
            "5.1",
        ),
        *(
            Claim(
                f"FedNAR converges faster on skewed data: fewer rounds to the target accuracy ({name}).",
                sooner(_skewed(name), _at(name, ALPHAS[0])),
                "Figure 3",
            )
            for name in (FEDAVG, FEDPROX, SCAFFOLD)
        ),
        Claim(
            "FedNAR converges faster on skewed data, on average over the six backbones.",
            lower(_skewed(FEDAVG), _at(FEDAVG, ALPHAS[0]), "mean_to_target"),
        ),
    ),
    figures=tuple(
        Curves(
            name.lower(),
            ACCURACY,
            Axes(f"{name}, alpha = 0.3", "round", "accuracy, %"),
            (_at(name, 0.3), _skewed(name)),
        )
        for name in (FEDAVG, FEDPROX, SCAFFOLD)
    ),
    notes=(
        BASELINE,
        "Weight decay is the released scripts': 0.05 for FedAvg, FedProx and SCAFFOLD, 0.01 for the others. The paper "
        "does not say. FedAdam is the released code's, which squares the momentum.",
        "The target is the setting `target`, on validation rows. A run that never reaches it counts as one that does "
        "in the round after its last.",
        "Every method's rate is tuned at alpha = 0.3 and used for all three.",
        SMALL_CIFAR,
        ACCURACY_NOTE,
        AUGMENTATION,
    ),
)
