"""Does advice pay on data that it was not made on? The adviser is asked about data whose judged runs are stored.

    python -m benchmarks.stored_advice          # asks again (minutes) and writes results/advice.json
    python -m benchmarks.stored_advice --train  # trains suggested betas that no stored run is near to (half an hour)
    python -m benchmarks.stored_advice --page   # only renews the tables of docs/personalization.md

It is asked on a seed that is not judged, about the plain run (FedAvg, or constant K) at its tuned rate. Every answer is
then compared with the judged runs of docs/results: the stored run that is nearest to what was suggested against the
plain run, paired by seed, with Student's 95 % interval. Stored betas decay by epochs and suggested ones by steps, so
nearness is that of R, the personalization ratio that the adviser sets, as a share of FedAvg's.

Rules 1, 2, 3 and 5 were written down before the first suggestion was compared with anything. Rule 4 was not: it came
after the first comparison and before anything was trained for it. It decides about beta. Without it FEMNIST's row is
the stored beta 0.2 by epoch, which is better for existing users at seven times the suggested R, and beta would stay.

1. A run is *level* with the plain one where the whole interval lies within a point either way. It is *better* or
   *worse* where the interval is not level and lies wholly above or below 0. Anything else *can't be told*. Where the
   one behind still improves (or either of the two, where nobody is ahead) the answer is *not converged*.
2. A suggestion that the stored runs cannot tell from the plain one (K decay 1; a beta whose nearest stored run is
   FedAvg) tests nothing. It is shown and not counted.
3. A suggestion *pays* where it is better for existing or for new users and worse for neither; or level for one and
   worse for neither, at a cost that is clearly lower: the whole interval of the cost is more than a tenth below the
   plain run's. The cost of a beta is the rounds until training stops, that of a K decay the local steps until then.
4. Where the nearest stored R is further from the suggested one than a tenth of FedAvg's, the stored run says little
   about the suggestion. Then the suggested beta itself is trained (--train) as the stored runs were: the same
   candidates for its rate on the same tuning seed, the scale's own number of judged seeds, the same stop.
5. A kind of suggestion (beta, K decay) stays in `fedtempo advise` only if it is nowhere worse and pays at least once.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.advice import suggested
from fedtempo.algorithms import Algorithm, clip_then_decay, feddecay
from fedtempo.cli.plan import measured_before
from fedtempo.comparison.decide import no_difference
from fedtempo.papers import REPRODUCTIONS
from fedtempo.papers.decaying_k.data import FEMNIST as K_FEMNIST
from fedtempo.papers.decaying_k.data import STACKOVERFLOW
from fedtempo.papers.decaying_k.schemes import BEST, CONSTANT, SIZES, STEPS, label
from fedtempo.papers.feddecay.heterogeneity import ALPHAS, BETAS, HETEROGENEITY, at_alpha
from fedtempo.papers.feddecay.methods import EXISTING, FEDAVG, FEDDECAY, NEW, PER_STEP
from fedtempo.papers.feddecay.pubmed import PUBMED
from fedtempo.papers.feddecay.sst2 import SST2
from fedtempo.papers.feddecay.users import FEMNIST
from fedtempo.papers.framework.claims import Answer, higher
from fedtempo.papers.framework.counting import judged_outcome
from fedtempo.papers.framework.definitions import FIRST_TUNING_SEED, Curve, Measured, Training
from fedtempo.papers.framework.outcomes import Interval, Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.schedules import Now, decaying_k
from fedtempo.theory import fedavg_ratio, feddecay_ratio, step_fraction
from fedtempo.training.prepare import prepare

FILE = Path(__file__).parent / "results" / "advice.json"
DOCS = Path(__file__).parent.parent / "docs"
PAGE, RESULTS = DOCS / "personalization.md", DOCS / "results"
SECTION = re.compile(r"<!-- advice -->\n.*?<!-- end of advice -->", re.DOTALL)
A_POINT, CLEARLY = 0.01, 0.1
EPOCHS, STEP_BETA = 3, 0.9
"""Of all stored FedDecay runs; the beta of the one that decays by steps."""
CURVE, SUGGESTED = "existing_after", "the suggested beta itself"
FAR = 0.1
"""Rule 4's tenth of FedAvg's R."""
BETTER, WORSE, LEVEL, UNCLEAR, IMPROVING = "better", "worse", "level", "can't tell", "not converged"


@dataclass(frozen=True)
class Decay:
    """A stored FedDecay run's beta, and whether it decays by epochs or by steps."""

    beta: float
    by_epoch: bool = True

    def share(self, steps: int) -> float:
        """R as a share of FedAvg's, for a client with so many local steps."""
        if not self.by_epoch:
            return share_of(self.beta, steps)
        batches = steps // EPOCHS
        # An epoch trains at the full rate, and what it led to is scaled. Its steps see all of its earlier ones.
        walked, inner, sent = 0.0, 0.0, 0.0
        for epoch in range(EPOCHS):
            weight = self.beta**epoch
            inner += weight * math.fsum(walked + step for step in range(batches))
            sent += weight * batches
            walked += weight * batches
        return inner / sent / fedavg_ratio(EPOCHS * batches, 1.0)


@dataclass(frozen=True)
class Question:
    """The plain run of a data set, and the stored runs that follow a suggestion."""

    name: str
    experiment: Reproduction
    plain: str
    stored: Mapping[str, Decay | None]
    """By label; a run with decaying K has no beta."""
    around: Callable[[Algorithm], Algorithm] = lambda algorithm: algorithm
    """What the experiment's algorithms are wrapped in."""

    @property
    def columns(self) -> Mapping[str, str]:
        """What is compared, by who is served."""
        return {"existing users": EXISTING, "new users": NEW} if self.about_beta else {"all users": BEST}

    @property
    def about_beta(self) -> bool:
        """Whether it is beta that is tested here."""
        return None not in self.stored.values()


def _users(name: str, experiment: Reproduction) -> Question:
    by_epoch: dict[str, Decay | None] = {one: Decay(beta) for beta, one in FEDDECAY.items()}
    known = {**by_epoch, PER_STEP: Decay(STEP_BETA, by_epoch=False)}
    return Question(name, experiment, FEDAVG, known, partial(clip_then_decay, weight_decay=0.0, max_norm=5.0))


QUESTIONS = (
    *(_users(name, one) for name, one in {"FEMNIST": FEMNIST, "PubMed": PUBMED, "SST-2": SST2}.items()),
    *(
        Question(
            f"Fashion-MNIST, alpha {alpha:g}",
            HETEROGENEITY,
            at_alpha(alpha, 1.0),
            {at_alpha(alpha, beta): Decay(beta) for beta in BETAS[1:-1]},
        )
        for alpha in ALPHAS
    ),
    *(
        Question(f"{name}, {size}", one, label(size, CONSTANT), {label(size, STEPS): None})
        for name, one in {"FEMNIST": K_FEMNIST, "StackOverflow": STACKOVERFLOW}.items()
        for size in SIZES
    ),
)


def share_of(beta: float, steps: int) -> float:
    """R of FedDecay by steps, as a share of FedAvg's."""
    return feddecay_ratio(beta, steps, 1.0) / fedavg_ratio(steps, 1.0)


@cache
def stored(name: str) -> Outcome:
    """The judged runs of the experiment of this name."""
    found = judged_outcome(REPRODUCTIONS[name], RESULTS)
    if found is None:
        raise SystemExit(f"{name} has no stored runs.")
    return found


def run_of(question: Question, one: str, outcome: Outcome, seed: int) -> Training:
    """A run of the question's experiment, at the rate that tuning chose for it."""
    scale = question.experiment.scales["medium"]
    chosen = {name: choice.value for name, choice in outcome.choices.items()}
    runs = question.experiment.runs(replace(scale, chosen=chosen), seed)
    return next(run for run in runs if isinstance(run, Training) and run.label == one)


def asked(question: Question) -> dict[str, Any]:
    """What the adviser measures and suggests for the plain run, on a seed that is not judged."""
    run = run_of(question, question.plain, stored(question.experiment.name), FIRST_TUNING_SEED)
    settings = {name: value for name, value in run.arguments(None).items() if name != "progress"}
    found = measured_before(prepare(**settings), settings["model"], settings.get("loss"))
    return {**asdict(suggested(found)), **asdict(found)}


def trained(question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The suggested beta itself: tuned and judged as the stored runs were."""
    scale, outcome = question.experiment.scales["medium"], stored(question.experiment.name)
    tuning = scale.tuning
    assert tuning is not None

    def performed(rate: float, seed: int, **settings: Any) -> Measured:
        plain = run_of(question, question.plain, outcome, seed)
        algorithm = question.around(feddecay(rate, answer["beta"], epochs=EPOCHS))
        return replace(plain, algorithm=algorithm, settings={**plain.settings, **settings}).perform(None)

    rates = tuning.contestants[question.plain].values
    tried = {rate: performed(rate, FIRST_TUNING_SEED, **tuning.settings).values[tuning.column] for rate in rates}
    rate = max(tried, key=lambda one: tried[one])
    print(question.name, tried, flush=True)
    runs = []
    for seed in range(scale.seeds):
        found = performed(rate, seed)
        curve = found.curves[CURVE]
        runs.append({"values": {name: found.values[name] for name in (EXISTING, NEW)}, "curve": [curve.x, curve.y]})
        print(question.name, seed, runs[-1]["values"], flush=True)
    return {"beta": answer["beta"], "tried": tried, "lr": rate, "runs": runs}


@dataclass(frozen=True)
class Comparison:
    """A stored run minus the plain one, and what rule 1 says of it."""

    answer: str
    difference: Interval

    def __str__(self) -> str:
        mean, low, high = (100 * end for end in (self.difference.mean, self.difference.low, self.difference.high))
        return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}], {self.answer}"


def compared(outcome: Outcome, one: str, plain: str, column: str) -> Comparison:
    """Rule 1."""
    found = outcome.difference(one, plain, column)
    if higher(one, plain, column)(outcome).answer == Answer.IMPROVING:
        return Comparison(IMPROVING, found)
    if no_difference(found.low, found.high, A_POINT):
        return Comparison(LEVEL, found)
    return Comparison(BETTER if found.low > 0 else WORSE if found.high < 0 else UNCLEAR, found)


def cost(outcome: Outcome, one: str, plain: str, about_beta: bool) -> Interval:
    """By what share a run costs more than the plain one, until each stops."""

    def paid(run: str) -> Sequence[float]:
        if about_beta:
            return [curve.x[-1] for curve in outcome.curves(run, CURVE)]
        return outcome.values(run, "steps")

    return Interval.of([mine / theirs - 1 for mine, theirs in zip(paid(one), paid(plain), strict=False)])


@dataclass(frozen=True)
class Row:
    """A question, what was suggested, the stored run that is nearest to it, and how that did."""

    question: Question
    suggested: str
    nearest: str
    followed: bool
    """False where the suggestion cannot be told from the plain run: rule 2."""
    comparisons: tuple[Comparison, ...]
    cost: Interval

    @property
    def worse(self) -> bool:
        """Whether following the suggestion was established to lose."""
        return self.followed and any(one.answer == WORSE for one in self.comparisons)

    @property
    def pays(self) -> bool:
        """Rule 3."""
        answers = {one.answer for one in self.comparisons}
        cheaper = LEVEL in answers and self.cost.high < -CLEARLY
        return self.followed and not self.worse and (BETTER in answers or cheaper)

    @property
    def result(self) -> str:
        """In a word or two."""
        if not self.followed:
            return "missed: the stored run pays" if replace(self, followed=True).pays else "not tested"
        return "worse" if self.worse else "pays" if self.pays else "no benefit"

    def __str__(self) -> str:
        mean, low, high = (100 * end for end in (self.cost.mean, self.cost.low, self.cost.high))
        paid = f"{mean:+.0f} % [{low:+.0f}, {high:+.0f}]"
        cells = [self.question.name, self.suggested, self.nearest, *map(str, self.comparisons), paid, self.result]
        return f"| {' | '.join(cells)} |"


def row(question: Question, answer: Mapping[str, Any], outcome: Outcome) -> Row:
    """The suggestion, or the stored run that is nearest to it, against the plain run."""
    one, followed, suggested, nearest = _nearest(question, answer, outcome)
    if "trained" in answer:
        runs = [Measured(run["values"], {CURVE: Curve(*map(tuple, run["curve"]))}) for run in answer["trained"]["runs"]]
        outcome = replace(outcome, measured={**outcome.measured, SUGGESTED: tuple(runs)})
        one, nearest = SUGGESTED, f"the same, trained (stored: {nearest})"
    comparisons = tuple(compared(outcome, one, question.plain, column) for column in question.columns.values())
    paid = cost(outcome, one, question.plain, question.about_beta)
    return Row(question, suggested, nearest, followed, comparisons, paid)


def _nearest(question: Question, answer: Mapping[str, Any], outcome: Outcome) -> tuple[str, bool, str, str]:
    """The label of the stored run, whether it follows the suggestion, and both in words."""
    steps, rounds = answer["steps"], answer["rounds"]
    if not question.about_beta:
        (one,) = question.stored
        length = run_of(question, one, outcome, 0).algorithm.phases[0].length
        taken = sum(length.units(Now(round=t)) for t in range(rounds)) / (steps * rounds)
        decay = answer["k_decay"]
        suggested = f"{decay:.6g} ({step_fraction(decaying_k(steps, decay), rounds):.0%} of the steps)"
        return one, decay < 1, f"K = {steps}: {suggested if decay < 1 else 'keep K'}", f"{taken:.0%} of the steps"
    wanted = share_of(answer["beta"], steps)
    shares = {name: decay.share(steps) for name, decay in question.stored.items() if decay is not None}
    one = min(shares, key=lambda name: abs(shares[name] - wanted))
    decay = question.stored[one]
    assert decay is not None
    followed = abs(shares[one] - wanted) < 1 - wanted
    unit = "epoch" if decay.by_epoch else "step"
    words = f"{answer['beta']:g} by step, K = {steps}: R {wanted:.2f}"
    return one, followed, words, f"{decay.beta:g} by {unit}: R {shares[one]:.2f}"


def far(question: Question, answer: Mapping[str, Any]) -> bool:
    """Whether no stored run is near to a suggestion that differs from the plain run."""
    if not question.about_beta or answer["beta"] == 1:
        return False
    steps = answer["steps"]
    wanted = share_of(answer["beta"], steps)
    return min(abs(one.share(steps) - wanted) for one in (*question.stored.values(), Decay(1.0)) if one) > FAR


def rows(about_beta: bool) -> Iterator[Row]:
    """The questions about beta, or those about the decay of K."""
    answers = json.loads(FILE.read_text(encoding="utf-8"))
    for question in QUESTIONS:
        if question.about_beta == about_beta:
            yield row(question, answers[question.name], stored(question.experiment.name))


def stays(found: Sequence[Row]) -> bool:
    """Rule 5."""
    return not any(one.worse for one in found) and any(one.pays for one in found)


def tables() -> str:
    """Both tables, in Markdown."""
    beta, steps = [*rows(about_beta=True)], [*rows(about_beta=False)]
    return "\n".join(
        [
            "| data | suggested beta | compared | existing users | new users | rounds | result |",
            "|---|---|---|---|---|---|---|",
            *map(str, beta),
            "",
            "| data | suggested K decay | compared | all users | local steps | result |",
            "|---|---|---|---|---|---|",
            *map(str, steps),
        ]
    )


def filled(page: str) -> str:
    """The page with the tables of the stored runs."""
    return SECTION.sub(lambda _: f"<!-- advice -->\n\n{tables()}\n\n<!-- end of advice -->", page)


def _write(answers: Mapping[str, Any]) -> None:
    """One line for each answer: runs have long curves."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> None:
    """Ask, write the answers, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--page", action="store_true", help="ask nothing; renew the page's tables")
    what.add_argument("--train", action="store_true", help="ask nothing; train what no stored run is near to")
    given = parser.parse_args()
    answers = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if given.train:
        for question in reversed(QUESTIONS):
            if far(question, answers[question.name]):
                answers[question.name]["trained"] = trained(question, answers[question.name])
                _write(answers)
    elif not given.page:
        for question in QUESTIONS:
            before, answers[question.name] = answers.get(question.name, {}), asked(question)
            print(question.name, answers[question.name], flush=True)
            # Runs of an answer that is still the same stay.
            if "trained" in before and before["beta"] == answers[question.name]["beta"]:
                answers[question.name]["trained"] = before["trained"]
        _write(answers)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(tables())
    for kind, about_beta in (("beta", True), ("K decay", False)):
        print(f"{kind}: {'stays' if stays([*rows(about_beta)]) else 'goes'}")


if __name__ == "__main__":
    main()
