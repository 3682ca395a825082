"""What the FedNAR paper's experiments share: six backbones with and without the plug-in, and what is measured."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
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
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.framework.frame import Column, Curve, Data, Measured, Model, Scale, Training
from fedtempo.params import squared_norm
from fedtempo.schedules import Schedule, per_round
from fedtempo.training.result import Result

FEDAVG, FEDPROX, SCAFFOLD = "FedAvg", "FedProx", "SCAFFOLD"
FEDEXP, FEDADAM, FEDAVGM = "FedExP", "FedAdam", "FedAvgM"
BACKBONES = (FEDAVG, FEDPROX, SCAFFOLD, FEDEXP, FEDADAM, FEDAVGM)
DECAY = 0.998
ACCURACY, LENGTH, CHECKSUM = "accuracy", "parameter_norm", "checksum"
ACCURACY_COLUMN = Column("test accuracy, %", ".2f")
LENGTH_COLUMN = Column("norm of the model", ".2f")
ALPHAS = (0.3, 1.0, 10.0)
SMOKE = {
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
}
SMALL = {
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
PAPER = {
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
}
DAY = 24 * 60

NO_AUGMENTATION = (
    "Images are neither cropped nor flipped: the library has no augmentation, so the paper's accuracy is out of reach "
    "even at paper scale. The data are whatever CIFAR-10 archive is in the data folder; pages here come from 10,000 "
    "training and 2,000 test images."
)
SMALL_CIFAR = (
    "Below paper scale a network with two convolutions and GroupNorm (11,666 parameters) stands in for ResNet-18. Its "
    "gradients have norms around 5, so the largest norm is 1 instead of 10: at 10 nothing is clipped after the first "
    "round. The rate is 0.1 instead of 0.01, so a step decays the weights as much as ten of the paper's, which are "
    "20,000 on every path through the rounds; a small run has 150 to 300."
)
ACCURACY_NOTE = (
    "Accuracy is the shared model's on all test rows, the mean of the last evaluations. Settings are the paper's, or "
    "were fixed after a few probes of FedAvg with seed 0 that looked at test rows."
)
BASELINE = "A backbone's name alone is the paper's baseline: clip the gradient, then add the weight decay, unclipped."


def columns_with(**own: Column) -> dict[str, Column]:
    """Accuracy, the experiment's own columns, how often a step was clipped, how long the model is."""
    return {ACCURACY: ACCURACY_COLUMN, **own, "clipped": Column("steps clipped, %", ".0f"), LENGTH: LENGTH_COLUMN}


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


def algorithms(name: str, lr: float, steps: int, weight_decay: float, max_norm: float) -> dict[str, Algorithm]:
    """The baseline under the backbone's name, the plug-in under `with_nar(name)`; rounds count from 1 (Alg. 2)."""
    plain = backbone(name, per_round(lr * DECAY, DECAY), steps)
    settings: dict[str, Any] = {"weight_decay": weight_decay, "max_norm": max_norm}
    return {name: clip_then_decay(plain, **settings), with_nar(name): fednar(plain, **settings)}


def with_nar(name: str) -> str:
    """A backbone's name with the plug-in."""
    return f"{name} + FedNAR"


def fednar_settings(scale: Scale, seed: int) -> dict[str, Any]:
    """Settings of `fedtempo.run` that all runs have. Nobody fine-tunes: the paper has one model for all."""
    return {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": scale["batch_size"],
        "seed": seed,
        "evaluation": Evaluation(every=scale["every"], steps=0),
        "backend": "serial",
    }


def dirichlet_cifar10(scale: Scale, seed: int, alpha: float) -> Data:
    """Equal clients whose classes are mixed as Dirichlet(alpha) draws them."""
    return Data("cifar10", dirichlet(scale["clients"], alpha, equal=True), seed, rows=scale["rows"])


def on_cifar10(label: str, scale: Scale, seed: int, alpha: float, algorithm: Algorithm) -> Training:
    """A labelled run with the scale's network."""
    measures = (partial(accuracy, last=scale["last"]), clipping, model)
    return Training(
        label,
        dirichlet_cifar10(scale, seed, alpha),
        Model(scale["model"]),
        algorithm,
        fednar_settings(scale, seed),
        measures,
    )


def accuracy(result: Result, last: int) -> Measured:
    """The shared model's accuracy in percent on all test rows: its curve, and the mean of the last evaluations."""
    scored = [(report.round + 1, report.scores) for report in result.history if report.scores is not None]
    values = [100 * scores.existing_before.summary("accuracy")["weighted_mean"] for _, scores in scored]
    curve = Curve(tuple(float(number) for number, _ in scored), tuple(values))
    return Measured({ACCURACY: fmean(values[-last:])}, {ACCURACY: curve})


def clipping(result: Result) -> Measured:
    """How many steps were clipped, and the mean norm of those, over the rounds and in their first and last thirds."""
    history = [(report.measurements, report.costs.steps) for report in result.history]
    shares = [100 * measured["clipped_steps"] / steps for measured, steps in history]
    norms = [measured["clipped_norm"] for measured, _ in history]
    third = max(1, len(history) // 3)
    rounds = tuple(float(number) for number in range(1, len(history) + 1))
    norm_first, norm_last = (_mean_where(norms[part], shares[part]) for part in (slice(third), slice(-third, None)))
    values = {
        "clipped": fmean(shares),
        "clipped_first": fmean(shares[:third]),
        "clipped_last": fmean(shares[-third:]),
        "clipped_change": fmean(shares[-third:]) - fmean(shares[:third]),
        "clipped_norm_first": norm_first,
        "clipped_norm_last": norm_last,
        "clipped_norm_change": norm_last - norm_first,
    }
    return Measured(values, {"clipped": Curve(rounds, tuple(shares)), "clipped_norm": Curve(rounds, tuple(norms))})


def _mean_where(norms: Sequence[float], shares: Sequence[float]) -> float:
    """The mean norm of the rounds with clipped steps; NaN where there are none."""
    there = [norm for norm, share in zip(norms, shares, strict=True) if share > 0]
    return fmean(there) if there else math.nan


def model(result: Result) -> Measured:
    """The norm of all parameters at the end, and a checksum of their bytes: equal for equal bits."""
    parameters = result.served("last")
    checksum = 0
    for name in sorted(parameters):
        checksum = zlib.crc32(parameters[name].detach().cpu().contiguous().numpy().tobytes(), checksum)
    return Measured({LENGTH: float(squared_norm(parameters)) ** 0.5, CHECKSUM: float(checksum)})


def plug_in_gains(
    pairs: Mapping[str, Mapping[str, str]], values: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """What the plug-in adds to each baseline (`gain`), and its means over a backbone's settings and over everything.

    `pairs` leads from a backbone to its labels with the plug-in, and from these to their baselines.
    """
    gain = {
        backbone_name: {label: values[label][ACCURACY] - values[other][ACCURACY] for label, other in labels.items()}
        for backbone_name, labels in pairs.items()
    }
    overall = fmean(value for labels in gain.values() for value in labels.values())
    return {
        label: {"gain": value, "gain_of_backbone": fmean(labels.values()), "gain_of_all": overall}
        for labels in gain.values()
        for label, value in labels.items()
    }


def printed_pairs(
    pairs: Mapping[str, Mapping[str, str]], table: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float]]:
    """A table as the paper prints it, with the gains that follow from it.

    A backbone's row has two accuracies a setting: the baseline's, then the plug-in's.
    """
    cells = {
        label: {ACCURACY: accuracy}
        for name, row in table.items()
        for label, accuracy in zip((one for pair in pairs[name].items() for one in reversed(pair)), row, strict=True)
    }
    gains = plug_in_gains(pairs, cells)
    return {label: {**cell, **gains.get(label, {})} for label, cell in cells.items()}
