"""Methods that give users something of their own, on mixed digits, against fine-tuning of one shared model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from fedtempo.algorithms import apfl, fedala, fedavg, fedper, fedrecon, fedrod, lg_fedavg, local_only
from fedtempo.algorithms.algorithm import Weighting
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.control.judging import GAIN
from fedtempo.papers.control.methods import FEDAVG, USERS, Maker, rounds_run
from fedtempo.papers.control.neighbours import DIGITS_MODEL, RATES, by_method, digits_scales, mixed_digits
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import (
    Column,
    Measure,
    PaperRun,
    Scale,
    Training,
    Values,
    score_column,
)
from fedtempo.papers.framework.measures import costs, learning, users
from fedtempo.papers.framework.reproduction import Reproduction

FEDPER, LG, ROD, APFL = "FedPer", "LG-FedAvg", "FedRoD", "APFL"
ALA, ALONE, RECON = "FedALA", "training alone", "FedRecon"
SAME: Weighting = "uniform"
"""Every client counts equally, in every method: none is ahead by its weights."""

METHODS: Mapping[str, Maker] = {
    FEDAVG: lambda rate, scale: fedavg(rate, scale["k"], weighting=SAME),
    FEDPER: lambda rate, scale: fedper(rate, scale["k"], weighting=SAME),
    LG: lambda rate, scale: lg_fedavg(rate, scale["k"], weighting=SAME),
    ROD: lambda rate, scale: fedrod(rate, scale["k"], weighting=SAME),
    APFL: lambda rate, scale: apfl(rate, scale["k"], weighting=SAME),
    ALA: lambda rate, scale: fedala(rate, scale["k"], weighting=SAME),
    ALONE: lambda rate, scale: local_only(rate, scale["k"]),
    RECON: lambda rate, scale: fedrecon(rate, rate, scale["k"], scale["k"], weighting=SAME),
}
"""From the tuned rate and a scale to the algorithm, by label."""
CONTENDERS = [label for label in METHODS if label != FEDAVG]
AFTER, BEFORE, NEW, WORST = f"{USERS}/mean", "existing_before/mean", "new_after/mean", f"{USERS}/bottom_decile"
EXISTING_AFTER, EXISTING_BEFORE = "for existing users after fine-tuning", "for existing users before fine-tuning"
NEW_AFTER = "for new users after fine-tuning"
COLUMNS = {
    AFTER: score_column("existing users after fine-tuning"),
    GAIN: score_column("gain over FedAvg", "+.3f", of_one_run=False),
    BEFORE: score_column("before"),
    WORST: score_column("bottom decile after"),
    NEW: score_column("new users after fine-tuning"),
    "new_before/mean": score_column("before"),
    "rounds": Column("rounds", ".0f"),
    "selected": Column("tested round", ".0f"),
    "steps": Column("local steps", ".0f"),
}


def better(label: str, baseline: str, who: str) -> str:
    """The claim that is made of every method."""
    return f"{label} is better than {baseline} {who}."


def _asked(label: str) -> Mapping[str, str]:
    """In which respects a method is compared with FedAvg; FedRecon's clients hold no head before they fit one."""
    respects = {EXISTING_AFTER: AFTER, EXISTING_BEFORE: BEFORE, NEW_AFTER: NEW}
    return {who: column for who, column in respects.items() if (label, who) != (RECON, EXISTING_BEFORE)}


CLAIMS = (
    *(
        Claim(better(label, FEDAVG, who), higher(label, FEDAVG, column))
        for label in CONTENDERS
        for who, column in _asked(label).items()
    ),
    *(
        Claim(better(label, FEDPER, EXISTING_AFTER), higher(label, FEDPER, AFTER))
        for label in CONTENDERS
        if label != FEDPER
    ),
)


def personal_gains(values: Values) -> Values:
    """Accuracy of existing users after fine-tuning, over FedAvg's."""
    return {label: {GAIN: own[AFTER] - values[FEDAVG][AFTER]} for label, own in values.items()}


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    measures: tuple[Measure, ...] = (costs, users, partial(learning, group=USERS), rounds_run)
    return [
        Training(
            label,
            mixed_digits(scale, seed),
            DIGITS_MODEL,
            make(scale.rate(label, RATES[1]), scale),
            {
                "rounds": scale["rounds"],
                "cohort": scale["cohort"],
                "batch_size": scale["batch"],
                "seed": seed,
                "evaluation": _evaluation(label, scale),
            },
            measures,
        )
        for label, make in METHODS.items()
    ]


def _evaluation(label: str, scale: Scale) -> Evaluation:
    """A round's steps for everybody; who trains alone does so from the start, for ten rounds' work."""
    steps = None if label == ALONE else scale["k"]
    return Evaluation(every=scale["every"], users=scale["users"], steps=steps, patience=scale["patience"])


PERSONAL = Reproduction(
    name="control-personal",
    paper="control",
    source="Digits",
    title="something of one's own",
    scales=digits_scales(dict.fromkeys(METHODS, RATES), (0.1, 1, 10, 60)),
    runs=_runs,
    columns=COLUMNS,
    claims=CLAIMS,
    figures=(by_method("gain", GAIN, "Digits: existing users after fine-tuning", CONTENDERS),),
    derive=personal_gains,
    notes=(
        "No paper has these numbers. The claims are our questions.",
        "Data, network, cohort and K are those of `control-digits`; a run ends as in `control-neighbours`. Every "
        "method has one tuned number, its rate, with four candidates, by the validation rows of existing users after "
        "fine-tuning. FedRecon's head and body have the same rate, and K steps each. Everything else has the library's "
        "default, which is the paper's, but clients count equally in every method.",
        "Fine-tuning is K steps at the method's own rate, on the tensors that the method lets a user train. A new user "
        "who trains alone takes the steps of ten rounds, and an existing one an epoch more.",
    ),
)
