"""The FedNAR paper: Figure 2 (weight decay) and Table 1 with Figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fedtempo.papers.fednar.setting import (
    ACCURACY,
    ACCURACY_NOTE,
    ALPHAS,
    BACKBONES,
    BASELINE,
    DAY,
    FEDADAM,
    FEDAVG,
    FEDAVGM,
    FEDEXP,
    FEDPROX,
    NO_AUGMENTATION,
    PAPER,
    SCAFFOLD,
    SMALL,
    SMALL_CIFAR,
    SMOKE,
    algorithms,
    columns_with,
    on_cifar10,
    plug_in_gains,
    printed_pairs,
    with_nar,
)
from fedtempo.papers.framework.claims import Claim, above, all_of, any_of, at_least, at_paper_scale, higher, lower
from fedtempo.papers.framework.figures import Curves, Sweep
from fedtempo.papers.framework.frame import Column, PaperRun, Scale, Values, sized
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

WEIGHT_DECAYS = (1e-4, 1e-3, 1e-2, 5e-2, 1e-1)
TUNED = {FEDAVG: 0.05, FEDPROX: 0.05, SCAFFOLD: 0.05, FEDEXP: 0.01, FEDADAM: 0.01, FEDAVGM: 0.01}
"""The weight decay of each backbone in the released scripts; the paper does not say."""


def _at(name: str, alpha: float) -> str:
    return f"{name}, alpha = {alpha:g}"


def _table_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        on_cifar10(_at(label, alpha), scale, seed, alpha, algorithm)
        for alpha in ALPHAS
        for name in BACKBONES
        for label, algorithm in algorithms(name, scale["lr"], scale["steps"], TUNED[name], scale["max_norm"]).items()
    ]


PAIRS = {name: {_at(with_nar(name), alpha): _at(name, alpha) for alpha in ALPHAS} for name in BACKBONES}


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
        "paper": sized(seeds=3, minutes=480 * DAY, **PAPER),
    },
    runs=_table_runs,
    columns=columns_with(gain=Column("gain by FedNAR", "+.2f"), gain_of_backbone=Column("its mean over alpha", "+.2f")),
    derive=partial(plug_in_gains, PAIRS),
    reported=printed_pairs(PAIRS, REPORTED_CIFAR10),
    claims=(
        Claim("FedNAR helps, on average over backbones and alpha.", above(_skewed(FEDAVG), "gain_of_all", 0.0)),
        *(
            Claim(f"FedNAR helps {name}, on average over alpha.", above(_skewed(name), "gain_of_backbone", 0.0))
            for name in BACKBONES
        ),
        Claim(
            "FedNAR helps FedAvg more on skewed data (alpha = 0.3) than on balanced (alpha = 10).",
            higher(_skewed(FEDAVG), _at(with_nar(FEDAVG), 10.0), "gain"),
        ),
    ),
    figures=tuple(
        Curves(
            name.lower(),
            ACCURACY,
            Axes(f"{name}, alpha = 0.3", "round", "test accuracy, %"),
            (_at(name, 0.3), _skewed(name)),
        )
        for name in (FEDAVG, FEDPROX, SCAFFOLD)
    ),
    notes=(
        BASELINE,
        "Weight decay is the released scripts': 0.05 for FedAvg, FedProx and SCAFFOLD, 0.01 for the others. The paper "
        "does not say. FedAdam is the released code's, which squares the momentum.",
        SMALL_CIFAR,
        ACCURACY_NOTE,
        NO_AUGMENTATION,
    ),
)


SETTINGS = {
    "(a) alpha 0.3": (0.3, "steps"),
    "(b) alpha 0.3, fewer steps": (0.3, "few_steps"),
    "(c) alpha 10": (10.0, "steps"),
}
SKEWED, SHORT, BALANCED = SETTINGS


def _swept(name: str, setting: str, weight_decay: float) -> str:
    return f"{name} {setting}, WD = {weight_decay:g}"


def _sweep_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        on_cifar10(_swept(name, setting, weight_decay), scale, seed, alpha, methods[name])
        for setting, (alpha, steps) in SETTINGS.items()
        for name in scale["backbones"]
        for weight_decay in WEIGHT_DECAYS
        for methods in [algorithms(name, scale["lr"], scale[steps], weight_decay, scale["max_norm"])]
    ]


def _drops(values: Values) -> Values:
    """How much accuracy the largest weight decay costs against the one before it, and against the best."""
    drops: dict[str, dict[str, float]] = {}
    for setting in SETTINGS:
        for name in BACKBONES:
            labels = [_swept(name, setting, weight_decay) for weight_decay in WEIGHT_DECAYS]
            if labels[0] in values:
                swept = [values[label][ACCURACY] for label in labels]
                drops[labels[-1]] = {"drop": max(swept) - swept[-1]}
    return drops


def _largest(setting: str, name: str = FEDAVG) -> str:
    return _swept(name, setting, WEIGHT_DECAYS[-1])


SWEEP = Reproduction(
    name="fednar-weight-decay",
    paper="fednar",
    source="Figures 1 and 2",
    title="CIFAR-10 with clip-then-decay, over weight decay",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, backbones=(FEDAVG, SCAFFOLD), **SMOKE),
        "small": sized(seeds=3, minutes=2, backbones=(FEDAVG, SCAFFOLD), **SMALL),
        "paper": sized(seeds=1, minutes=300 * DAY, backbones=BACKBONES, **PAPER),
    },
    runs=_sweep_runs,
    columns=columns_with(drop=Column("lost against the best WD", ".2f")),
    derive=_drops,
    claims=(
        Claim(
            "A weight decay that is too large costs accuracy: 0.1 is worse than 0.01 in the skewed setting (a).",
            all_of(
                *(lower(_largest(SKEWED, name), _swept(name, SKEWED, 1e-2), ACCURACY) for name in (FEDAVG, SCAFFOLD))
            ),
        ),
        Claim(
            "It can cost more than ten points.",
            at_paper_scale(any_of(*(at_least(_largest(SKEWED, name), "drop", 10.0) for name in (FEDAVG, SCAFFOLD)))),
        ),
        Claim("With fewer local steps (b) it costs less.", higher(_largest(SKEWED), _largest(SHORT), "drop")),
        Claim("With balanced data (c) it costs less.", higher(_largest(SKEWED), _largest(BALANCED), "drop")),
    ),
    figures=tuple(
        Sweep(
            letter,
            ACCURACY,
            Axes(setting, "weight decay", "test accuracy, %", log_x=True),
            {name: {wd: _swept(name, setting, wd) for wd in WEIGHT_DECAYS} for name in BACKBONES},
        )
        for letter, setting in zip("abc", SETTINGS, strict=True)
    ),
    notes=(
        BASELINE,
        "Below paper scale two of the six backbones. 'Fewer steps' are 3 of 10 below paper scale and 5 of 20 at it.",
        SMALL_CIFAR,
        ACCURACY_NOTE,
        NO_AUGMENTATION,
    ),
)
