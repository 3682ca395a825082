"""Performing a reproduction's runs over processes; every finished run is kept, so an interrupted one goes on."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedtempo.data.files.folders import cache_folder, missing, present
from fedtempo.data.load import DATASETS
from fedtempo.errors import ConfigError, DataError, TrainingError, is_count, require, unknown
from fedtempo.papers.framework.choosing import choices, trials, write_plan
from fedtempo.papers.framework.frame import Curve, Measured, PaperRun, Scale, key_of
from fedtempo.papers.framework.outcomes import Outcome, TuningChoice
from fedtempo.papers.framework.reproduction import Reproduction, gathered
from fedtempo.support.files import write_atomically
from fedtempo.training.pool import Ask, Done, Pool, WorkerDiedError

PROCESSES = 2
MOST_POINTS = 60
"""A kept curve has at most so many points, to five digits: runs are stored in the repository."""
KEPT = "runs"
"""The folder of finished runs inside a reproduction's own."""


@dataclass(frozen=True)
class SeededRun:
    """One run of one seed, and the file its measurements go to."""

    run: PaperRun
    seed: int
    path: Path
    is_trial: bool = False
    """A candidate that is tried: if it diverges, it has no scores, and another one is chosen."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.run.label}, seed {self.seed}"


Observer = Callable[[int, int, str], None]
"""Called with the number of finished runs, of all runs, and the name of the one that has just finished."""


def plan(
    reproduction: Reproduction, scale: str, seeds: int | None, out: Path, only: Sequence[str] = ()
) -> list[SeededRun]:
    """Every run of every seed that is judged, in a fixed order; where rates are tuned, with those of the scale."""
    return _judged(reproduction, scale_of(reproduction, scale), seeds, out, only)


def scale_of(reproduction: Reproduction, scale: str) -> Scale:
    """The scale by its name."""
    if scale not in reproduction.scales:
        raise unknown("scale", scale, reproduction.scales)
    return reproduction.scales[scale]


def _judged(
    reproduction: Reproduction, scale: Scale, seeds: int | None, out: Path, only: Sequence[str]
) -> list[SeededRun]:
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
        tasks += [_seeded(reproduction, run, seed, out) for run in chosen]
    return tasks


def _seeded(reproduction: Reproduction, run: PaperRun, seed: int, out: Path, is_trial: bool = False) -> SeededRun:
    return SeededRun(run, seed, out / KEPT / f"{key_of(reproduction.name, run, seed)}.json", is_trial)


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
    observe: Observer = lambda done, total, name: None,
) -> Outcome:
    """Perform the runs that are not yet in `out`, and put everything together; `only` these labels, if any are given.

    Where the scale tunes, every contestant's candidates are tried first, on seeds that are not judged. The numbers are
    the same whatever the number of processes and however often it was interrupted.
    """
    require(is_count(processes), "processes", "an int >= 1", processes)
    sized = scale_of(reproduction, scale)
    require_data_sets(_judged(reproduction, sized, 1, out, only), data_dir)
    found: dict[str, TuningChoice] = {}
    if sized.tuning is not None:
        write_plan(reproduction, scale, seeds or sized.seeds, out)
        tried = trials(reproduction, sized, only)
        tasks = [_seeded(reproduction, trial.run, trial.seed, out, is_trial=True) for trial in tried]
        found = choices(sized.tuning, tried, _all_measured(tasks, data_dir, processes, observe))
    chosen = replace(sized, chosen={name: choice.value for name, choice in found.items()})
    tasks = _judged(reproduction, chosen, seeds, out, only)
    by_seed: dict[int, dict[str, Measured]] = {}
    for task, one in zip(tasks, _all_measured(tasks, data_dir, processes, observe), strict=True):
        by_seed.setdefault(task.seed, {})[task.run.label] = one
    left_out = [run.label for run in reproduction.runs(chosen, 0) if only and run.label not in only]
    return gathered(reproduction, scale, list(by_seed.values()), found, left_out)


def _all_measured(
    tasks: Sequence[SeededRun], data_dir: Path | None, processes: int, observe: Observer
) -> list[Measured]:
    """What each task measured; those whose measurements are not kept are performed."""
    waiting = [task for task in tasks if _kept(task.path) is None]
    observe(len(tasks) - len(waiting), len(tasks), "")
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    several = min(processes, len(waiting)) > 1 and can_fork
    performed = _in_processes(waiting, data_dir, processes) if several else _here(waiting, data_dir)
    for done, task in enumerate(performed, len(tasks) - len(waiting) + 1):
        observe(done, len(tasks), task.name)
    found = []
    for task in tasks:
        measured = _kept(task.path)
        if measured is None:
            raise TrainingError(f"the measurements of {task.name} are gone from {task.path}. Run the command again.")
        found.append(measured)
    return found


def _perform(task: SeededRun, data_dir: Path | None) -> None:
    try:
        measured = task.run.perform(data_dir)
    except TrainingError:
        if not task.is_trial:
            raise
        measured = Measured()
    content = {
        "label": task.run.label,
        "seed": task.seed,
        "values": {name: float(value) for name, value in measured.values.items()},
        "curves": {name: _thinned(curve) for name, curve in measured.curves.items()},
    }
    write_atomically(task.path, json.dumps(content))


def _thinned(curve: Curve) -> list[list[float]]:
    """Every so many points of the curve, and always the last."""
    places = range(len(curve.x))
    kept = sorted({*places[:: max(1, -(-len(places) // (MOST_POINTS - 1)))], *places[-1:]})
    return [[float(f"{values[place]:.5g}") for place in kept] for values in (curve.x, curve.y)]


def _kept(path: Path) -> Measured | None:
    """The measurements of a finished run; None where there are none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        curves = {name: Curve(tuple(x), tuple(y)) for name, (x, y) in content["curves"].items()}
        return Measured(dict(content["values"]), curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _here(tasks: Sequence[SeededRun], data_dir: Path | None) -> Iterator[SeededRun]:
    for task in tasks:
        _perform(task, data_dir)
        yield task


def _in_processes(tasks: Sequence[SeededRun], data_dir: Path | None, processes: int) -> Iterator[SeededRun]:
    """The tasks over several processes; each is yielded as it ends."""

    def perform(number: int, ask: Ask) -> None:
        _perform(tasks[number], data_dir)

    waiting = iter(range(len(tasks)))
    # Forked, because a task's measures may be functions that cannot be pickled.
    with Pool(perform, processes, "fork") as pool:
        while True:
            while pool.has_room and (number := next(waiting, None)) is not None:
                pool.start(number, number)
            if pool.at_rest:
                return
            for message in pool.messages():
                task = tasks[message.number]
                if isinstance(message, Done) and message.error is not None:
                    raise _named(message.error, task)
                yield task


def _named(error: Exception, task: SeededRun) -> Exception:
    """The error with the run that it ended."""
    again = ". Finished runs are kept: run the command again." if isinstance(error, WorkerDiedError) else ""
    return type(error)(f"{task.name}: {error}{again}")
