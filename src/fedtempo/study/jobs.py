"""The runs of a fair comparison: trials that leave their score, judged runs that leave their folder."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedtempo.comparison.entrants import slug
from fedtempo.config import write_experiment
from fedtempo.errors import FedTempoError, OutputError, StoreError, TrainingError
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.study.plan import FairPlan
from fedtempo.study.tunable import FromFile, Make, Tunable
from fedtempo.support.files import read_inside, write_atomically
from fedtempo.training.loop import drained, train_experiment
from fedtempo.training.prepare import prepare
from fedtempo.training.round_report import RoundReport
from fedtempo.training.run import train
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.view import Run


@dataclass(frozen=True)
class FairRun:
    """One run: a contestant with certain values and a seed, and where it leaves what it found."""

    label: str
    make: Make
    chosen: Mapping[str, object]
    seed: int
    rounds: int
    every: int
    patience: int
    folder: Path
    outcome: Path | None = None
    """The file for a trial's score. A judged run has none: its folder is kept."""

    @property
    def name(self) -> str:
        """For people."""
        values = ", ".join(f"{name} {value}" for name, value in self.chosen.items())
        what = "judged" if self.outcome is None else f"trial with {values}"
        return f"{self.label}, seed {self.seed}, {what}"

    def done(self) -> bool:
        """Whether it needs no more training."""
        if self.outcome is not None:
            return trial_score(self.outcome) is not None
        try:
            return Run.of(self.folder).complete
        except FedTempoError:
            return False

    def perform(self) -> None:
        """Train to the end, on from the last stored round if there is one."""
        settings = {**self.make(self.chosen, self.seed), "rounds": self.rounds, "workers": 1}
        protocol: Evaluation = settings.get("evaluation") or Evaluation()
        settings["evaluation"] = replace(protocol, every=self.every, patience=self.patience)
        if self.outcome is None:
            self._judged(settings)
            return
        found = _trial(settings, self.folder, self.every)
        write_atomically(self.outcome, json.dumps({"values": dict(self.chosen), "seed": self.seed, **found}, indent=1))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _judged(self, settings: Mapping[str, Any]) -> None:
        """A run that is kept. One of an experiment file leaves a whole run folder, whose model can be exported."""
        begun = (self.folder / DATABASE).exists()
        if not isinstance(self.make, FromFile):
            drained(train(**settings, progress=False, out=self.folder, resume=begun))
            return
        file = self.make.file(self.chosen, self.seed)
        protocol = file.evaluation.model_copy(update={"every": self.every, "patience": self.patience})
        file = file.model_copy(update={"rounds": self.rounds, "evaluation": protocol})
        keep = partial(write_experiment, experiment=file)
        drained(train_experiment(prepare(**settings), self.folder, begun, claimed=keep)).export(self.folder)


def _trial(settings: Mapping[str, Any], folder: Path, every: int) -> dict[str, Any]:
    """A trial's validation scores. What goes wrong in it is its outcome: a rate may be too large to train with."""
    try:
        return _scored(_trained(settings, folder, every))
    except TrainingError as error:
        return {"best": None, "rounds": 0, "scores": [], "reason": " ".join(str(error).split())}


def _trained(settings: Mapping[str, Any], folder: Path, every: int) -> Sequence[RoundReport]:
    begun = (folder / DATABASE).exists()
    try:
        return drained(train(**settings, progress=False, out=folder, resume=begun, commit_every=every)).history
    except (StoreError, OutputError):  # what an interrupted trial left cannot be gone on with: it starts again
        if not begun:
            raise
        shutil.rmtree(folder)
        return drained(train(**settings, progress=False, out=folder, commit_every=every)).history


def _scored(history: Sequence[RoundReport]) -> dict[str, Any]:
    scores = [report.validation.quality() for report in history if report.validation is not None]
    known = [score for score in scores if math.isfinite(score)]
    return {
        "best": max(known, default=None),
        "rounds": len(history),
        "scores": [score if math.isfinite(score) else None for score in scores],
        "reason": "" if known else "the validation score was never a number",
    }


def trial_score(path: Path) -> dict[str, Any] | None:
    """What a trial left; None where there is nothing that can be read."""
    try:
        found = json.loads(read_inside(path.parent, path.name))
        return found if {"best", "values", "seed"} <= set(found) else None
    except (OSError, ValueError, TypeError):
        return None


Points = Sequence[Mapping[str, Any]]
"""The values that are tried, in the order of the trials."""


def trials_of(tunable: Tunable, points: Points, plan: FairPlan, folder: Path) -> list[FairRun]:
    """Every point with every tuning seed; none where there is nothing to tune."""
    place = folder / "tuning" / slug(tunable.label)
    return [
        FairRun(
            tunable.label,
            tunable.make,
            point,
            seed,
            plan.tuning_rounds,
            plan.every,
            plan.patience,
            place / f"trial-{number}-seed-{seed}",
            place / f"trial-{number}-seed-{seed}.json",
        )
        for number, point in enumerate(points if tunable.dimensions else [])
        for seed in plan.tuning_seeds
    ]


def judged_of(tunable: Tunable, chosen: Mapping[str, object], plan: FairPlan, folder: Path) -> list[FairRun]:
    """The chosen values with every judged seed."""
    place = folder / "runs" / slug(tunable.label)
    common = (plan.rounds, plan.every, plan.patience)
    return [FairRun(tunable.label, tunable.make, chosen, seed, *common, place / f"seed-{seed}") for seed in plan.seeds]
