"""Performing a reproduction's runs over processes; every finished run is kept, so an interrupted one goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedtempo.data.files.folders import cache_folder, missing, present
from fedtempo.data.load import DATASETS
from fedtempo.errors import ConfigError, DataError, TrainingError, is_count, require, unknown
from fedtempo.papers.framework.choosing import choices, plan_record, trials, write_plan
from fedtempo.papers.framework.definitions import Measured, Scale, Training
from fedtempo.papers.framework.kept import SeededRun, keep, kept, seeded_run
from fedtempo.papers.framework.outcomes import Outcome, TuningChoice
from fedtempo.papers.framework.reproduction import Reproduction, gathered
from fedtempo.papers.framework.stored import StoredRuns
from fedtempo.study.driver import Observe, perform_all

PROCESSES = 2


def plan(
    reproduction: Reproduction, scale: str, seeds: int | None, out: Path, only: Sequence[str] = ()
) -> list[SeededRun]:
    """Every run of every seed that is judged, in a fixed order; where rates are tuned, with those of the scale."""
    return judged_runs(reproduction, scale_of(reproduction, scale), seeds, out, only)


def scale_of(reproduction: Reproduction, scale: str) -> Scale:
    """The scale by its name."""
    if scale not in reproduction.scales:
        raise unknown("scale", scale, reproduction.scales)
    return reproduction.scales[scale]


def judged_runs(
    reproduction: Reproduction, scale: Scale, seeds: int | None, out: Path, only: Sequence[str]
) -> list[SeededRun]:
    """Every run of every judged seed, with the rates that the scale has chosen."""
    require(seeds is None or is_count(seeds), "seeds", "an int >= 1", seeds)
    tasks = []
    for seed in range(seeds or scale.seeds):
        runs = reproduction.runs(scale, seed)
        labels = [run.label for run in runs]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"{reproduction.name}: labels must differ. Got {labels}.")
        for label in only:
            if label not in labels:
                raise unknown("label", label, labels)
        chosen = [run for run in runs if not only or run.label in only]
        tasks += [seeded_run(reproduction.name, reproduction.measure, run, seed, out) for run in chosen]
    return tasks


def trial_runs(reproduction: Reproduction, scale: Scale, out: Path, only: Sequence[str] = ()) -> list[SeededRun]:
    """The run of every trial."""
    return [
        seeded_run(reproduction.name, reproduction.measure, trial.run, trial.seed, out, trial.value)
        for trial in trials(reproduction, scale, only)
    ]


def with_choices(scale: Scale, found: Mapping[str, TuningChoice]) -> Scale:
    """The scale with what tuning chose."""
    return replace(scale, chosen={name: choice.value for name, choice in found.items()})


def require_data_sets(tasks: Sequence[SeededRun], data_dir: Path | None) -> None:
    """Every data set is here; the error says how to get one that is not."""
    for name in sorted({name for task in tasks for name in task.run.data_sets}):
        if DATASETS[name].ways and present(DATASETS[name], data_dir, cache_folder()) is None:
            raise DataError(missing(DATASETS[name], data_dir, cache_folder()))


def reproduce(
    reproduction: Reproduction,
    scale: str,
    out: Path,
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    data_dir: Path | None = None,
    processes: int = PROCESSES,
    observe: Observe = lambda done, total, name: None,
    stored: Path | None = None,
    provenance: str = "",
) -> Outcome:
    """Perform the runs that are not yet in `out`, and put everything together; `only` these labels, if any are given.

    Where the scale tunes, every contestant's candidates are tried first, on seeds that are not judged. The numbers are
    the same whatever the number of processes and however often it was interrupted. Runs that the file `stored` has are
    taken from it, the others are added to it, with their `provenance`.
    """
    require(is_count(processes), "processes", "an int >= 1", processes)
    sized = scale_of(reproduction, scale)
    require_data_sets(judged_runs(reproduction, sized, 1, out, only), data_dir)
    judged = seeds or sized.seeds
    store = None if stored is None else StoredRuns(stored, plan_record(reproduction, scale, judged))

    def measured(tasks: Sequence[SeededRun]) -> list[Measured]:
        if store is not None:
            store.fill(tasks)
        try:
            return _all_measured(tasks, data_dir, processes, observe)
        finally:
            if store is not None:
                store.add(tasks, sized.tuning, provenance)

    found: dict[str, TuningChoice] = {}
    if sized.tuning is not None:
        write_plan(reproduction, scale, judged, out)
        tried = trials(reproduction, sized, only)
        found = choices(sized.tuning, tried, measured(trial_runs(reproduction, sized, out, only)))
    chosen = with_choices(sized, found)
    tasks = judged_runs(reproduction, chosen, seeds, out, only)
    by_seed: dict[int, dict[str, Measured]] = {}
    for task, one in zip(tasks, measured(tasks), strict=True):
        by_seed.setdefault(task.seed, {})[task.run.label] = one
    left_out = [run.label for run in reproduction.runs(chosen, 0) if only and run.label not in only]
    return gathered(reproduction, scale, list(by_seed.values()), found, left_out)


def _all_measured(
    tasks: Sequence[SeededRun], data_dir: Path | None, processes: int, observe: Observe
) -> list[Measured]:
    """What each task measured; those whose measurements are not kept are performed, over so many processes."""
    # Forked, because a task's measures may be functions that cannot be sent.
    failed = perform_all([PaperJob(task, data_dir) for task in tasks], processes, False, observe)
    if failed:
        raise failed[0]
    found = []
    for task in tasks:
        measured = kept(task.path)
        if measured is None:
            raise TrainingError(f"the measurements of {task.name} are gone from {task.path}. Run the command again.")
        found.append(measured)
    return found


@dataclass(frozen=True)
class PaperJob:
    """A run of a reproduction for the driver of all studies."""

    task: SeededRun
    data_dir: Path | None

    @property
    def name(self) -> str:
        """For people."""
        return self.task.name

    def done(self) -> bool:
        """Whether its measurements are kept."""
        return kept(self.task.path) is not None

    def perform(self) -> None:
        """Train, measure and keep what was measured. A candidate that diverges has no scores."""
        started, run = time.process_time(), self.task.run
        if self.task.tried is not None and isinstance(run, Training) and not run.has_validation(self.data_dir):
            raise ConfigError("a rate must be chosen on validation rows, and this data has none.")
        try:
            measured = run.perform(self.data_dir)
        except TrainingError:
            if self.task.tried is None:
                raise
            measured = Measured()
        keep(self.task, measured | Measured(seconds=time.process_time() - started))
