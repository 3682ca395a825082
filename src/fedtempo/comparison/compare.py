"""`ft.compare`: results in one table, or contestants that are tuned alike and judged on fresh seeds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_overloads, overload

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.errors import ConfigError, require, unknown
from fedtempo.training.result import Result
from fedtempo.training.run import run

if TYPE_CHECKING:
    from fedtempo.study import FairComparison
    from fedtempo.support.table import ResultTable

Contestants = Mapping[str, Algorithm | Callable[..., Algorithm]]
BUDGET = ("trials", "tuning_seeds", "tuning_rounds", "seeds", "patience", "margin", "widen", "test")
JUDGING = ("tune", "claims", "reference", "target", "out", "workers")
GIVEN_BY_COMPARE = (
    "algorithm",
    "seed",
    "out",
    "resume",
    "commit_every",
    "progress",
    "states",
    "as_planned",
    "same_kind",
    "trackers",
)


@overload
def compare(contestants: Sequence[Result], labels: Sequence[str] | None = None) -> ResultTable: ...


@overload
def compare(
    contestants: Contestants,
    labels: None = None,
    *,
    tune: Mapping[str, Any] | bool = True,
    trials: int = 8,
    tuning_seeds: int = 2,
    tuning_rounds: int | None = None,
    seeds: int | Sequence[int] = 5,
    patience: int = 5,
    margin: float | None = None,
    widen: int = 4,
    test: Literal["t", "sign-flip"] = "t",
    claims: Sequence[tuple[str, str]] | None = None,
    reference: str | None = None,
    target: float | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    **settings: Any,
) -> FairComparison: ...


def compare(
    contestants: Sequence[Result] | Contestants, labels: Sequence[str] | None = None, **settings: Any
) -> ResultTable | FairComparison:
    """Results side by side in one table, or algorithms compared fairly.

    Results with the same label, such as several seeds, are averaged. Without labels, results that differ in more than
    the seed are told apart.

    A mapping from labels to algorithms, or to functions that return one, is a fair comparison. What a function needs
    and has no default, such as `lr`, is tuned: everybody gets the same number of trials and rounds, is scored on
    validation, on seeds that are not judged afterwards. Then everybody is trained on fresh seeds until validation stops
    improving or the rounds are used up. The answer for each pair is better, worse, no difference, can't tell or not
    converged.

    Args:
        contestants: Results, or algorithms by label.
        labels: Of results; by default their algorithms.
        settings: Of a fair comparison. Those that `run` has too mean what they mean there, but for `data`, which may
            also be a function of the seed. The others:
            `tune`: ranges by parameter, `{"lr": {"log": [0.01, 1.0]}}` or `{"FedDecay/beta": [0.4, 0.8]}`; True takes
            the default ranges of rates.
            `trials`, `tuning_seeds`, `tuning_rounds`: what everybody may spend on tuning. Without `tuning_rounds` a
            trial is as long as a judged run.
            `seeds`: how many seeds are judged, or which.
            `patience`: the evaluations without a better validation score after which a run ends.
            `margin`: the largest difference that counts as none, one point for metrics that are shares.
            `widen`: further trials beyond an end of what was tried, for whoever's best value lies there.
            `test`: the paired test over seeds, `"t"` or the exact `"sign-flip"`.
            `claims`: pairs (label, other) to decide; by default everybody against the `reference`, which is the first.
            `target`: the score up to which costs are compared.
            `out`: a folder for the plan and all runs. The same call goes on with what is there.
            `workers`: how many runs train at a time.

    """
    if not isinstance(contestants, Mapping):
        from fedtempo.report.tables import result_table

        for name, value in settings.items():
            raise ConfigError(f"{name} must be left out where results are compared: they are trained. Got {value!r}.")
        _check_results(contestants, labels)
        return result_table(contestants, labels)
    require(labels is None, "labels", "left out: contestants are named by their keys", labels)
    return _fairly(contestants, **settings)


def _check_results(results: Sequence[Result], labels: Sequence[str] | None) -> None:
    """There are results, and a label for each of them."""
    listed = isinstance(results, Sequence) and not isinstance(results, str) and len(results) > 0
    what = "one or more results, or algorithms by label"
    require(listed and all(hasattr(result, "scores") for result in results), "contestants", what, results)
    named = labels is None or (not isinstance(labels, str) and len(labels) == len(results))
    require(named, "labels", f"{len(results)} names, one for each result", labels)
    scored = [result.scores for result in results if result.scores is not None]
    for what, found in (("metric", [s.metric for s in scored]), ("scored part", [s.part for s in scored])):
        if len(set(found)) > 1:
            both = " and ".join(map(repr, list(dict.fromkeys(found))[:2]))
            raise ConfigError(f"the {what} must be the same in all results that are compared. Got {both}.")


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
    from fedtempo.study import Budget, compare_fairly, from_functions, make_plan
    from fedtempo.tuning.space import dimensions_of

    budget = Budget(**{name: settings.pop(name) for name in BUDGET if name in settings})
    known = inspect.signature(run).parameters
    for name, value in settings.items():
        if name in GIVEN_BY_COMPARE:
            raise ConfigError(f"{name} must be left out: a fair comparison sets it. Got {value!r}.")
        if name not in known:
            raise unknown("setting", name, [*BUDGET, *JUDGING, *(n for n in known if n not in GIVEN_BY_COMPARE)])
    for name in ("model", "data", "rounds"):
        if name not in settings:
            raise ConfigError(f"{name} must be given. Got nothing.")
    require(isinstance(tune, (bool, Mapping)), "tune", "ranges by parameter, True or False", tune)
    ranges = dimensions_of(tune) if isinstance(tune, Mapping) else {} if tune else None
    tunables = from_functions(contestants, ranges, settings)
    plan = make_plan(tunables, budget, claims=claims, reference=reference, target=target)
    return compare_fairly(tunables, plan, None if out is None else Path(out), workers=workers)


def _every_setting() -> inspect.Signature:
    """The signature for `help` and editors: the settings of a fair comparison, then those of `run`."""
    own = inspect.signature(get_overloads(compare)[1]).parameters
    others = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(run).parameters.items()
        if name not in (*own, *GIVEN_BY_COMPARE)
    ]
    spelt = [parameter for parameter in own.values() if parameter.kind is not parameter.VAR_KEYWORD]
    return inspect.signature(compare).replace(parameters=[*spelt, *others])


compare.__signature__ = _every_setting()  # type: ignore[attr-defined]
