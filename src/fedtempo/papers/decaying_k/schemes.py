"""The decaying-K paper's three schemes and three K, what is measured of each, and its claims, for any data set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedtempo.algorithms import Algorithm, fedadam, fedavg
from fedtempo.evaluation.protocol import Evaluation, Scores
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.claims import Claim, all_of, higher, lower
from fedtempo.papers.framework.definitions import (
    FIRST_TUNING_SEED,
    Column,
    Curve,
    Data,
    Measured,
    Model,
    PaperRun,
    Scale,
    Training,
    TunedSetting,
    Tuning,
    Values,
    score_column,
)
from fedtempo.papers.framework.figures import Curves, Figure
from fedtempo.papers.framework.measures import costs
from fedtempo.papers.framework.svg import Axes
from fedtempo.schedules import decaying_k, decaying_lr
from fedtempo.theory import total_local_steps
from fedtempo.training.result import Result

SIZES = ("low K", "middle K", "high K")
CONSTANT, GAMMA, STEPS = "constant", "decaying gamma", "decaying K"
SCHEMES = (CONSTANT, GAMMA, STEPS)
PAPER_ROUNDS = 4000
MOST_POINTS = 200
"""A curve of errors shows at most about so many."""
SMOOTHED = 20
"""The training error is smoothed over this part of the run: 200 of 4,000 rounds."""
AS_GOOD = -0.01
"""Within a point of accuracy (or recall) counts as reaching it."""
GROUP = "existing_before"
"""The global model, as clients receive it: this paper does not fine-tune."""
BEST, ERROR, FIRST_K, USED, AT_STEPS, EARLY = "best", "error", "first_k", "steps_used", f"{GROUP}/at_steps", "early"
VALIDATION, AT_STOP, TO_TARGET = "validation", "steps_selected", "steps_to_target"
POINT = 0.01


@dataclass(frozen=True)
class SchemeRates:
    """A row of Table 5: K, the server's and the clients' first rates, and the three decays over 4,000 rounds."""

    k: int
    eta: float
    eta_decay: float
    gamma: float
    gamma_decay: float
    k_decay: float
    adam: bool = False


def label(size: str, scheme: str) -> str:
    """A run's label."""
    return f"{size}, {scheme}"


def over(decay: float, scale: Scale) -> float:
    """The decay per round with which the scale's rounds decay as far as 4,000 do with the paper's.

    `gentlest` bounds it from below: with few rounds a server whose rate is gone after a tenth of them has not learnt.
    """
    return float(max(decay, scale["gentlest"]) ** (PAPER_ROUNDS / scale["rounds"]))


def algorithm(rates: SchemeRates, size: str, scheme: str, scale: Scale) -> Algorithm:
    """FedSGD with a server rate that decays (Algorithm 1), or FedAdam (Algorithm 3), under one of the schemes."""
    first = scale.rate(label(size, scheme), rates.gamma)
    gamma = decaying_lr(first, over(rates.gamma_decay, scale)) if scheme == GAMMA else first
    steps = decaying_k(rates.k, rates.k_decay ** (PAPER_ROUNDS / scale["rounds"])) if scheme == STEPS else rates.k
    if rates.adam:
        return fedadam(gamma, steps, server_lr=rates.eta, bias_correction=True)
    server = decaying_lr(rates.eta, over(rates.eta_decay, scale))
    return fedavg(gamma, steps, server_lr=server, weighting="samples")


def trajectory(result: Result, first_k: int) -> Measured:
    """Best score of the global model over all test rows, lowest smoothed training error, and both as curves.

    With validation rows the curve is theirs, and the best is the test score of the round that they select.
    """
    evaluated = [(report, report.scores) for report in result.history if report.scores is not None]
    scores = [_over_rows(found) for _, found in evaluated]
    selected = result.selected
    best, validation = max(scores), math.nan
    if selected is not None and selected.validation is not None and selected.test is not None:
        best, validation = _over_rows(selected.test), _over_rows(selected.validation)
    rounds = tuple(report.round + 1.0 for report, _ in evaluated)
    width = max(1, len(result.history) // SMOOTHED)
    errors = np.convolve([report.loss for report in result.history], np.full(width, 1 / width), "valid")
    shown = slice(None, None, max(1, len(errors) // MOST_POINTS))
    return Measured(
        {
            BEST: best,
            VALIDATION: validation,
            ERROR: float(errors.min()),
            EARLY: float(np.interp(len(result.history) / 4, rounds, scores)),
            FIRST_K: first_k,
        },
        {
            "score": Curve(rounds, tuple(scores)),
            "by_steps": Curve(tuple(float(report.total_costs.steps) for report, _ in evaluated), tuple(scores)),
            "error": Curve(
                tuple(np.arange(width, len(result.history) + 1.0)[shown].tolist()), tuple(errors[shown].tolist())
            ),
        },
    )


def _over_rows(scores: Scores) -> float:
    """The global model's score over the rows of all users."""
    return scores.existing_before.summary(scores.metric)["weighted_mean"]


def step_costs(result: Result, target: float, most: float) -> Measured:
    """Steps until the round with the best score, which is what an early stop pays for, and until the target.

    A run that never reaches the target counts with `most`: the steps of constant K in all rounds.
    """
    evaluated = [(report.total_costs.steps, _over_rows(report.scores)) for report in result.history if report.scores]
    best = max(value for _, value in evaluated)
    return Measured(
        {
            AT_STOP: float(next(steps for steps, value in evaluated if value == best)),
            TO_TARGET: float(next((steps for steps, value in evaluated if value >= target), most)),
        }
    )


def scheme_trainings(
    scale: Scale, seed: int, data: Data, model: Model, rows: Sequence[SchemeRates], loss: str | None = None
) -> Sequence[PaperRun]:
    """The nine runs of a figure: three K, each constant, with decaying gamma and with decaying K."""
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": 32,
        "seed": seed,
        "evaluation": Evaluation(every=scale["every"], steps=0, patience=scale["patience"]),
        **({"loss": loss} if loss else {}),
    }
    runs = []
    for size, rates in zip(SIZES, rows, strict=True):
        decayed = decaying_k(rates.k, rates.k_decay ** (PAPER_ROUNDS / scale["rounds"]))
        budget = scale["cohort"] * total_local_steps(decayed, scale["rounds"])
        spent = partial(at_budgets, group=GROUP, budgets={"steps": budget}, statistic="weighted_mean")
        most = float(scale["cohort"] * rates.k * scale["rounds"])
        taken = partial(step_costs, target=scale["target"], most=most)
        measures = (partial(trajectory, first_k=rates.k), costs, spent, taken)
        for scheme in SCHEMES:
            method = algorithm(rates, size, scheme, scale)
            runs.append(Training(label(size, scheme), data, model, method, settings, measures))
    return runs


def scheme_tuning(gammas: Sequence[Sequence[float]], rounds: int, seeds: int = 1) -> Tuning:
    """The clients' first rate of each K and of each scheme, by the score on validation rows, as the paper searches.

    Each K has candidates of its own, the same for its three schemes. `rounds` are a trial's.
    """
    contestants = {
        label(size, scheme): TunedSetting(label(size, scheme), tuple(candidates))
        for size, candidates in zip(SIZES, gammas, strict=True)
        for scheme in SCHEMES
    }
    tried_on = tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + seeds))
    return Tuning(contestants, VALIDATION, seeds=tried_on, settings={"rounds": rounds})


def columns(score_name: str) -> Mapping[str, Column]:
    """The columns of Table 1, with the score at decaying K's steps, which makes the schemes cost the same."""
    return {
        FIRST_K: Column("K in the first round", ".0f", exact=True),
        ERROR: Column("lowest training error"),
        BEST: score_column(f"highest {score_name}"),
        EARLY: Column(f"{score_name} after a quarter of the rounds", margin=POINT),
        AT_STEPS: Column(f"{score_name} at decaying K's steps", margin=POINT),
        TO_TARGET: Column("steps to the target", ".0f"),
        AT_STOP: Column(f"steps to the highest {score_name}", ".0f"),
        USED: Column("steps, of constant K", ".3f", exact=True),
        "steps": Column("steps", ".0f", exact=True),
    }


def reported(k: Sequence[int], gamma: Values, steps: Values) -> Values:
    """Table 1: rows by scheme, (low, middle, high) by column."""
    rows: dict[str, dict[str, float]] = {
        label(size, scheme): {FIRST_K: first} for size, first in zip(SIZES, k, strict=True) for scheme in SCHEMES
    }
    for scheme, table in ((GAMMA, gamma), (STEPS, steps)):
        for column, values in table.items():
            for size, value in zip(SIZES, values.values(), strict=True):
                rows[label(size, scheme)][column] = value
    return rows


def by_size(low: float, middle: float, high: float) -> Mapping[str, float]:
    """Three values of a row of Table 1."""
    return dict(zip(SIZES, (low, middle, high), strict=True))


def claims() -> tuple[Claim, ...]:
    """What the paper says of every data set, and what we ask: steps until a score is reached, scores at equal steps."""
    matched = [
        Claim(
            f"{size}: decaying K reaches {other}'s score, less a point.",
            higher(label(size, STEPS), label(size, scheme), BEST, AS_GOOD),
            "4.2",
        )
        for scheme, other in ((CONSTANT, "constant K"), (GAMMA, "decaying gamma"))
        for size in SIZES
    ]
    cheaper = [
        Claim(
            f"{size}: decaying K takes fewer steps than constant K and than decaying gamma to {where}.",
            all_of(*(lower(label(size, STEPS), label(size, other), column) for other in (CONSTANT, GAMMA))),
        )
        for column, where in ((AT_STOP, "its highest score, where an early stop ends"), (TO_TARGET, "the target score"))
        for size in SIZES
    ]
    equal_steps = [
        Claim(
            f"{size}: at equal steps decaying K is ahead of constant K and of decaying gamma (follows from the two).",
            all_of(*(higher(label(size, STEPS), label(size, other), AT_STEPS) for other in (CONSTANT, GAMMA))),
        )
        for size in SIZES
    ]
    return (
        *matched,
        *cheaper,
        *equal_steps,
        Claim(
            "Higher K converges faster (after a quarter of the rounds).",
            higher(label("high K", CONSTANT), label("low K", CONSTANT), EARLY),
            "4.2",
        ),
        Claim(
            "Higher K reaches lower training error.",
            lower(label("high K", CONSTANT), label("low K", CONSTANT), ERROR),
            "4.2",
        ),
    )


def no_worse(scheme: str) -> tuple[Claim, ...]:
    """A scheme is as good as constant gamma and K, or better."""
    return tuple(
        Claim(
            f"{size}: with {scheme} the best score is that of constant gamma and K, or better (less a point).",
            higher(label(size, scheme), label(size, CONSTANT), BEST, AS_GOOD),
            "4.2",
        )
        for size in SIZES
    )


def scheme_figures(number: int, score_name: str) -> tuple[Figure, ...]:
    """Panels (a), (b), (c) of training error and score over rounds, and the score over steps."""
    panels = tuple(zip("abc", SCHEMES, strict=True))
    lines = [
        Curves(
            f"{panel}-{curve}",
            curve,
            Axes(f"Figure {number} ({panel}): {scheme}", "round", heading),
            tuple(label(size, scheme) for size in SIZES),
        )
        for curve, heading in (("error", "training error"), ("score", score_name))
        for panel, scheme in panels
    ]
    steps = Axes(f"Figure {number}, high K, over steps", "steps of all clients", score_name)
    return (*lines, Curves("steps", "by_steps", steps, tuple(label("high K", scheme) for scheme in SCHEMES)))
