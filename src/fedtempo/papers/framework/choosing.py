"""Tuning before judging: every contestant's candidates on seeds of their own, and the plan of it all.

The plan is written before the first run. It says what will be tried, on which seeds, what decides and what is claimed,
so nothing can be chosen after the results are known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from fedtempo.errors import ConfigError, require
from fedtempo.papers.framework.definitions import FIRST_TUNING_SEED, Measured, PaperRun, Scale, TunedSetting, Tuning
from fedtempo.papers.framework.outcomes import TriedValue, TuningChoice
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.study.kept_plan import keep_plan
from fedtempo.support.json_text import JsonTable


@dataclass(frozen=True)
class PlannedTrial:
    """One candidate of one contestant on one tuning seed."""

    contestant: str
    value: float
    seed: int
    run: PaperRun


def trials(reproduction: Reproduction, scale: Scale, only: Sequence[str] = ()) -> list[PlannedTrial]:
    """Every contestant with every candidate on every tuning seed; those that `only` these labels need, if any."""
    if scale.tuning is None:
        return []
    return [
        PlannedTrial(name, value, seed, _trial(reproduction, scale, name, contestant, value, seed))
        for name, contestant in scale.tuning.contestants.items()
        if contestant.serves(only)
        for value in contestant.values
        for seed in scale.tuning.seeds
    ]


def _trial(
    reproduction: Reproduction, scale: Scale, name: str, contestant: TunedSetting, value: float, seed: int
) -> PaperRun:
    more = {} if scale.tuning is None else scale.tuning.settings
    runs = reproduction.runs(replace(scale, settings={**scale.settings, **more}, chosen={name: value}), seed)
    found = [run for run in runs if run.label == contestant.label]
    if not found:
        raise ConfigError(f"{reproduction.name}: {name} is tuned on {contestant.label!r}, which is no run.")
    return found[0]


def choices(tuning: Tuning, tried: Sequence[PlannedTrial], measured: Sequence[Measured]) -> dict[str, TuningChoice]:
    """What was chosen for each contestant that was tried."""
    found: dict[tuple[str, float], list[Measured]] = {}
    for trial, one in zip(tried, measured, strict=True):
        found.setdefault((trial.contestant, trial.value), []).append(one)
    names = dict.fromkeys(trial.contestant for trial in tried)
    return {
        name: choice(tuning, {value: found[name, value] for value in tuning.contestants[name].values}) for name in names
    }


def choice(tuning: Tuning, measured: Mapping[float, Sequence[Measured]]) -> TuningChoice:
    """The best candidate by the mean of its validation scores over seeds; one that diverged is the worst."""
    column, sign = tuning.column, 1 if tuning.higher_is_better else -1
    results = tuple(
        TriedValue(value, fmean(one.values.get(column, math.nan) for one in seeds)) for value, seeds in measured.items()
    )
    best = max(results, key=lambda result: -math.inf if math.isnan(result.score) else sign * result.score)
    return TuningChoice(best.value, results)


def write_plan(reproduction: Reproduction, scale: str, seeds: int, folder: Path) -> None:
    """Write the plan, or make sure that the folder has the same one; seeds may be added, nothing else may change."""
    require(seeds < FIRST_TUNING_SEED, "seeds", f"below {FIRST_TUNING_SEED}", seeds)
    keep_plan(folder, plan_record(reproduction, scale, seeds), may_grow=("judged_seeds",))


def plan_record(reproduction: Reproduction, scale: str, seeds: int) -> JsonTable:
    """What will be run and how it will be judged, as plain data."""
    sized = reproduction.scales[scale]
    tuning = sized.tuning
    record = {
        "name": reproduction.name,
        "scale": scale,
        "settings": dict(sized.settings),
        "tuned": {} if tuning is None else {who: vars(one) for who, one in tuning.contestants.items()},
        "tuned_by": None if tuning is None else tuning.column,
        "tuning_settings": {} if tuning is None else dict(tuning.settings),
        "tuning_seeds": [] if tuning is None else list(tuning.seeds),
        "judged_seeds": list(range(seeds)),
        "converged_if": None if sized.settling is None else vars(sized.settling),
        "margins": {name: column.margin for name, column in reproduction.columns.items() if column.margin is not None},
        "claims": [claim.text for claim in reproduction.claims],
    }
    plain: JsonTable = json.loads(json.dumps(record))
    return plain
