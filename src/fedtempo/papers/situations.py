"""Which method when: the situations, each with its contestants and what they are compared by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedtempo.papers import clock, compositions, compressors, control
from fedtempo.papers.compositions.ingredients import INGREDIENTS, NONE
from fedtempo.papers.control import adapters, judging, neighbours, personal
from fedtempo.papers.control.methods import BASELINES, METHODS
from fedtempo.papers.control.methods import FEDAVG as PLAIN_AVERAGE
from fedtempo.papers.decaying_k.data import FEMNIST as DECAYING_FEMNIST
from fedtempo.papers.decaying_k.data import SHAKESPEARE as DECAYING_SHAKESPEARE
from fedtempo.papers.decaying_k.data import STACKOVERFLOW
from fedtempo.papers.decaying_k.schemes import AT_STEPS, BEST, EARLY, SCHEMES, label
from fedtempo.papers.feddecay import heterogeneity, methods
from fedtempo.papers.feddecay.heterogeneity import BETAS, HETEROGENEITY, at_alpha
from fedtempo.papers.feddecay.pubmed import PUBMED
from fedtempo.papers.feddecay.sst2 import SST2
from fedtempo.papers.feddecay.users import FEMNIST
from fedtempo.papers.fednar import cifar10, self_adjustment, shakespeare
from fedtempo.papers.fednar.measuring import FINAL
from fedtempo.papers.fednar.setting import with_nar
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.pflego.degrees import REPRODUCTIONS as DEGREES
from fedtempo.papers.pflego.omniglot import TABLE_2, eight_methods
from fedtempo.papers.pflego.setting import FEDAVG, FEDPER, FEDPER_ADAM, KEPT, PFLEGO, PFLEGO_SGD, TUNED

A_POINT = 0.01


@dataclass(frozen=True)
class Situation:
    """Contestants of one experiment in one respect; who is compared is told against the reference."""

    when: str
    experiment: Reproduction
    contestants: tuple[str, ...]
    column: str
    reference: str
    costs: tuple[str, ...] = ()
    """Columns that say what the winner and the reference cost."""
    equal: str = "rounds"
    """What everybody has spent the same of; said where no cost is."""
    point: float = A_POINT
    """What one point of accuracy is in the column: a hundredth, or 1 where the column is in percent."""
    short: bool = False
    """Whether the short table may have it; the full one has all."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the table calls a label, where it stands for more than its own run."""


HIGH, MEDIUM, NO, *_ = DEGREES
ALPHABETS = tuple(eight_methods(TABLE_2.scales["medium"]))
HEADED = (PFLEGO, PFLEGO_SGD, FEDPER, FEDPER_ADAM, FEDAVG)


def _by_beta(alpha: float) -> tuple[str, ...]:
    return tuple(at_alpha(alpha, beta) for beta in BETAS)


def _betas(alpha: float, who: str, column: str, users: str) -> Situation:
    short = column != heterogeneity.BEFORE
    return Situation(f"{who}, {users}", HETEROGENEITY, _by_beta(alpha), column, at_alpha(alpha, 1.0), short=short)


def _feddecay(experiment: Reproduction, where: str, column: str, users: str) -> Situation:
    costs = ("flops", "bytes")
    return Situation(f"{where}, {users}", experiment, methods.LABELS, column, methods.FEDAVG, costs, short=True)


def _schemes(experiment: Reproduction, where: str, size: str, what: str, column: str) -> Situation:
    contestants = tuple(label(size, scheme) for scheme in SCHEMES)
    # The page has one K for few rounds, and the two ends for few steps; the full table has all.
    short = (column, size) in ((EARLY, "middle K"), (AT_STEPS, "low K"), (AT_STEPS, "high K"))
    when, costs = f"{where}, {size}, {what}", ("steps",) if column == BEST else ()
    equal = "local steps" if column == AT_STEPS else "rounds"
    return Situation(when, experiment, contestants, column, contestants[0], costs, equal, short=short)


def _with_and_without(
    experiment: Reproduction, pairs: Mapping[str, Mapping[str, str]], where: Callable[[str], str]
) -> list[Situation]:
    """Each backbone with and without FedNAR, by the mean over a table's settings, which every label of a pair has."""
    judged = {name: [*labels.items()][-1] for name, labels in pairs.items()}
    return [
        Situation(f"{where(name)}, around {name}", experiment, pair, "of_backbone", pair[1], point=1.0)
        for name, pair in judged.items()
    ]


def _over_backbones(experiment: Reproduction, pairs: Mapping[str, Mapping[str, str]], where: str) -> Situation:
    """With and without FedNAR, by the mean over all backbones and settings, which every label has."""
    mine, plain = next(iter(next(iter(pairs.values())).items()))
    names = {mine: "with FedNAR", plain: "clip, then decay"}
    when = f"{where}, mean of six backbones"
    return Situation(when, experiment, (mine, plain), "of_all", plain, point=1.0, short=True, names=names)


def _far_too_large(name: str) -> Situation:
    mine, plain = (self_adjustment.started_from(one, self_adjustment.LARGE) for one in (with_nar(name), name))
    when = f"Weight decay far too large ({self_adjustment.LARGE:g}, CIFAR-10), around {name}"
    short = name == self_adjustment.ADJUSTED[0]
    return Situation(when, self_adjustment.SELF_ADJUSTMENT, (mine, plain), FINAL, plain, point=1.0, short=short)


def _controls(experiment: Reproduction, where: str) -> tuple[Situation, Situation]:
    # Those with a baseline of their own train under other conditions (uneven K, weight decay, a decaying rate).
    others = {*BASELINES, *BASELINES.values()}
    contestants = tuple(label for label in METHODS if label not in others)
    fewer = Situation(f"{where}, few local steps", experiment, contestants, judging.AT_STEPS, PLAIN_AVERAGE)
    longer = Situation(f"{where}, as long as it takes", experiment, contestants, judging.END, PLAIN_AVERAGE, ("steps",))
    return replace(fewer, equal="local steps"), replace(longer, short=True)


def _ingredients(experiment: Reproduction, where: str) -> tuple[Situation, ...]:
    respects = {
        "few local steps": ("existing_after/at_steps", (), "local steps"),
        "few bytes": ("existing_after/at_bytes", (), "bytes"),
        "as long as it takes": ("existing_after/mean", ("steps",), "rounds"),
        "new users": ("new_after/mean", ("steps",), "rounds"),
    }
    # The baseline has a weight decay that may be bad for it, so none of these is advice: they are in the full table.
    return tuple(
        Situation(f"{where}, {what}", experiment, (NONE, *INGREDIENTS), column, NONE, paid, equal=equal)
        for what, (column, paid, equal) in respects.items()
    )


def _one_model() -> tuple[Situation, ...]:
    contestants, where = tuple(neighbours.METHODS), "One shared model (digits, mixed classes)"
    respects = {
        "few local steps": (judging.AT_STEPS, (), "local steps", False),
        "as long as it takes": (judging.END, ("steps",), "rounds", True),
        "the worst-served tenth": (neighbours.WORST, ("steps",), "rounds", True),
    }
    experiment = neighbours.NEIGHBOURS
    return tuple(
        Situation(f"{where}, {what}", experiment, contestants, column, PLAIN_AVERAGE, costs, equal, short=short)
        for what, (column, costs, equal, short) in respects.items()
    )


def _of_ones_own(experiment: Reproduction, where: str, contestants: Sequence[str]) -> tuple[Situation, ...]:
    # FedRecon's clients hold no head before they fit one.
    before = [one for one in contestants if one != personal.RECON]
    respects = {
        "existing users after fine-tuning": (personal.AFTER, contestants, True),
        "existing users before fine-tuning": (personal.BEFORE, before, False),
        "new users after fine-tuning": (personal.NEW, contestants, True),
    }
    return tuple(
        Situation(f"{where}, {who}", experiment, tuple(compared), column, PLAIN_AVERAGE, ("steps",), short=short)
        for who, (column, compared, short) in respects.items()
    )


def _compressed() -> tuple[Situation, Situation]:
    contestants, plain = tuple(compressors.compressor_rules()), compressors.PLAIN
    experiment, where = compressors.FEMNIST_BYTES, "Compressed uploads (FEMNIST)"
    few = Situation(f"{where}, few bytes", experiment, contestants, compressors.AT_BYTES, plain, equal="bytes")
    when, costs = f"{where}, as long as it takes", ("bytes_up",)
    longer = Situation(when, experiment, contestants, compressors.ACCURACY, plain, costs)
    return replace(few, short=True), replace(longer, short=True)


def _phones(what: str, at: str) -> Situation:
    contestants = (clock.FEDAVG, clock.ROUNDS, clock.TIME, clock.DECAY, clock.BOTH, clock.TOGETHER)
    column, where = f"{clock.USERS}/at_{at}", f"Phones of three classes, {what}"
    return Situation(where, clock.PHONES, contestants, column, clock.FEDAVG, equal=at, short=True)


def _stragglers(users: str, group: str) -> Situation:
    contestants = (clock.WAIT, clock.DEADLINE, clock.OVER, clock.BUFFER, clock.MIXING)
    where = f"One slow phone in ten, little time, {users}"
    column = f"{group}/at_time"
    return Situation(where, clock.STRAGGLERS, contestants, column, clock.WAIT, equal="time", short=True)


SITUATIONS: tuple[Situation, ...] = (
    Situation("Label skew strong: 2 classes of 10 a user", HIGH, HEADED, TUNED, FEDAVG, short=True),
    Situation("The same, and users take no steps of their own first", HIGH, HEADED, KEPT, FEDAVG),
    Situation("Label skew middling: 5 classes of 10 a user", MEDIUM, HEADED, TUNED, FEDAVG, short=True),
    Situation("The same, and users take no steps of their own first", MEDIUM, HEADED, KEPT, FEDAVG),
    Situation("No label skew, few rows a user (120)", NO, HEADED, TUNED, FEDAVG, short=True),
    Situation("An alphabet of one's own (Omniglot)", TABLE_2, ALPHABETS, TUNED, FEDAVG, short=True),
    *(
        _betas(alpha, who, column, users)
        for alpha, who in (
            (heterogeneity.DIFFERENT, "Users very different (alpha 0.1)"),
            (10.0, "Users similar (alpha 10)"),
        )
        for column, users in (
            (methods.EXISTING, "existing users after fine-tuning"),
            (methods.NEW, "new users after fine-tuning"),
            (heterogeneity.BEFORE, "existing users before fine-tuning"),
        )
    ),
    *(
        _feddecay(experiment, where, column, users)
        for experiment, where in (
            (FEMNIST, "Writers (FEMNIST)"),
            (PUBMED, "Many rows a user (PubMed, five users)"),
            (SST2, "Sentences of mixed tone (SST-2)"),
        )
        for column, users in ((methods.EXISTING, "existing users"), (methods.NEW, "new users"))
    ),
    *(
        _schemes(experiment, where, size, what, column)
        for experiment, where in (
            (DECAYING_FEMNIST, "FEMNIST"),
            (DECAYING_SHAKESPEARE, "Shakespeare"),
            (STACKOVERFLOW, "StackOverflow, recall"),
        )
        for size in ("low K", "middle K", "high K")
        for what, column in (
            ("few rounds (a quarter)", EARLY),
            ("few local steps", AT_STEPS),
            ("as long as it takes", BEST),
        )
    ),
    _over_backbones(cifar10.TABLE, cifar10.PAIRS, "Weight decay 0.01 or 0.05 (CIFAR-10)"),
    *_with_and_without(
        cifar10.TABLE, cifar10.PAIRS, lambda name: f"Weight decay {cifar10.RELEASED[name]:g} (CIFAR-10)"
    ),
    _over_backbones(shakespeare.SHAKESPEARE, shakespeare.PAIRS, "Weight decay (Shakespeare)"),
    *_with_and_without(shakespeare.SHAKESPEARE, shakespeare.PAIRS, lambda name: "Weight decay (Shakespeare)"),
    *map(_far_too_large, self_adjustment.ADJUSTED),
    *_ingredients(compositions.MNIST, "Five ingredients (MNIST by writer)"),
    *_ingredients(compositions.FEMNIST, "Five ingredients (FEMNIST)"),
    *_ingredients(compositions.SHAKESPEARE, "Five ingredients (Shakespeare)"),
    *_controls(control.FEMNIST, "Rates and steps (FEMNIST)"),
    *_controls(control.DIGITS, "Rates and steps (digits, mixed classes)"),
    *_controls(control.CIFAR10, "Rates and steps (CIFAR-10, mixed classes)"),
    *_controls(control.SHAKESPEARE, "Rates and steps (Shakespeare)"),
    *_one_model(),
    *_of_ones_own(personal.PERSONAL, "Few rows a user (60), something of one's own (digits)", [*personal.METHODS]),
    *_of_ones_own(adapters.LORA, "Adapters (MNIST, mixed classes)", [*adapters.METHODS]),
    *_compressed(),
    _phones("little time", "time"),
    _phones("little energy", "energy"),
    _stragglers("existing users", clock.USERS),
    _stragglers("new users", clock.NEW),
)
"""In the order of the full table. One whose runs are not stored is left out."""
