"""A reproduction: a table or figure of a paper as runs, measurements, the paper's values and claims."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedtempo.errors import require
from fedtempo.papers.framework.claims import Claim
from fedtempo.papers.framework.definitions import Column, Measured, PaperRun, Scale, Tuning, Values
from fedtempo.papers.framework.figures import Figure
from fedtempo.papers.framework.outcomes import Outcome, TuningChoice, Units

SCALES = ("smoke", "small", "medium", "paper")
REQUIRED = ("smoke", "small", "paper")
PAPERS: dict[str, Any] = {
    "feddecay": "FedDecay: Adapting to Data Heterogeneity in Federated Learning with Gradient Decay",
    "fednar": "FedNAR: Federated Optimization with Normalized Annealing Regularization",
    "pflego": "Personalized Federated Learning with Exact Distributed Stochastic Gradient Descent Updates",
    "decaying-k": "Faster Federated Learning with Decaying Number of Local SGD Steps",
    "control": "No paper: every control of rates and steps, tuned alike",
    "clock": "No paper: the papers' methods, and asynchronous ones, against the time of simulated devices",
    "compositions": "No paper: what happens when the papers' ideas are put together",
    "compression": "No paper: accuracy against bytes where uploads are compressed",
}
OURS = ("compositions", "compression", "clock", "control")
"""Pages whose claims are our own questions and no paper's."""


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper as runs, measurements, the paper's values and claims."""

    name: str
    paper: str
    """A key of `PAPERS`."""
    source: str
    """Where in the paper: 'Table 3', 'Figure 1'."""
    title: str
    scales: Mapping[str, Scale]
    runs: Callable[[Scale, int], Sequence[PaperRun]]
    """From a scale and a seed to the labelled runs; the same labels for every seed."""
    columns: Mapping[str, Column]
    """Which measured values the table shows, by name."""
    claims: tuple[Claim, ...]
    reported: Values = field(default_factory=dict)
    """The paper's values, by label and column."""
    figures: tuple[Figure, ...] = ()
    chart: str = ""
    """The figure that stands beside the verdicts, by its name; the first one by default."""
    derive: Callable[[Values], Values] | None = None
    """From one seed's values of all labels to further columns, such as a ratio to another label's.

    A label that the seed lacks has NaN for every value, and what is derived from it must be NaN too."""
    measure: int = 1
    """The number of what is measured. Raise it where the same run would measure something else: stored runs then no
    longer count."""
    notes: tuple[str, ...] = ()
    """Where the setting departs from the paper's, and errata that matter."""
    looks: int = 1
    """How often the stored seeds were looked at before there were more."""
    units: Units | None = None
    """What is independent, where seeds are not."""
    seen: tuple[int, ...] = ()
    """Seeds whose scores chose a setting: medium scale does not judge them."""

    def __post_init__(self) -> None:
        require(self.paper in PAPERS, f"{self.name}: paper", " or ".join(PAPERS), self.paper)
        named = [figure.name for figure in self.figures]
        require(not self.chart or self.chart in named, f"{self.name}: chart", " or ".join(named), self.chart)
        complete = set(REQUIRED) <= set(self.scales) <= set(SCALES)
        require(complete, f"{self.name}: scales", f"{', '.join(REQUIRED)}, and medium if wanted", list(self.scales))


def gathered(
    reproduction: Reproduction,
    scale: str,
    by_seed: Sequence[Mapping[str, Measured]],
    choices: Mapping[str, TuningChoice] | None = None,
    left_out: Sequence[str] = (),
) -> Outcome:
    """Put the seeds together, with the columns that are derived from others; the first seed has every label."""
    labels = list(by_seed[0])
    unseen = [one for seed, one in enumerate(by_seed) if scale != "medium" or seed not in reproduction.seen]
    complete = [_with_derived(reproduction, measured, [*labels, *left_out]) for measured in unseen or by_seed]
    return Outcome(
        scale,
        reproduction.columns,
        {label: tuple(one[label] for one in complete if label in one) for label in labels},
        reproduction.scales[scale].settling,
        choices or {},
        tuple(left_out),
        _unbounded(reproduction.scales[scale].tuning, choices or {}),
        reproduction.looks,
        reproduction.units,
    )


def _unbounded(tuning: Tuning | None, choices: Mapping[str, TuningChoice]) -> tuple[str, ...]:
    """The labels of contestants for which a better rate may lie outside the candidates."""
    if tuning is None:
        return ()
    known = [(tuning.contestants[name], one) for name, one in choices.items() if name in tuning.contestants]
    found = [contestant for contestant, choice in known if not choice.bounded(tuning.tie)]
    return tuple(label for one in found for label in (one.label, *one.also))


def _with_derived(
    reproduction: Reproduction, measured: Mapping[str, Measured], labels: Collection[str]
) -> Mapping[str, Measured]:
    """One seed's labels with the derived columns; without a column that needs a label which the seed lacks."""
    if reproduction.derive is None:
        return measured
    lacking: Mapping[str, float] = defaultdict(lambda: math.nan)
    more = reproduction.derive({label: measured[label].values if label in measured else lacking for label in labels})
    complete = len(measured) == len(labels)
    return {
        label: one | Measured({name: x for name, x in more.get(label, {}).items() if complete or not math.isnan(x)})
        for label, one in measured.items()
    }
