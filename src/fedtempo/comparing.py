"""`ft.compare`: results in one table, or contestants that are tuned alike and judged on fresh seeds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.errors import ConfigError, require, unknown
from fedtempo.training.result import Result

if TYPE_CHECKING:
    from fedtempo.comparison.fair import FairComparison
    from fedtempo.report.tables import ResultTable

Contestants = Mapping[str, Algorithm | Callable[..., Algorithm]]
BUDGET = ("trials", "tuning_seeds", "tuning_rounds", "seeds", "patience", "margin")
GIVEN_BY_COMPARE = (
    "algorithm",
    "seed",
    "out",
    "resume",
    "commit_every",
    "progress",
    "states",
    "as_planned",
    "trackers",
)


@overload
def compare(contestants: Sequence[Result], labels: Sequence[str] | None = None) -> ResultTable: ...


@overload
def compare(
    contestants: Contestants,
    labels: None = None,
    *,
    tune: Mapping[str, Any] | bool = ...,
    trials: int = ...,
    tuning_seeds: int = ...,
    tuning_rounds: int | None = ...,
    seeds: int | Sequence[int] = ...,
    patience: int = ...,
    margin: float | None = ...,
    claims: Sequence[tuple[str, str]] | None = ...,
    reference: str | None = ...,
    target: float | None = ...,
    out: str | Path | None = ...,
    workers: int = ...,
    **settings: Any,
) -> FairComparison: ...


def compare(
    contestants: Sequence[Result] | Contestants, labels: Sequence[str] | None = None, **settings: Any
) -> ResultTable | FairComparison:
    """Results side by side in one table, or algorithms compared fairly.

    Results with the same label, such as several seeds, are averaged.

    A mapping from labels to algorithms, or to functions that return one, is a fair comparison. What a function needs
    and has no default, such as `lr`, is tuned: everybody gets the same number of trials and rounds, is scored on
    validation, on seeds that are not judged afterwards. Then everybody is trained on fresh seeds until validation stops
    improving or the rounds are used up. The answer for each pair is better, worse, no difference, can't tell or not
    converged.

    Args:
        contestants: Results, or algorithms by label.
        labels: Of results; by default their algorithms.
        settings: Of a fair comparison. `tune` has ranges by parameter, `{"lr": {"log": [0.01, 1.0]}}` or
            `{"FedDecay/beta": [0.4, 0.8]}`; True takes the default ranges of rates. `trials` (8), `tuning_seeds` (2),
            `tuning_rounds` (as many as `rounds`), judged `seeds` (5, or a list), `patience` (5 evaluations) and
            `margin` (0.01) are the same for everybody. `claims` are pairs (label, other), by default everybody against
            the `reference`, which is the first. `target` is the score up to which costs are compared. `out` keeps the
            plan and all runs; the same call goes on with what is there. `workers` is how many runs train at a time. All
            others are those of `run`; `data` may be a function of the seed.

    """
    if not isinstance(contestants, Mapping):
        from fedtempo.report.tables import ResultTable

        for name, value in settings.items():
            raise ConfigError(f"{name} must be left out where results are compared: they are trained. Got {value!r}.")
        return ResultTable(contestants, labels)
    require(labels is None, "labels", "left out: contestants are named by their keys", labels)
    return _fairly(contestants, **settings)


def _fairly(
    contestants: Contestants,
    *,
    tune: Mapping[str, Any] | bool = True,
    claims: Sequence[tuple[str, str]] | None = None,
    reference: str | None = None,
    target: float | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    **settings: Any,
) -> FairComparison:
    from fedtempo.api import run
    from fedtempo.comparison.fair import Budget, compare_fairly, from_functions, make_plan
    from fedtempo.tuning.space import dimensions_of

    budget = Budget(**{name: settings.pop(name) for name in BUDGET if name in settings})
    known = inspect.signature(run).parameters
    for name, value in settings.items():
        if name in GIVEN_BY_COMPARE:
            raise ConfigError(f"{name} must be left out: a fair comparison sets it. Got {value!r}.")
        if name not in known:
            raise unknown("setting", name, [*known, *BUDGET])
    for name in ("model", "data", "rounds"):
        if name not in settings:
            raise ConfigError(f"{name} must be given. Got nothing.")
    require(isinstance(tune, (bool, Mapping)), "tune", "ranges by parameter, True or False", tune)
    ranges = dimensions_of(tune) if isinstance(tune, Mapping) else {} if tune else None
    tunables = from_functions(contestants, ranges, settings)
    plan = make_plan(tunables, budget, claims=claims, reference=reference, target=target)
    return compare_fairly(tunables, plan, None if out is None else Path(out), workers=workers)
