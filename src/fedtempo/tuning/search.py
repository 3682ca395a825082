"""The search: trials one after the other or in worker processes, resumable, with the winner written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from fedtempo.config import ExperimentFile, settings_of
from fedtempo.config.experiment_file import naming_code
from fedtempo.config.pairs import put
from fedtempo.errors import ConfigError, is_count, require, unknown
from fedtempo.study.driver import each_ended
from fedtempo.support.files import sole_user
from fedtempo.training.experiment import Experiment
from fedtempo.training.pool import Ask
from fedtempo.training.prepare import prepare
from fedtempo.tuning.grids import GRIDS
from fedtempo.tuning.outcome import Found
from fedtempo.tuning.space import Dimension, Space, dimensions_of, read_tables
from fedtempo.tuning.study import METHODS, SAMPLERS, Record, SearchPlan, Study, optuna_or_error
from fedtempo.tuning.trial import Job, TrialOutcome, run_trial

LOCK = "tune.lock"
MOST_TRIALS = 100_000
Observe = Callable[[Record, int], None]
"""Is told about each trial that ends, and how many have."""


def space_of(
    path: Path,
    grid: str | None = None,
    ranges: Path | None = None,
    settings: Mapping[str, object] | None = None,
    allow_code: Sequence[str] = (),
) -> Space:
    """The space of an experiment file: its own `[tune]` table, or another file's, on top of a paper's grid.

    A paper's grid brings its own `[algorithm]`; `settings` are put into the file after that.
    """
    values, table = read_tables(path)
    table = table if ranges is None else read_tables(ranges)[1]
    dimensions: dict[str, Dimension] = {}
    if grid is not None:
        if grid not in GRIDS:
            raise unknown("grid", grid, GRIDS)
        values["algorithm"] = dict(GRIDS[grid].algorithm)
        dimensions = dimensions_of(dict(GRIDS[grid].choices))
    for field, value in (settings or {}).items():
        put(values, field, value, "--set")
    dimensions |= dimensions_of(table)
    space = Space(values, tuple(dimensions.values()))
    with naming_code(path.parent, allow_code):
        space.check()
    return space


def plan_search(
    space: Space,
    method: str | None = None,
    trials: int | None = None,
    seeds: int = 1,
    sampler: str = "random",
    reduction: int = 3,
) -> SearchPlan:
    """Check everything that a search needs before it starts; the method is a grid where every dimension has choices."""
    optuna_or_error()
    open_ended = [dimension.name for dimension in space.dimensions if dimension.range is not None]
    chosen = method or ("hyperband" if open_ended else "grid")
    require(chosen in METHODS, "method", "'grid' or 'hyperband'", chosen)
    require(sampler in SAMPLERS, "sampler", "'random' or 'tpe'", sampler)
    require(is_count(seeds), "seeds", "an int >= 1", seeds)
    require(is_count(reduction, 2), "reduction", "an int >= 2", reduction)
    require(trials is None or is_count(trials), "trials", "an int >= 1", trials)
    first = space.experiment({dimension.name: dimension.samples[0] for dimension in space.dimensions})
    experiment = _checked(first)
    every = _first_evaluation(experiment)
    if chosen == "grid":
        for name in open_ended:
            raise ConfigError(f"tune {name!r} must have choices or points in a grid. Got a range.")
        require(space.size <= MOST_TRIALS, "grid", f"at most {MOST_TRIALS} points", space.size)
        require(trials is None, "trials", "left out with a grid, which has its own number", trials)
    else:
        _check_hyperband(space, experiment.rounds, every, reduction)
    task = experiment.federation.problem.task
    return SearchPlan(
        space,
        chosen,
        experiment.rounds,
        every,
        first.seed,
        seeds,
        trials or 30,
        sampler,
        reduction,
        task.metric,
        task.metric in task.lower_is_better,
    )


def _checked(file: ExperimentFile) -> Experiment:
    experiment = prepare(**settings_of(file))
    if not experiment.federation.problem.data.sizes("validation").any():
        got = f"{file.data.validation!r}, and {file.data.name!r} has no validation part of its own"
        raise ConfigError(f"data.validation must be above 0 for tune, which looks at validation scores. Got {got}.")
    return experiment


def _first_evaluation(experiment: Experiment) -> int:
    protocol = experiment.evaluation
    assert protocol is not None
    return next(done for done in range(1, experiment.rounds + 1) if protocol.due(done - 1, experiment.rounds))


def _check_hyperband(space: Space, rounds: int, every: int, reduction: int) -> None:
    for dimension in space.dimensions:
        for field in dimension.fields:
            fixed = field == "rounds" or field.split(".")[0] == "evaluation"
            require(not fixed, f"tune {field!r}", "left out with hyperband: trials are compared round by round", field)
    holds = every * reduction <= rounds
    require(
        holds, "evaluation.every", f"at most rounds / {reduction} for hyperband, which is {rounds // reduction}", every
    )


def search(
    plan: SearchPlan, out: Path, *, workers: int = 1, resume: bool = False, observe: Observe | None = None
) -> Found:
    """Run every trial that is not done yet, and leave the study, the table, the report and the winner in the folder.

    An interrupted search goes on where it was: finished trials stay, running ones go on from their last
    stored round. One worker gives the same trials to the bit each time; so do several, but for which of Hyperband's
    trials are ended early and what `sampler="tpe"` proposes: both depend on who is done first.
    """
    require(is_count(workers), "workers", "an int >= 1", workers)
    with sole_user(out, LOCK), closing(Study(plan, out, resume)) as study:
        watch = observe or (lambda record, done: None)

        def goes_on(job: Job, question: tuple[int, float]) -> bool:
            return study.report(job.number, *question)

        # Sent to fresh processes: checking the experiment may have started CUDA here, which a copy does not survive.
        for job, outcome, error in each_ended(_jobs(study, plan, out), workers, True, _trial, goes_on):
            study.finish(job.number, outcome if error is None else TrialOutcome("failed", reason=str(error)))
            _tell(study, job.number, watch)
        found = Found(plan, study.records(), study.importances())
        found.write(out)
    return found


def _jobs(study: Study, plan: SearchPlan, out: Path) -> Iterator[Job]:
    while (given := study.next()) is not None:
        number, chosen = given
        values = plan.space.experiment(chosen).model_dump(exclude_none=True)
        yield Job(number, values, plan.seeds, out / "trials" / f"{number:05d}")


def _trial(job: Job, ask: Ask) -> TrialOutcome:
    """A trial asks after every evaluation whether to go on."""
    return run_trial(job, lambda rounds, value: bool(ask((rounds, value))))


def _tell(study: Study, number: int, watch: Observe) -> None:
    records = study.records()
    watch(next(record for record in records if record.number == number), len(records))
