"""FedDecay, section 3.2: small beta for similar users, large beta for different ones, before and after fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedtempo.algorithms import Algorithm, fedavg, feddecay
from fedtempo.data import dirichlet
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.feddecay.methods import A_POINT, CONVERGED, EXISTING, NEW, VALIDATION
from fedtempo.papers.framework.claims import Claim, Rule, all_of, higher
from fedtempo.papers.framework.definitions import (
    FIRST_TUNING_SEED,
    Column,
    Data,
    Model,
    PaperRun,
    Scale,
    Training,
    TunedSetting,
    Tuning,
    Values,
    score_column,
    sized,
)
from fedtempo.papers.framework.figures import Sweep
from fedtempo.papers.framework.measures import learning, users
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes

ALPHAS = (0.1, 0.5, 10.0)
DIFFERENT, BETWEEN, SIMILAR = ALPHAS
BETAS = (0.0, 0.3, 0.6, 1.0)
EPOCHS = 3
FINE_TUNING = {DIFFERENT: 0.05, BETWEEN: 0.05, SIMILAR: 0.01}
"""The same for every beta, so that fine-tuning does not change with the rate that training was tuned to."""
BEFORE, NEW_BEFORE = "existing_before/mean", "new_before/mean"
MEASURES = (users, partial(learning, group="existing_after"))


def at_alpha(alpha: float, beta: float) -> str:
    """A run's label."""
    name = {0.0: "FedSGD (beta 0, one epoch)", 1.0: "FedAvg (beta 1)"}.get(beta, f"beta {beta:g}")
    return f"alpha {alpha:g}: {name}"


LABELS = tuple(at_alpha(alpha, beta) for alpha in ALPHAS for beta in BETAS)


def _algorithm(beta: float, lr: float) -> Algorithm:
    if beta in (0.0, 1.0):
        return fedavg(lr, epochs=1 if beta == 0.0 else EPOCHS)
    return feddecay(lr, beta, epochs=EPOCHS, per="epoch_displacement")


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    parts = {"new_clients": 0.25, "validation": 0.2, "test": 0.3, "min_samples": 8}
    sample = scale["users"] if seed >= FIRST_TUNING_SEED else None
    settings = {"rounds": scale["rounds"], "cohort": scale["cohort"], "batch_size": 20, "seed": seed}
    protocol = Evaluation(every=scale["every"], epochs=1, patience=scale["patience"], users=sample)
    return [
        Training(
            at_alpha(alpha, beta),
            Data("fashion_mnist", dirichlet(scale["clients"], alpha), seed, parts, rows=scale["rows"]),
            Model("mlp", {"hidden": [scale["hidden"]]}),
            _algorithm(beta, scale.rate(at_alpha(alpha, beta), scale["lr"])),
            {**settings, "evaluation": replace(protocol, lr=FINE_TUNING[alpha])},
            MEASURES,
        )
        for alpha in ALPHAS
        for beta in BETAS
    ]


def _derived(values: Values) -> Values:
    """What fine-tuning adds, for each run; and at FedAvg's run of each alpha, the beta that validation selects."""
    found = {
        label: {
            "gain": row[EXISTING] - row[BEFORE],
            "new_gain": row[NEW] - row[NEW_BEFORE],
        }
        for label, row in values.items()
    }
    for alpha in ALPHAS:
        scores = [values[at_alpha(alpha, beta)][VALIDATION] for beta in BETAS]
        missing = any(map(math.isnan, scores))
        found[at_alpha(alpha, 1.0)]["best_beta"] = math.nan if missing else BETAS[scores.index(max(scores))]
    return found


def _selected(outcome: Outcome, alpha: float) -> str:
    """The label of the beta inside (0, 1) with the best validation score in its trials, or in the runs if untuned."""
    inside = [at_alpha(alpha, beta) for beta in BETAS[1:-1]]
    tried = [label for label in inside if label in outcome.choices]
    if tried:
        return max(tried, key=lambda label: outcome.choices[label].score)
    return max(inside, key=lambda label: outcome.mean(label, VALIDATION))


def _beats_both(alpha: float, column: str) -> Rule:
    def rule(outcome: Outcome) -> Rule:
        return all_of(*(higher(_selected(outcome, alpha), at_alpha(alpha, end), column) for end in (0.0, 1.0)))

    return lambda outcome: rule(outcome)(outcome)


def _after(alpha: float) -> Sweep:
    axes = Axes(f"alpha {alpha:g}: existing users after fine-tuning", "beta", "accuracy")
    lines = {"after fine-tuning": {beta: at_alpha(alpha, beta) for beta in BETAS}}
    return Sweep(f"trade-off-{alpha:g}", EXISTING, axes, lines)


CLAIMS = (
    Claim(
        "Validation selects a larger beta where users differ (alpha 0.1) than where they are similar (alpha 10).",
        higher(at_alpha(DIFFERENT, 1.0), at_alpha(SIMILAR, 1.0), "best_beta"),
        "5",
    ),
    *(
        Claim(
            f"alpha {alpha:g}: some beta in (0, 1) beats FedAvg and FedSGD for {who} users, after fine-tuning.",
            _beats_both(alpha, column),
        )
        for alpha in ALPHAS
        for who, column in (("existing", EXISTING), ("new", NEW))
    ),
    Claim(
        "Where users differ, fine-tuning adds more to FedAvg's model than to FedSGD's (rapid personalization).",
        higher(at_alpha(DIFFERENT, 1.0), at_alpha(DIFFERENT, 0.0), "gain"),
    ),
    Claim(
        "Where users differ, FedSGD's model is better than FedAvg's before fine-tuning (initial success).",
        higher(at_alpha(DIFFERENT, 0.0), at_alpha(DIFFERENT, 1.0), BEFORE),
    ),
    Claim(
        "Fine-tuning adds at least a point more where users differ than where they are similar (beta 0.6).",
        higher(at_alpha(DIFFERENT, 0.6), at_alpha(SIMILAR, 0.6), "gain", A_POINT),
    ),
)
SMOKE: dict[str, Any] = {
    "rounds": 1,
    "cohort": 2,
    "every": 1,
    "patience": None,
    "users": None,
    "clients": 8,
    "rows": 600,
    "hidden": 8,
    "lr": 0.1,
}
SMALL: dict[str, Any] = {**SMOKE, "rounds": 40, "cohort": 8, "every": 10, "clients": 40, "rows": 8_000, "hidden": 64}
MEDIUM: dict[str, Any] = {**SMALL, "rounds": 300, "every": 10, "patience": 8, "users": 20, "rows": 6_000}
HETEROGENEITY = Reproduction(
    name="feddecay-heterogeneity",
    paper="feddecay",
    source="Section 3.2",
    title="Fashion-MNIST, beta from 0 to 1 for similar and for different users",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=4, **SMALL),
        "medium": sized(
            seeds=8,
            minutes=45,
            tuning=Tuning(
                {
                    at_alpha(alpha, beta): TunedSetting(at_alpha(alpha, beta), (0.03, 0.1, 0.3))
                    for alpha in ALPHAS
                    for beta in BETAS
                },
                VALIDATION,
                settings={"rounds": 150},
            ),
            settling=CONVERGED,
            **MEDIUM,
        ),
        "paper": sized(seeds=10, minutes=600, **{**MEDIUM, "clients": 100, "rows": None, "hidden": 200}),
    },
    runs=_runs,
    columns={
        EXISTING: score_column("existing users after fine-tuning"),
        BEFORE: score_column("before"),
        "gain": Column("what it adds", margin=0.01),
        NEW: score_column("new users after fine-tuning"),
        NEW_BEFORE: score_column("before"),
        "new_gain": Column("what it adds", margin=0.01),
        "best_beta": Column("beta that validation selects", ".2f"),
        VALIDATION: Column("existing users, validation"),
    },
    claims=CLAIMS,
    figures=(
        Sweep(
            "gain",
            "gain",
            Axes("what fine-tuning adds, existing users", "beta", "accuracy after minus before", reference=0.0),
            {f"alpha {alpha:g}": {beta: at_alpha(alpha, beta) for beta in BETAS} for alpha in ALPHAS},
        ),
        *(_after(alpha) for alpha in ALPHAS),
    ),
    derive=_derived,
    notes=(
        "The paper has no such sweep: it compares data sets. Here everything but the users' similarity stays the same.",
        "Classes are divided as Dirichlet(alpha) draws them: alpha 0.1 gives users a class or two, alpha 10 all of"
        " them. A quarter of the users are new. Fine-tuning is one epoch, at 0.05 for every beta, and at 0.01 where"
        " alpha is 10.",
        "Decay goes epoch by epoch, as in the code that made the paper's tables.",
        "Similar users have a lower rate because 0.05 is too high for them: on a seed that is not judged FedAvg loses"
        " 1.1 points by it at alpha 10, and gains 0.1 at 0.01.",
    ),
)
