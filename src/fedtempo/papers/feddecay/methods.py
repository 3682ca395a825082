"""The FedDecay paper's methods, what is measured of each, and its claims, for any of its data sets.

Tables 3 to 7 and Figures 1 and 2 look at the same runs: seven methods, beta from 0 to 1, linear decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from fedtempo.algorithms import (
    Algorithm,
    clip_then_decay,
    ditto,
    fedavg,
    fedbn,
    feddecay,
    fedem,
    fomaml,
    pfedme,
)
from fedtempo.papers.framework.claims import Claim, Rule, Verdict, all_of, higher, lower
from fedtempo.papers.framework.definitions import Column, Measure, Scale, Settling, TunedSetting, Tuning, score_column
from fedtempo.papers.framework.figures import Figure, Sweep
from fedtempo.papers.framework.measures import costs, learning, users
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.svg import Axes

DITTO, FEDBN, FEDEM, PFEDME, FOMAML = "Ditto", "FedBN", "FedEM", "pFedMe", "FOMAML"
FEDSGD, FEDAVG = "FedSGD (beta 0, one epoch)", "FedAvg (beta 1)"
LINEAR, PER_STEP = "FedDecay, linear", "FedDecay, by step"
BETAS = (0.2, 0.4, 0.6, 0.8)
FEDDECAY = {beta: f"FedDecay, beta {beta}" for beta in BETAS}
PERSONALISED = (DITTO, FEDBN, FEDEM, PFEDME)
LABELS = (*PERSONALISED, FOMAML, FEDSGD, *FEDDECAY.values(), FEDAVG, LINEAR, PER_STEP)
EXISTING, NEW = "existing_after/mean", "new_after/mean"
VALIDATION = "existing_after/best"
"""The best mean over existing users on their validation rows, by which the paper selects beta."""
MEASURES: tuple[Measure, ...] = (users, costs, partial(learning, group="existing_after"))
A_POINT = 0.01
FAILED = 0.05
"""A method that is more than five points behind has failed to train."""
SIMILAR = 0.02
"""Two points of accuracy: how near linear decay must be to exponential decay to be called similar."""


@dataclass(frozen=True)
class MethodRates:
    """Hyper-parameters; a rate for all methods, and those of the methods that have their own."""

    lr: float
    own: Mapping[str, float]
    """Learning rates by label."""
    epochs: int = 3
    ditto_epochs: int = 3
    lam: float = 0.5
    pfedme_lam: float = 0.5
    pfedme_lr: float = 1.0
    pfedme_rounds: int = 3
    pfedme_steps: int = 3
    outer_lr: float | None = None
    """FOMAML's, if it is not its inner one."""
    inner_lr: float | None = None
    """FOMAML's, if the rate of its label is the outer one."""
    linear_beta: float = 0.6
    step_beta: float = 0.9
    clip: float = 5.0
    weight_decay: float = 0.0

    def of(self, label: str) -> float:
        """The learning rate of a label."""
        return self.own.get(label, self.lr)


def tuned(scale: Scale, rates: MethodRates) -> MethodRates:
    """The rates that tuning chose; linear decay takes that of the exponential one with the same beta."""
    own = {label: scale.rate(LIKE.get(label, label), rates.of(label)) for label in LABELS}
    return replace(rates, own=own) if scale.chosen else rates


LIKE = {LINEAR: FEDDECAY[0.6]}
CONVERGED = Settling("existing_after", within=0.005)
"""Half a point: half of the smallest difference that counts."""


def feddecay_tuning(*values: float, rounds: int, without: tuple[str, ...] = ()) -> Tuning:
    """The same candidates and rounds for every method that is run, chosen by existing users' validation rows."""
    labels = [label for label in LABELS if label not in LIKE and label not in without]
    also = {like: (label,) for label, like in LIKE.items()}
    contestants = {label: TunedSetting(label, values, also.get(label, ())) for label in labels}
    return Tuning(contestants, VALIDATION, settings={"rounds": rounds})


def methods(rates: MethodRates) -> dict[str, Algorithm]:
    """Every label's algorithm. Decay goes epoch by epoch, as in the code that made the paper's tables."""

    def decaying(label: str, beta: float, decay: str = "exponential") -> Algorithm:
        return feddecay(rates.of(label), beta, epochs=rates.epochs, decay=decay, per="epoch_displacement")  # type: ignore[arg-type]

    plain = {
        DITTO: ditto(rates.of(DITTO), epochs=rates.ditto_epochs, lam=rates.lam),
        FEDBN: fedbn(rates.of(FEDBN), epochs=rates.epochs),
        FEDEM: fedem(rates.of(FEDEM), epochs=rates.epochs, weighting="uniform"),
        PFEDME: pfedme(
            rates.pfedme_lr,
            rates.of(PFEDME),
            lam=rates.pfedme_lam,
            inner_steps=rates.pfedme_steps,
            local_rounds=rates.pfedme_rounds,
        ),
        FOMAML: _fomaml(rates),
        FEDSGD: fedavg(rates.of(FEDSGD), epochs=1),
        **{label: decaying(label, beta) for beta, label in FEDDECAY.items()},
        FEDAVG: fedavg(rates.of(FEDAVG), epochs=rates.epochs),
        LINEAR: decaying(LINEAR, rates.linear_beta, "linear"),
        PER_STEP: feddecay(rates.of(PER_STEP), rates.step_beta, epochs=rates.epochs),
    }
    return {
        label: clip_then_decay(one, weight_decay=rates.weight_decay, max_norm=rates.clip)
        for label, one in plain.items()
    }


def _fomaml(rates: MethodRates) -> Algorithm:
    rate, inner = rates.of(FOMAML), rates.inner_lr
    if inner is None:
        return fomaml(rate, epochs=rates.epochs, server_lr=rates.outer_lr)
    return fomaml(inner, epochs=rates.epochs, server_lr=rate)


COLUMNS = {
    NEW: score_column("new users: mean"),
    "new_after/bottom_decile": score_column("bottom decile"),
    "new_after/std": Column("spread"),
    EXISTING: score_column("existing users: mean"),
    "existing_after/bottom_decile": score_column("bottom decile"),
    "existing_after/std": Column("spread"),
    "new_before/mean": score_column("new users before fine-tuning"),
    VALIDATION: Column("existing users, validation"),
    "bytes": Column("bytes", ".3g"),
    "flops": Column("FLOPs", ".3g"),
}


def selected(outcome: Outcome) -> str:
    """The label of the beta in (0, 1) with the best validation score in its trials: judged seeds have no say.

    Where nothing was tuned, by the validation score of the runs themselves.
    """
    tried = [label for label in FEDDECAY.values() if label in outcome.choices]
    if tried:
        return max(tried, key=lambda label: outcome.choices[label].score)
    return max(FEDDECAY.values(), key=lambda label: outcome.mean(label, VALIDATION))


def with_selected(make: Callable[[str], Rule]) -> Rule:
    """A rule about the beta that validation selects."""
    return lambda outcome: make(selected(outcome))(outcome)


def beats(others: tuple[str, ...], *columns: str) -> Rule:
    """FedDecay with the selected beta has more than each of the others, in each column."""
    return with_selected(
        lambda label: all_of(*(higher(label, other, column) for other in others for column in columns))
    )


def similar(column: str) -> Rule:
    """Linear and exponential decay are within two points of each other."""
    return with_selected(lambda label: _within(LINEAR, label, column, SIMILAR))


def _within(label: str, other: str, column: str, points: float) -> Rule:
    """Neither is ahead of the other by as much."""
    return all_of(higher(label, other, column, -points), higher(other, label, column, -points))


def cheaper(others: tuple[str, ...], column: str) -> Rule:
    """FedDecay costs less than each of the others that trains: one that fails stops early, which saves nothing."""

    def rule(outcome: Outcome) -> Verdict:
        label = selected(outcome)
        trained = [one for one in others if outcome.difference(label, one, EXISTING).low <= FAILED]
        return all_of(*(lower(label, other, column) for other in trained or others))(outcome)

    return rule


CLAIMS = (
    Claim(
        "Some beta in (0, 1) beats FedAvg and FedSGD for new users, after fine-tuning.",
        beats((FEDAVG, FEDSGD), NEW),
        "4.1",
    ),
    Claim(
        "Some beta in (0, 1) beats FedAvg and FedSGD for existing users, after fine-tuning.",
        beats((FEDAVG, FEDSGD), EXISTING),
        "4.1",
    ),
    Claim(
        "Over several seeds FedDecay is the best single-model method for new and existing users (Tables 6 and 7).",
        beats((FOMAML, FEDAVG, FEDSGD), NEW, EXISTING),
        "B.3",
    ),
    *(
        Claim(f"FedDecay serves new users better than {rival}.", beats((rival,), NEW), "Table 3")
        for rival in (DITTO, FEDBN, PFEDME)
    ),
    Claim(
        "FedDecay has the best bottom decile of existing users of any single-model method (Table 4).",
        beats((FOMAML, FEDAVG, FEDSGD), "existing_after/bottom_decile"),
        "4.1",
    ),
    Claim(
        "FedDecay is at least a point above FedAvg for new and existing users ('1 to 4 points').",
        with_selected(lambda label: all_of(*(higher(label, FEDAVG, column, A_POINT) for column in (NEW, EXISTING)))),
        "5",
    ),
    Claim("FedDecay sends fewer bytes than FedEM until it stops (Figure 1).", cheaper((FEDEM,), "bytes"), "4.2"),
    Claim(
        "FedDecay computes less than Ditto, FedEM and pFedMe until it stops, if they train (Figure 1).",
        cheaper((DITTO, FEDEM, PFEDME), "flops"),
        "4.2",
    ),
    Claim("Linear decay is similar to exponential decay for new users (Figure 2).", similar(NEW), "B.2"),
    Claim("Linear decay is similar to exponential decay for existing users (Figure 2).", similar(EXISTING), "B.2"),
    Claim("Linear decay beats FedAvg for existing users (Figure 2).", higher(LINEAR, FEDAVG, EXISTING), "B.2"),
    Claim(
        "Decay by step, as the paper prints it, is within a point of decay by epoch, as its code has it.",
        with_selected(lambda label: _within(PER_STEP, label, EXISTING, A_POINT)),
    ),
)
BETTER_THAN_FEDEM = Claim("FedDecay serves new users better than FedEM.", beats((FEDEM,), NEW), "Table 3")
FEDSGD_ABOVE_FEDAVG = tuple(
    Claim(f"FedSGD is better than FedAvg for {who} users.", higher(FEDSGD, FEDAVG, column), "Table 5")
    for who, column in (("existing", EXISTING), ("new", NEW))
)
LINEAR_FOR_NEW = Claim("Linear decay beats FedAvg for new users (Figure 2).", higher(LINEAR, FEDAVG, NEW), "B.2")
"""Not of PubMed, where the paper says the opposite."""
RESILIENT = Claim(
    "Accuracy is resilient to beta: 0.2 to 0.8 are within two points of each other for existing users (Table 5).",
    all_of(*(_within(one, other, EXISTING, SIMILAR) for one, other in combinations(FEDDECAY.values(), 2))),
    "B.1",
)


def method_figures(beta: float) -> tuple[Figure, ...]:
    """Bytes and FLOPs by method (Figure 1), accuracy against beta (Table 5) and by decay (Figure 2)."""
    accuracy = "accuracy after fine-tuning"
    sweep = {0.0: FEDSGD, **FEDDECAY, 1.0: FEDAVG}
    order = {0.0: FEDAVG, 1.0: FEDDECAY[beta], 2.0: LINEAR}
    schemes = ("FedAvg", "exponential", "linear")
    ranked = {**{label: label for label in (*PERSONALISED, FOMAML)}, "FedAvg": FEDAVG, "FedDecay": FEDDECAY[beta]}
    return (
        *(
            Sweep(
                cost,
                cost,
                Axes(f"Figure 1: {name} of the whole run", "method", name, ticks=tuple(ranked)),
                {"ours": {float(place): label for place, label in enumerate(ranked.values())}},
            )
            for cost, name in (("bytes", "bytes"), ("flops", "FLOPs"))
        ),
        *(
            Sweep(f"beta-{who}", column, Axes(f"Table 5: {who} users", "beta", accuracy), {f"{who} users": sweep})
            for who, column in (("new", NEW), ("existing", EXISTING))
        ),
        *(
            Sweep(
                f"linear-{who}",
                column,
                Axes(f"Figure 2: {who} users", "decay", accuracy, ticks=schemes),
                {f"{who} users": order},
            )
            for who, column in (("new", NEW), ("existing", EXISTING))
        ),
    )
