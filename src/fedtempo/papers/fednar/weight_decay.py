"""The FedNAR paper's Figures 1 and 2: what too large a weight decay costs the six backbones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from fedtempo.papers.fednar.measuring import FINAL, POINT
from fedtempo.papers.fednar.setting import (
    ACCURACY_NOTE,
    AUGMENTATION,
    BACKBONES,
    BASELINE,
    DAY,
    FEDAVG,
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
)
from fedtempo.papers.framework.claims import Answer, Claim, Rule, Verdict, any_of, at_least, higher, lower
from fedtempo.papers.framework.definitions import PaperRun, Scale, Values, score_column, sized
from fedtempo.papers.framework.figures import Sweep
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

WEIGHT_DECAYS = (1e-4, 1e-3, 1e-2, 5e-2, 1e-1)
GOOD = 1e-2
TWO = (FEDAVG, SCAFFOLD)
ON_AVERAGE = "on average over backbones"

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
        for methods in [algorithms(name, scale, scale[steps], weight_decay, scale["max_norm"])]
    ]


def weight_decay_drops(values: Values) -> Values:
    """What the largest weight decay costs against the best (`drop`), its mean over the backbones (`mean_drop`).

    And what the best adds to the smallest (`rise`). All on the label with the largest weight decay. Means are over the
    backbones that every setting has.
    """
    drops: dict[str, dict[str, float]] = {}
    everywhere = [name for name in BACKBONES if all(_largest(setting, name) in values for setting in SETTINGS)]
    for setting in SETTINGS:
        there = [name for name in BACKBONES if _largest(setting, name) in values]
        for name in there:
            swept = [values[_swept(name, setting, weight_decay)][FINAL] for weight_decay in WEIGHT_DECAYS]
            # NumPy's maximum, as Python's may pass over a NaN.
            best = float(np.max(swept))
            drops[_largest(setting, name)] = {"drop": best - swept[-1], "rise": best - swept[0]}
        mean = fmean(drops[_largest(setting, name)]["drop"] for name in everywhere)
        drops[_largest(setting)]["mean_drop"] = mean
    return drops


def _largest(setting: str, name: str = FEDAVG) -> str:
    return _swept(name, setting, WEIGHT_DECAYS[-1])


def _others(name: str) -> list[str]:
    """The backbone's labels but the one on which its rate is tuned."""
    labels = [_swept(name, setting, weight_decay) for setting in SETTINGS for weight_decay in WEIGHT_DECAYS]
    return [label for label in labels if label != _swept(name, SKEWED, GOOD)]


def where_run(label: str, rule: Rule) -> Rule:
    """A rule about a label that not every scale has."""

    def checked(outcome: Outcome) -> Verdict:
        if label in (*outcome.measured, *outcome.left_out):
            return rule(outcome)
        return Verdict(Answer.NOT_RUN, f"{label} is no run of this scale")

    return checked


def some_backbone(column: str, bound: float) -> Rule:
    """Some backbone has at least as much of the column in the skewed setting."""
    labels = [_largest(SKEWED, name) for name in BACKBONES]
    return any_of(*(where_run(label, at_least(label, column, bound)) for label in labels))


SWEEP = Reproduction(
    name="fednar-weight-decay",
    paper="fednar",
    source="Figures 1 and 2",
    title="CIFAR-10 with clip-then-decay, over weight decay",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, backbones=TWO, **SMOKE),
        "small": sized(seeds=3, minutes=2, backbones=TWO, **SMALL),
        "medium": sized(
            5,
            60,
            fednar_tuning({name: [_swept(name, SKEWED, GOOD), *_others(name)] for name in BACKBONES}),
            SETTLED,
            backbones=BACKBONES,
            **MEDIUM,
        ),
        "paper": sized(seeds=1, minutes=300 * DAY, backbones=BACKBONES, **PAPER),
    },
    runs=_sweep_runs,
    columns=columns_with(
        drop=score_column("lost against the best WD", ".2f", POINT, of_one_run=False),
        mean_drop=score_column("its mean over backbones", ".2f", POINT, of_one_run=False),
        rise=score_column("the best WD, over the smallest", ".2f", POINT, of_one_run=False),
    ),
    derive=weight_decay_drops,
    claims=(
        *(
            Claim(
                f"A weight decay that is too large costs accuracy: 0.1 is worse than 0.01 in setting (a) ({name}).",
                where_run(_largest(SKEWED, name), lower(_largest(SKEWED, name), _swept(name, SKEWED, GOOD), FINAL)),
                "3",
            )
            for name in BACKBONES
        ),
        Claim("It can cost more than ten points (some backbone).", some_backbone("drop", 10.0), "3"),
        Claim(
            "The best weight decay can add more than six points to the smallest (some backbone).",
            some_backbone("rise", 6.0),
            "3",
        ),
        Claim(
            f"With fewer local steps (b) too large a weight decay costs less, {ON_AVERAGE}.",
            higher(_largest(SKEWED), _largest(SHORT), "mean_drop"),
            "3",
        ),
        Claim(
            f"With balanced data (c) too large a weight decay costs less, {ON_AVERAGE}.",
            higher(_largest(SKEWED), _largest(BALANCED), "mean_drop"),
            "3",
        ),
    ),
    figures=tuple(
        Sweep(
            letter,
            FINAL,
            Axes(setting, "weight decay", "test accuracy, %", log_x=True),
            {name: {wd: _swept(name, setting, wd) for wd in WEIGHT_DECAYS} for name in BACKBONES},
        )
        for letter, setting in zip("abc", SETTINGS, strict=True)
    ),
    notes=(
        BASELINE,
        "Below medium two of the six backbones. 'Fewer steps' are 3 of 10 below paper scale and 5 of 20 at it.",
        "Accuracy is that of the last round, as in the paper: a round that validation selects comes before the harm.",
        "Each backbone's rate is tuned at a weight decay of 0.01 in setting (a), and used for all.",
        SMALL_CIFAR,
        ACCURACY_NOTE,
        AUGMENTATION,
    ),
)
