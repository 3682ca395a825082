"""What no paper tried: FedDecay, FedNAR, decaying K, a server's Adam and personal heads, alone, in pairs, all together.

Every run pays per round what its ingredients cost, so scores are compared where the same number of local steps has
been taken (decaying K takes fewer a round) and where the same number of bytes has been sent (a personal head is not).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from fedtempo.algorithms import Algorithm, clip_then_decay, fedavg, fednar, fedper, with_server
from fedtempo.client.transforms import scale_by_adam
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.models import MODELS
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.definitions import (
    Data,
    Measure,
    Measured,
    Model,
    PaperRun,
    Scale,
    Training,
    TunedSetting,
    Tuning,
)
from fedtempo.papers.framework.measures import AXES, costs, learning, users
from fedtempo.params import size_in_bytes
from fedtempo.schedules import Rate, decaying_k, per_step
from fedtempo.theory import total_local_steps
from fedtempo.training.result import Result

FEDDECAY, FEDNAR, STEPS, ADAM, HEADS = "FedDecay", "FedNAR", "decaying K", "server Adam", "personal heads"
INGREDIENTS = (FEDDECAY, FEDNAR, STEPS, ADAM, HEADS)
NONE, ALL = "clip, then decay (FedAvg)", "all five"
PAIRS = {f"{one} + {other}": (one, other) for one, other in combinations(INGREDIENTS, 2)}
CHOSEN: Mapping[str, tuple[str, ...]] = {
    NONE: (),
    **{one: (one,) for one in INGREDIENTS},
    **PAIRS,
    ALL: INGREDIENTS,
}
"""Which ingredients each run has: none, each alone, every pair, all. The other 15 combinations are not run."""
LEAST_K = 0.2
"""Decaying K ends at this share of the first round's K."""
FACTORS = (0.3, 1.0, 3.0)
"""The candidates of a rate, of the one that it has where nothing is tuned."""
TUNING_ROUNDS = 100
"""Those of a trial."""
TUNING = 0.3
"""Fine-tuning's rate, of the training rate: nothing clips its gradients."""
USERS = "existing_after"
COSTS = ("steps", "bytes")


@dataclass(frozen=True)
class Strengths:
    """One setting of each ingredient, the same in every combination."""

    lr: float
    weight_decay: float
    max_norm: float = 2.0
    beta: float = 0.9
    server_lr: float = 0.01


def steps_of(scale: Scale) -> Rate:
    """Decaying K's schedule."""
    return decaying_k(scale["k"], LEAST_K ** (1 / scale["rounds"]))


def composed(ingredients: Sequence[str], strengths: Strengths, scale: Scale) -> Algorithm:
    """The algorithm that is made of these ingredients; without FedNAR, the same clipping and weight decay apart."""
    lr: Rate = per_step(strengths.lr, strengths.beta) if FEDDECAY in ingredients else strengths.lr
    steps = steps_of(scale) if STEPS in ingredients else scale["k"]
    plain = fedper(lr, steps, weighting="uniform") if HEADS in ingredients else fedavg(lr, steps)
    wrap = fednar if FEDNAR in ingredients else clip_then_decay
    local = wrap(plain, weight_decay=strengths.weight_decay, max_norm=strengths.max_norm)
    whole = with_server(local, scale_by_adam(), strengths.server_lr) if ADAM in ingredients else local
    # A server's optimizer has no text of its own, and runs are known by what their algorithm prints as.
    return replace(whole, name="composed", settings={"of": ingredients, "strengths": strengths, "steps": steps})


def budgets(scale: Scale, model: Model) -> Mapping[str, float]:
    """What the cheapest runs spend: the steps of decaying K, the bytes of a body without its head, both ways."""
    body = size_in_bytes(MODELS[model.name](**model.settings).get_submodule("body").state_dict())
    return {
        "steps": scale["cohort"] * total_local_steps(steps_of(scale), scale["rounds"]),
        "bytes": scale["cohort"] * scale["rounds"] * 2 * body,
    }


def most_spent(scale: Scale, model: Model) -> Mapping[str, float]:
    """What FedAvg spends in all rounds: no run spends more."""
    whole = size_in_bytes(MODELS[model.name](**model.settings).state_dict())
    return {
        "steps": float(scale["cohort"] * scale["k"] * scale["rounds"]),
        "bytes": float(scale["cohort"] * scale["rounds"] * 2 * whole),
    }


def spent_to_target(result: Result, target: float, most: Mapping[str, float]) -> Measured:
    """`steps_to_target` and `bytes_to_target`: spent until users first had this score; `most` where they never had."""
    reached = learning(result, USERS).curves[USERS].y
    evaluated = [report for report in result.history if report.scores is not None]
    first = next((report for report, value in zip(evaluated, reached, strict=True) if value >= target), None)
    return Measured({f"{cost}_to_target": most[cost] if first is None else float(AXES[cost](first)) for cost in COSTS})


def clipped_share(result: Result) -> Measured:
    """`clipped`: the share of steps that were clipped, in percent."""
    steps = sum(report.costs.steps for report in result.history)
    return Measured({"clipped": 100 * sum(report.measurements["clipped_steps"] for report in result.history) / steps})


def tuned_strengths(label: str, strengths: Strengths, scale: Scale) -> Strengths:
    """The strengths with the label's tuned rate: the server's where it has Adam, else the clients'."""
    if ADAM in CHOSEN[label]:
        return replace(strengths, server_lr=scale.rate(label, strengths.server_lr))
    return replace(strengths, lr=scale.rate(label, strengths.lr))


def composition_tuning(strengths: Strengths, factors: Sequence[float] = FACTORS) -> Tuning:
    """Three rates for every combination, of the one that it has where nothing is tuned; by validation rows.

    `factors` are those of a clients' rate; a server with Adam always has `FACTORS`.
    """

    def candidates(chosen: Sequence[str]) -> tuple[float, ...]:
        if ADAM in chosen:
            return tuple(factor * strengths.server_lr for factor in FACTORS)
        return tuple(factor * strengths.lr for factor in factors)

    contestants = {label: TunedSetting(label, candidates(chosen)) for label, chosen in CHOSEN.items()}
    return Tuning(contestants, f"{USERS}/best", settings={"rounds": TUNING_ROUNDS})


def composition_trainings(
    scale: Scale, seed: int, data: Data, model: Model, strengths: Strengths
) -> Sequence[PaperRun]:
    """One run for every chosen combination. All fine-tune at one rate, whatever was tuned."""
    protocol = Evaluation(
        every=scale["every"], users=scale["users"], lr=TUNING * strengths.lr, patience=scale["patience"]
    )
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": 16,
        "seed": seed,
        "evaluation": protocol,
    }
    spent = budgets(scale, model)
    scored: list[Measure] = [partial(at_budgets, group=group, budgets=spent) for group in (USERS, "new_after")]
    reached = partial(spent_to_target, target=scale["target"], most=most_spent(scale, model))
    measures: tuple[Measure, ...] = (costs, users, partial(learning, group=USERS), clipped_share, reached, *scored)
    return [
        Training(
            label, data, model, composed(chosen, tuned_strengths(label, strengths, scale), scale), settings, measures
        )
        for label, chosen in CHOSEN.items()
    ]
