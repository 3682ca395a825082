"""The FedNAR paper's Table 2: Shakespeare, six backbones with and without FedNAR, two weight decays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fedtempo.data import natural
from fedtempo.papers.fednar.measuring import (
    ACCURACY,
    ACCURACY_COLUMN,
    LENGTH,
    LENGTH_COLUMN,
    POINT,
    TO_TARGET,
    VALIDATION,
    accuracy,
    clipping,
    model,
    plug_in_gains,
    printed_pairs,
    rounds_to,
    same_side,
)
from fedtempo.papers.fednar.setting import (
    BACKBONES,
    BASELINE,
    DAY,
    FEDADAM,
    FEDAVG,
    FEDAVGM,
    FEDEXP,
    FEDPROX,
    SCAFFOLD,
    TIE,
    algorithms,
    fednar_settings,
    sooner,
    to_target_column,
    with_nar,
)
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import (
    Column,
    Data,
    Model,
    PaperRun,
    Scale,
    Settling,
    Training,
    TunedSetting,
    Tuning,
    score_column,
    sized,
)
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

SIZES = ("smaller", "larger")
SMOKE: dict[str, Any] = {
    "rounds": 1,
    "clients": 4,
    "cohort": 2,
    "steps": 1,
    "batch_size": 4,
    "every": 1,
    "last": 1,
    "lr": 0.5,
    "max_norm": 0.25,
    "weight_decays": (1e-3, 1e-2),
    "text": {"window": 20, "limit": 8},
    "model": {"length": 20, "width": 32, "heads": 2, "layers": 1, "feedforward": 64},
    "patience": None,
    "augmented": False,
    "target": 20.0,
}
SMALL: dict[str, Any] = {
    **SMOKE,
    "rounds": 10,
    "clients": 20,
    "cohort": 4,
    "steps": 10,
    "batch_size": 20,
    "every": 2,
    "last": 2,
    "text": {"window": 20, "limit": 200},
}
MEDIUM: dict[str, Any] = {
    **SMALL,
    "rounds": 160,
    "every": 8,
    "last": 1,
    "patience": 6,
    "text": {"window": 20, "limit": 200, "validation": 0.1},
    "target": 28.0,
}
RATES = (0.15, 0.5, 1.5, 4.0)
TUNING_ROUNDS = 80
"""A trial is half as long as a judged run."""
PAPER: dict[str, Any] = {
    **SMALL,
    "rounds": 300,
    "clients": 100,
    "cohort": 20,
    "steps": 100,
    "batch_size": 100,
    "every": 10,
    "last": 1,
    "lr": 0.1,
    "max_norm": 10.0,
    "weight_decays": (1e-4, 1e-3),
    "text": {"target": "next", "stride": 1, "limit": 2000},
    "model": {"causal": False, "last_only": True},
    "target": 40.0,
}


def _with(name: str, size: str) -> str:
    return f"{name}, {size} WD"


PAIRS = {name: {_with(with_nar(name), size): _with(name, size) for size in SIZES} for name in BACKBONES}


CONTESTANTS = {
    label: TunedSetting(_with(label, SIZES[0]), RATES, (_with(label, SIZES[1]),))
    for name in BACKBONES
    for label in (name, with_nar(name))
}
"""Each method's rate is tuned once, at the smaller weight decay."""


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    data = Data("shakespeare", natural(scale["clients"]), seed, settings=scale["text"])
    network = Model("character_transformer", scale["model"])
    to_target = partial(rounds_to, target=scale["target"])
    measures = (partial(accuracy, last=scale["last"]), to_target, clipping, model)
    return [
        Training(_with(label, size), data, network, algorithm, fednar_settings(scale, seed), measures)
        for size, weight_decay in zip(SIZES, scale["weight_decays"], strict=True)
        for name in BACKBONES
        for label, algorithm in algorithms(name, scale, scale["steps"], weight_decay, scale["max_norm"]).items()
    ]


REPORTED_TABLE = {
    FEDAVG: (42.44, 44.37, 40.05, 44.69),
    FEDPROX: (41.92, 43.57, 40.91, 40.26),
    SCAFFOLD: (47.55, 45.60, 42.40, 44.53),
    FEDEXP: (38.15, 39.63, 39.67, 39.92),
    FEDADAM: (45.80, 45.42, 47.19, 47.48),
    FEDAVGM: (45.03, 45.63, 46.12, 47.13),
}


def _judged(name: str) -> str:
    return _with(name, SIZES[1])


SHAKESPEARE = Reproduction(
    name="fednar-shakespeare",
    paper="fednar",
    source="Table 2",
    title="Shakespeare, six backbones with and without FedNAR",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=2, **SMALL),
        "medium": sized(
            seeds=5,
            minutes=40,
            tuning=Tuning(CONTESTANTS, VALIDATION, settings={"rounds": TUNING_ROUNDS}, tie=TIE),
            settling=Settling(ACCURACY, within=1.0),
            **MEDIUM,
        ),
        "paper": sized(seeds=1, minutes=125 * DAY, **PAPER),
    },
    runs=_runs,
    columns={
        ACCURACY: ACCURACY_COLUMN,
        "gain": score_column("gain by FedNAR", "+.2f", POINT, of_one_run=False),
        "gain_of_backbone": score_column("its mean over both WD", "+.2f", POINT, of_one_run=False),
        "of_backbone": score_column("accuracy, mean over both WD", ".2f", POINT, of_one_run=False),
        "of_all": score_column("accuracy, mean over everything", ".2f", POINT, False, partial(same_side, PAIRS)),
        TO_TARGET: to_target_column(MEDIUM),
        "clipped": Column("steps clipped, %", ".0f"),
        LENGTH: LENGTH_COLUMN,
    },
    derive=partial(plug_in_gains, PAIRS),
    reported=printed_pairs(PAIRS, REPORTED_TABLE),
    looks=2,
    claims=(
        Claim(
            "FedNAR helps, on average over everything.",
            higher(_judged(with_nar(FEDAVG)), _judged(FEDAVG), "of_all"),
        ),
        *(
            Claim(
                f"FedNAR helps {name}, on average over both WD.",
                higher(_judged(with_nar(name)), _judged(name), "of_backbone"),
                "7",
            )
            for name in BACKBONES
        ),
        *(
            Claim(
                f"FedNAR converges faster at the larger WD: fewer rounds to the target accuracy ({name}).",
                sooner(_judged(with_nar(name)), _judged(name)),
            )
            for name in (FEDAVG, SCAFFOLD)
        ),
    ),
    figures=tuple(
        Curves(
            size,
            ACCURACY,
            Axes(f"FedAvg and SCAFFOLD, {size} weight decay", "round", "accuracy, %"),
            tuple(_with(label, size) for name in (FEDAVG, SCAFFOLD) for label in (name, with_nar(name))),
        )
        for size in SIZES
    ),
    notes=(
        BASELINE,
        "The paper's weight decays are 1e-4 and 1e-3 over 30,000 local steps. Below paper scale there are 100 to "
        "1,600, so they are 1e-3 and 1e-2 at a rate of 0.5 or more; the paper's would do nothing in so few steps.",
        "At medium scale a tenth of each role's text is for validation. It tunes each method's rate at the smaller WD, "
        "and selects the round that is tested.",
        "Candidates: a first plan ended at 1.5, which eight of the twelve contestants chose. 4.0 was added after a "
        "look at the verdicts; two contestants chose it and were judged again, and end lower with it than with 1.5.",
        "Below paper scale a transformer of one block and width 32 predicts every character of windows of 20 for 20 "
        "roles; at paper scale the paper's predicts the one after windows of 80, as the released code does. Its "
        "gradients have norms around 0.5, so the largest norm is 0.25 instead of 10.",
        "The paper's table is not as consistent as its text: FedNAR lowers FedProx at 1e-3 and SCAFFOLD and FedAdam at "
        "1e-4. The released scripts' rates differ from the paper's for three backbones; the paper's are used here.",
        "The text is the MIT edition, not LEAF's.",
    ),
)
