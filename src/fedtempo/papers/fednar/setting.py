"""What the FedNAR paper's experiments share: six backbones with and without the plug-in, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedtempo.algorithms import (
    Algorithm,
    clip_then_decay,
    fedadam,
    fedavg,
    fedavgm,
    fedexp,
    fednar,
    fedprox,
    scaffold,
)
from fedtempo.data import dirichlet
from fedtempo.data.augment import random_crop, random_flip
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.fednar.measuring import (
    ACCURACY,
    ACCURACY_COLUMN,
    FINAL,
    FINAL_COLUMN,
    LENGTH,
    LENGTH_COLUMN,
    POINT,
    TO_TARGET,
    VALIDATION,
    accuracy,
    clipping,
    final,
    growth,
    model,
    rounds_to,
)
from fedtempo.papers.framework.claims import Rule, Verdict, lower
from fedtempo.papers.framework.definitions import (
    Column,
    Data,
    Measure,
    Model,
    Scale,
    Settling,
    Training,
    TunedSetting,
    Tuning,
)
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.schedules import Schedule, per_round

FEDAVG, FEDPROX, SCAFFOLD = "FedAvg", "FedProx", "SCAFFOLD"
FEDEXP, FEDADAM, FEDAVGM = "FedExP", "FedAdam", "FedAvgM"
BACKBONES = (FEDAVG, FEDPROX, SCAFFOLD, FEDEXP, FEDADAM, FEDAVGM)
DECAY = 0.998
ALPHAS = (0.3, 1.0, 10.0)
SMOKE: dict[str, Any] = {
    "rounds": 1,
    "clients": 4,
    "cohort": 2,
    "steps": 1,
    "few_steps": 1,
    "batch_size": 4,
    "rows": 60,
    "every": 1,
    "last": 1,
    "model": "group_norm_cnn",
    "lr": 0.1,
    "max_norm": 1.0,
    "parts": {},
    "patience": None,
    "augmented": False,
    "target": 40.0,
}
SMALL: dict[str, Any] = {
    **SMOKE,
    "rounds": 15,
    "clients": 20,
    "cohort": 4,
    "steps": 10,
    "few_steps": 3,
    "batch_size": 20,
    "rows": None,
    "every": 3,
    "last": 3,
}
MEDIUM: dict[str, Any] = {
    **SMALL,
    "rounds": 150,
    "every": 10,
    "last": 1,
    "parts": {"validation": 0.1, "test": 1 / 6},
}
"""Every client keeps a tenth of its rows for validation; as many images are test rows as in the archive."""
PAPER: dict[str, Any] = {
    **SMALL,
    "rounds": 1000,
    "clients": 100,
    "cohort": 20,
    "steps": 20,
    "few_steps": 5,
    "batch_size": 50,
    "every": 20,
    "last": 1,
    "model": "resnet18",
    "lr": 0.01,
    "max_norm": 10.0,
    "augmented": True,
    "target": 80.0,
}
RATES = (0.03, 0.1, 0.3)
TIE = 0.2
"""Percent of accuracy: candidates that differ by no more are level."""
TUNING_ROUNDS = 60
"""A trial is shorter than a judged run."""
SETTLED = Settling(ACCURACY, within=2.0)
"""Four clients a round leave the curve noisy: a quarter of it says no more than two points."""
DAY = 24 * 60

AUGMENTATION = (
    "Images are cropped and flipped at random at paper scale and where the settings say `augmented True`. The data are "
    "whatever CIFAR-10 archive is in the data folder; pages here come from 10,000 training and 2,000 test images."
)
SMALL_CIFAR = (
    "Below paper scale a network with two convolutions and GroupNorm (11,666 parameters) stands in for ResNet-18. Its "
    "gradients have norms around 5, so the largest norm is 1 instead of 10: at 10 nothing is clipped after the first "
    "round. The rate is 0.1 instead of 0.01, so a step decays the weights as much as ten of the paper's, which are "
    "20,000 on every path through the rounds; a small run has 150 to 300, a medium run 1,500."
)
ACCURACY_NOTE = (
    "Accuracy is the shared model's on all test rows. A medium run has validation rows: they choose the rate, on seeds "
    "that are not judged, and the round whose model is tested. `After the last round` has no such choice, as in the "
    "paper. Below medium accuracy is the mean of the last evaluations, at a rate that was fixed after a few probes of "
    "FedAvg with seed 0 that looked at test rows."
)
BASELINE = "A backbone's name alone is the paper's baseline: clip the gradient, then add the weight decay, unclipped."


def columns_with(**own: Column) -> dict[str, Column]:
    """Accuracy, the experiment's own columns, how often a step was clipped, how long the model is."""
    return {
        ACCURACY: ACCURACY_COLUMN,
        FINAL: FINAL_COLUMN,
        **own,
        "clipped": Column("steps clipped, %", ".0f"),
        LENGTH: LENGTH_COLUMN,
    }


def to_target_column(scale: Mapping[str, Any]) -> Column:
    """Rounds to the target; less than the distance between two evaluations is no difference."""
    return Column("rounds to the target", ".0f", margin=float(scale["every"]))


def sooner(label: str, other: str) -> Rule:
    """`label` reaches the target in fewer rounds than `other`.

    Where neither ever does, the target is what `other` reaches in every seed, less a point: as in a fair comparison.
    """

    def rule(outcome: Outcome) -> Verdict:
        if any(_reaches_target(outcome, one) for one in (label, other)):
            return lower(label, other, TO_TARGET)(outcome)
        level = min(max(curve.y) for curve in outcome.curves(other, ACCURACY)) - POINT
        verdict = lower(label, other, TO_TARGET)(_rounds_to_level(outcome, (label, other), level))
        told = f"to {level:.1f} %, which {other} reaches in every seed, with a point to spare"
        return replace(verdict, reason=f"{verdict.reason}; {told}", deciding=f"{verdict.numbers}; {told}")

    return rule


def _rounds_to_level(outcome: Outcome, labels: Sequence[str], level: float) -> Outcome:
    """The outcome with the rounds to another target; a run that never reaches it has the round after the longest."""
    never = 1.0 + max(curve.x[-1] for one in labels for curve in outcome.curves(one, ACCURACY))
    changed = {}
    for one in labels:
        curves = outcome.curves(one, ACCURACY)
        rounds = [next((x for x, y in zip(curve.x, curve.y, strict=True) if y >= level), never) for curve in curves]
        runs = zip(outcome.measured[one], rounds, strict=True)
        changed[one] = tuple(replace(run, values={**run.values, TO_TARGET: reached}) for run, reached in runs)
    return replace(outcome, measured={**outcome.measured, **changed})


def _reaches_target(outcome: Outcome, label: str) -> bool:
    """Whether some seed does: a run that does not has a round after its last evaluation."""
    pairs = zip(outcome.values(label, TO_TARGET), outcome.curves(label, ACCURACY), strict=True)
    return any(rounds <= curve.x[-1] for rounds, curve in pairs)


def fednar_tuning(labels: Mapping[str, Sequence[str]], rates: tuple[float, ...] = RATES) -> Tuning:
    """Every contestant's rate by accuracy on validation rows: tuned on its first label, used for all of them."""
    contestants = {name: TunedSetting(first, rates, tuple(others)) for name, (first, *others) in labels.items()}
    return Tuning(contestants, VALIDATION, settings={"rounds": TUNING_ROUNDS}, tie=TIE)


def backbone(name: str, lr: Schedule, steps: int) -> Algorithm:
    """One of the six, with the settings of the released scripts."""
    makers: dict[str, Callable[[], Algorithm]] = {
        FEDAVG: partial(fedavg, lr, steps),
        FEDPROX: partial(fedprox, lr, steps, mu=0.001),
        SCAFFOLD: partial(scaffold, lr, steps),
        FEDEXP: partial(fedexp, lr, steps, eps=0.0),
        FEDADAM: partial(fedadam, lr, steps, server_lr=0.1, eps=per_round(0.01, DECAY**2), fednar_compat=True),
        FEDAVGM: partial(fedavgm, lr, steps, momentum=0.9),
    }
    return makers[name]()


def algorithms(name: str, scale: Scale, steps: int, weight_decay: float, max_norm: float) -> dict[str, Algorithm]:
    """The baseline under the backbone's name, the plug-in under `with_nar(name)`; rounds count from 1 (Alg. 2).

    Each has the rate that was tuned for it.
    """
    settings: dict[str, Any] = {"weight_decay": weight_decay, "max_norm": max_norm}
    made = {}
    for label, plug_in in ((name, clip_then_decay), (with_nar(name), fednar)):
        rate = scale.rate(label, scale["lr"])
        made[label] = plug_in(backbone(name, per_round(rate * DECAY, DECAY), steps), **settings)
    return made


def with_nar(name: str) -> str:
    """A backbone's name with the plug-in."""
    return f"{name} + FedNAR"


def fednar_settings(scale: Scale, seed: int) -> dict[str, Any]:
    """Settings of `fedtempo.run` that all runs have. Nobody fine-tunes: the paper has one model for all."""
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": scale["batch_size"],
        "seed": seed,
        "evaluation": Evaluation(every=scale["every"], steps=0, patience=scale["patience"]),
        "backend": "serial",
    }
    return {**settings, "augment": random_crop(4) | random_flip()} if scale["augmented"] else settings


def dirichlet_cifar10(scale: Scale, seed: int, alpha: float) -> Data:
    """Equal clients whose classes are mixed as Dirichlet(alpha) draws them."""
    return Data("cifar10", dirichlet(scale["clients"], alpha, equal=True), seed, scale["parts"], rows=scale["rows"])


def fednar_measures(scale: Scale) -> tuple[Measure, ...]:
    """What is measured of every run."""
    to_target = partial(rounds_to, target=scale["target"])
    return (partial(accuracy, last=scale["last"]), final, to_target, clipping, model, growth)


def on_cifar10(label: str, scale: Scale, seed: int, alpha: float, algorithm: Algorithm) -> Training:
    """A labelled run with the scale's network."""
    return Training(
        label,
        dirichlet_cifar10(scale, seed, alpha),
        Model(scale["model"]),
        algorithm,
        fednar_settings(scale, seed),
        fednar_measures(scale),
    )
