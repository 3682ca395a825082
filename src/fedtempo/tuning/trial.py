"""One trial: an experiment trained with one or several seeds in step, scored by validation as it goes."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from fedtempo.config import ExperimentFile, parse, settings_of
from fedtempo.errors import FedTempoError, StoreError
from fedtempo.training.round_report import RoundReport
from fedtempo.training.run import train
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.storage.reader import RunReader

GoesOn = Callable[[int, float], bool]
"""Is told how many rounds were done and the best score so far; says whether the trial goes on."""


@dataclass(frozen=True)
class Job:
    """A trial to be run: the values of its experiment file, and the folder its runs live in meanwhile."""

    number: int
    values: Mapping[str, Any]
    seeds: int
    folder: Path


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended. `value` is the best score of any evaluated round, a mean over seeds, in the metric's unit."""

    state: Literal["complete", "pruned", "failed"]
    value: float = math.nan
    rounds: int = 0
    best_round: int = 0
    seconds: float = 0.0
    reason: str = ""


def run_trial(job: Job, goes_on: GoesOn) -> TrialOutcome:
    """Train the job's experiment round by round, all seeds in step; what goes wrong in it is its outcome."""
    started = time.perf_counter()
    try:
        outcome = _scored(job, goes_on, started)
    except FedTempoError as error:
        reason = " ".join(str(error).split())
        outcome = TrialOutcome("failed", seconds=time.perf_counter() - started, reason=reason)
    shutil.rmtree(job.folder, ignore_errors=True)
    return outcome


def _scored(job: Job, goes_on: GoesOn, started: float) -> TrialOutcome:
    file = parse(job.values).model_copy(update={"workers": 1})
    best, score, best_round, done = -math.inf, math.nan, 0, 0
    with ExitStack() as stack:
        seeds = range(file.seed, file.seed + job.seeds)
        runs = [stack.enter_context(closing(_rounds(file, seed, job.folder / f"seed-{seed}"))) for seed in seeds]
        for reports in _in_step(runs):
            done = max(report.round for report in reports) + 1
            quality = _quality(reports)
            if quality is None or math.isnan(quality):  # as in a run, a round without a number is not the best
                continue
            best, best_round = (quality, done) if quality > best else (best, best_round)
            if not math.isfinite(best):  # some user's model has diverged so far
                continue
            score = 0.0 - best if _lower_is_better(reports) else best
            if not goes_on(done, score):
                return TrialOutcome("pruned", score, done, best_round, time.perf_counter() - started)
    seconds = time.perf_counter() - started
    if not math.isfinite(best):
        reason = "no round had a validation score that is a finite number"
        return TrialOutcome("failed", rounds=done, seconds=seconds, reason=reason)
    return TrialOutcome("complete", score, done, best_round, seconds)


def _in_step(runs: Sequence[Iterator[RoundReport]]) -> Iterator[list[RoundReport]]:
    """The next round of every seed. One that has stopped early stays as its last evaluation left it."""
    latest: list[RoundReport | None] = [None] * len(runs)
    while True:
        news = [next(run, None) for run in runs]
        if not any(news):
            return
        latest = [new or old for new, old in zip(news, latest, strict=True)]
        yield [report for report in latest if report is not None]


def _quality(reports: Sequence[RoundReport]) -> float | None:
    """The mean over seeds of what validation selects by, larger is better; None in a round that is not evaluated."""
    scores = [report.validation for report in reports]
    return fmean(one.quality() for one in scores if one is not None) if all(scores) else None


def _lower_is_better(reports: Sequence[RoundReport]) -> bool:
    return any(report.validation is not None and report.validation.lower_is_better for report in reports)


def _rounds(file: ExperimentFile, seed: int, folder: Path) -> Generator[RoundReport, None, None]:
    """All rounds of one run: those that an earlier attempt has stored, and then the ones still to be trained."""
    stored = _stored(folder)
    settings = settings_of(file.model_copy(update={"seed": seed}))
    every = settings["evaluation"].interval(file.rounds)
    with closing(train(**settings, out=folder, resume=bool(stored), commit_every=every, progress=False)) as rounds:
        yield from stored
        for report in rounds:
            if report.round >= len(stored):
                yield report


def _stored(folder: Path) -> list[RoundReport]:
    """The rounds of an earlier attempt; one that left none, or damaged ones, is cleared away."""
    if not (folder / DATABASE).exists():
        return []
    try:
        history = RunReader(folder).refresh()
    except StoreError:
        history = []
    if not history:
        shutil.rmtree(folder)
    return history
