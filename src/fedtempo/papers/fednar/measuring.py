"""What is measured of a FedNAR run: accuracy, rounds to a target, how often it clips, how long the model is."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch

from fedtempo.papers.framework.definitions import Column, Curve, Measured, score_column
from fedtempo.params import squared_norm
from fedtempo.training.result import Result

ACCURACY, FINAL, VALIDATION, TO_TARGET = "accuracy", "final", "validation", "rounds_to_target"
LENGTH, CHECKSUM = "parameter_norm", "checksum"
POINT = 1.0
"""One point of accuracy, in percent: smaller differences are none."""
ACCURACY_COLUMN = score_column("test accuracy, %", ".2f", POINT)
FINAL_COLUMN = score_column("test accuracy after the last round, %", ".2f", POINT)
LENGTH_COLUMN = Column("norm of the model", ".2f")


def accuracy(result: Result, last: int) -> Measured:
    """The shared model's accuracy in percent: `accuracy` on test rows, `validation`, and the curve `accuracy`.

    With validation rows, of the round that they select, and the curve is theirs. Without, the mean of the last
    evaluations on test rows.
    """
    scored = [(report.round + 1, report.scores) for report in result.history if report.scores is not None]
    values = [100 * scores.existing_before.summary("accuracy")["weighted_mean"] for _, scores in scored]
    curve = Curve(tuple(float(number) for number, _ in scored), tuple(values))
    selected = result.selected
    if selected is None or selected.validation is None or selected.test is None:
        return Measured({ACCURACY: fmean(values[-last:]), VALIDATION: math.nan}, {ACCURACY: curve})
    found = {ACCURACY: selected.test, VALIDATION: selected.validation}
    percent = {
        name: 100 * scores.existing_before.summary("accuracy")["weighted_mean"] for name, scores in found.items()
    }
    return Measured(percent, {ACCURACY: curve})


def final(result: Result) -> Measured:
    """`final`: the accuracy in percent of the last round's model on all test rows, whatever validation selects."""
    problem = result.experiment.federation.problem
    hits = rows = 0
    for client in problem.data.clients.tolist():
        labels = problem.client_rows(client, "test")["y"]
        guesses = result.predict(client, "test", "last").argmax(-1)
        hits, rows = hits + int(torch.count_nonzero(guesses == labels)), rows + labels.numel()
    return Measured({FINAL: 100 * hits / rows})


def rounds_to(result: Result, target: float) -> Measured:
    """`rounds_to_target`: the first evaluated round with that accuracy; the round after the run's if there is none."""
    curve = accuracy(result, 1).curves[ACCURACY]
    reached = (number for number, value in zip(curve.x, curve.y, strict=True) if value >= target)
    return Measured({TO_TARGET: next(reached, result.experiment.rounds + 1.0)})


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


def growth(result: Result) -> Measured:
    """The shared model's norm in the first and in the last third of the rounds, their difference, and its curve.

    Nothing where the history does not keep the models, because they are large.
    """
    if not all(report.params for report in result.history):
        return Measured()
    norms = [float(squared_norm(report.params)) ** 0.5 for report in result.history]
    third = max(1, len(norms) // 3)
    first, last = fmean(norms[:third]), fmean(norms[-third:])
    curve = Curve(tuple(float(number) for number in range(1, len(norms) + 1)), tuple(norms))
    return Measured({"norm_first": first, "norm_last": last, "norm_change": last - first}, {"norm": curve})


def plug_in_gains(
    pairs: Mapping[str, Mapping[str, str]], values: Mapping[str, Mapping[str, float]], column: str = ACCURACY
) -> dict[str, dict[str, float]]:
    """What the plug-in adds to each baseline (`gain`), and means over a backbone's settings and over everything.

    `pairs` leads from a backbone to its labels with the plug-in, and from these to their baselines. Labels with and
    without the plug-in both get the means, `of_backbone` and `of_all`, so that claims compare them seed by seed.
    """
    found: dict[str, dict[str, float]] = {}
    sides = ([*labels] for labels in pairs.values()), ([*labels.values()] for labels in pairs.values())
    for side in map(list, sides):
        overall = fmean(values[label][column] for labels in side for label in labels)
        for labels in side:
            mean = fmean(values[label][column] for label in labels)
            found |= {label: {"of_backbone": mean, "of_all": overall} for label in labels}
    for paired in pairs.values():
        for label, other in paired.items():
            found[label]["gain"] = values[label][column] - values[other][column]
            found[label]["gain_of_backbone"] = found[label]["of_backbone"] - found[other]["of_backbone"]
    return found


def same_side(pairs: Mapping[str, Mapping[str, str]], label: str) -> tuple[str, ...]:
    """The labels that a mean over all backbones is made of: all with the plug-in, or all without."""
    plugged = tuple(one for labels in pairs.values() for one in labels)
    return plugged if label in plugged else tuple(one for labels in pairs.values() for one in labels.values())


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
