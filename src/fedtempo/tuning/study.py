"""The study of a search: every trial in SQLite, by Optuna, written by one process only."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedtempo.errors import OutputError, StoreError, first_line
from fedtempo.randomness import seed_for
from fedtempo.support.extras import library
from fedtempo.tuning.space import Dimension, Space
from fedtempo.tuning.trial import TrialOutcome

if TYPE_CHECKING:
    import optuna

DATABASE = "study.sqlite"
NAME = "fedtempo"
"""Of the study. Hyperband assigns trials to brackets by it, so it must never change."""
ENDED = "ended_early_after"
METHODS = ("grid", "hyperband")
SAMPLERS = ("random", "tpe")


@dataclass(frozen=True)
class SearchPlan:
    """A whole search. `trials` is the number of Hyperband's trials; a grid has as many as it has points."""

    space: Space
    method: str
    rounds: int
    first_evaluation: int
    seed: int = 0
    seeds: int = 1
    trials: int = 30
    sampler: str = "random"
    reduction: int = 3
    metric: str = "accuracy"
    """The name of what validation selects by."""
    lower_is_better: bool = False

    @property
    def total(self) -> int:
        """How many trials there will be."""
        return self.space.size if self.method == "grid" else self.trials

    def identity(self) -> dict[str, str]:
        """What must be equal where a search is resumed. The number of trials may grow."""
        return {
            "version": version("fedtempo"),
            "experiment": json.dumps(self.space.values, sort_keys=True, default=str),
            "tune": json.dumps([asdict(dimension) for dimension in self.space.dimensions], default=str),
            "method": self.method,
            "sampler": self.sampler if self.method == "hyperband" else "",
            "seeds": str(self.seeds),
            "reduction": str(self.reduction),
        }


@dataclass(frozen=True)
class Record:
    """One stored trial."""

    number: int
    values: dict[str, Any]
    outcome: TrialOutcome


class Study:
    """Asks Optuna for trials and stores their outcomes."""

    def __init__(self, plan: SearchPlan, folder: Path, resume: bool) -> None:
        self._optuna = optuna_or_error()
        self._plan = plan
        self._trials: dict[int, optuna.trial.Trial] = {}
        self._study = self._opened(folder / DATABASE, resume)
        states = self._optuna.trial.TrialState
        self._unfinished = [t for t in self._study.get_trials(deepcopy=False) if t.state == states.RUNNING]

    def next(self) -> tuple[int, dict[str, object]] | None:
        """Number and values of the next trial; one that was interrupted comes first. None when all have been given."""
        if self._unfinished:
            frozen = self._unfinished.pop(0)
            self._study.sampler = self._sampler(frozen.number)
            trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
        else:
            number = self._next_number()
            if number is None:
                return None
            self._study.sampler = self._sampler(number)
            trial = self._study.ask()
        self._trials[trial.number] = trial
        return trial.number, {d.name: _suggested(trial, d) for d in self._plan.space.dimensions}

    def report(self, number: int, rounds: int, value: float) -> bool:
        """Store a trial's best score so far; whether it goes on. Only Hyperband ends a trial early.

        A trial that was interrupted reports its scores again. The decision of the first time holds.
        """
        trial, noted = self._trials[number], self._study.get_trials(deepcopy=False)[number]
        last = max(noted.intermediate_values, default=0)
        if rounds < last or rounds >= self._plan.rounds:
            return True
        if rounds > last:
            trial.report(value, rounds)
        ends = noted.user_attrs.get(ENDED) == rounds or trial.should_prune()
        if ends:
            trial.set_user_attr(ENDED, rounds)
        return not ends

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Store how a trial ended."""
        trial, states = self._trials.pop(number), self._optuna.trial.TrialState
        for name, fact in asdict(outcome).items():
            trial.set_user_attr(name, None if isinstance(fact, float) and not math.isfinite(fact) else fact)
        ended = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[outcome.state]
        value = outcome.value if outcome.state == "complete" else None
        self._study.tell(trial, value, state=ended)

    def records(self) -> list[Record]:
        """All trials that have ended, by number."""
        ended = [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()]
        return [Record(trial.number, self._decoded(trial.params), _outcome(trial.user_attrs)) for trial in ended]

    def importances(self) -> dict[str, float]:
        """Each dimension's share of the scores' variance (fANOVA), largest first; empty where scores do not tell."""
        try:
            evaluator = self._optuna.importance.FanovaImportanceEvaluator(seed=0)
            found: dict[str, float] = self._optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        except (ValueError, RuntimeError):  # fewer than two scores, or all of them alike
            return {}
        return {} if any(math.isnan(share) for share in found.values()) else found

    def _next_number(self) -> int | None:
        """The number of the trial that `ask` will give; a grid's points are queued one by one."""
        trials = self._study.get_trials(deepcopy=False)
        waiting = [t.number for t in trials if t.state == self._optuna.trial.TrialState.WAITING]
        if waiting:
            return waiting[0]
        if len(trials) >= self._plan.total:
            return None
        if self._plan.method == "grid":
            point = next(itertools.islice(self._plan.space.points(), len(trials), None))
            self._study.enqueue_trial({name: json.dumps(value) for name, value in point.items()})
        return len(trials)

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Seeded by the search's seed and the trial's number, so a resumed search needs no random state."""
        seed = seed_for(self._plan.seed, "trial", number) % 2**32
        kinds = {"tpe": self._optuna.samplers.TPESampler, "random": self._optuna.samplers.RandomSampler}
        sampler: optuna.samplers.BaseSampler = kinds[self._plan.sampler](seed=seed)
        return sampler

    def _decoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        dimensions = [d for d in self._plan.space.dimensions if d.name in params]
        return {d.name: params[d.name] if d.range else json.loads(params[d.name]) for d in dimensions}

    def _opened(self, path: Path, resume: bool) -> optuna.Study:
        if path.exists() and not resume:
            raise OutputError(
                f"out must be a new folder. Got {path.parent}, which holds a search: --resume goes on with it."
            )
        if resume and not path.exists():
            raise OutputError(f"a folder to resume must hold a search. Got {path.parent}, which does not.")
        library = self._optuna
        library.logging.set_verbosity(library.logging.ERROR)
        try:
            self._storage = library.storages.RDBStorage(f"sqlite:///{path.absolute()}")
            study: optuna.Study = library.create_study(
                storage=self._storage,
                study_name=NAME,
                direction="minimize" if self._plan.lower_is_better else "maximize",
                pruner=self._pruner(),
                load_if_exists=True,
            )
        except (library.exceptions.StorageInternalError, OSError) as error:
            raise StoreError(f"{path} cannot be used: {first_line(error)}.") from None
        try:
            self._check(study)
        except OutputError:
            self.close()
            raise
        return study

    def close(self) -> None:
        """Close the database: Optuna leaves its connections open until they are collected."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _check(self, study: optuna.Study) -> None:
        stored, identity = study.user_attrs, self._plan.identity()
        for field, value in identity.items():
            if field not in stored:
                study.set_user_attr(field, value)
            elif stored[field] != value:
                raise OutputError(f"{field} must be that of the stored search, {stored[field]!r}. Got {value!r}.")

    def _pruner(self) -> optuna.pruners.BasePruner:
        plan, pruners = self._plan, self._optuna.pruners
        pruner: optuna.pruners.BasePruner = pruners.NopPruner()
        if plan.method == "hyperband":
            pruner = pruners.HyperbandPruner(plan.first_evaluation, plan.rounds, plan.reduction)
        return pruner


def _outcome(noted: Mapping[str, Any]) -> TrialOutcome:
    facts = {name: fact for name, fact in noted.items() if name != ENDED and fact is not None}
    return TrialOutcome(**facts)


def _suggested(trial: optuna.trial.Trial, dimension: Dimension) -> Any:
    """The dimension's value in this trial."""
    found = dimension.range
    if found is None:
        return json.loads(trial.suggest_categorical(dimension.name, dimension.texts()))
    if found.integer:
        return trial.suggest_int(dimension.name, int(found.low), int(found.high), log=found.log)
    return trial.suggest_float(dimension.name, found.low, found.high, log=found.log)


def optuna_or_error() -> ModuleType:
    """Optuna, or how to get it."""
    return library("optuna", "tune", "tune")
