"""What the runs in the repository say: every label with the seeds that it has, without training."""

from __future__ import annotations

from itertools import count, takewhile
from pathlib import Path

from fedtempo.papers.framework.choosing import choice, plan_record
from fedtempo.papers.framework.definitions import Measured, TunedSetting, Tuning
from fedtempo.papers.framework.outcomes import Outcome, TuningChoice
from fedtempo.papers.framework.reproduction import Reproduction, gathered
from fedtempo.papers.framework.stored import StoredRuns


def stored_outcome(reproduction: Reproduction, scale: str, path: Path) -> Outcome | None:
    """The outcome of the file's runs; None where no label has run on all seeds that were planned for everybody.

    A label that has fewer seeds was not run. One that has more keeps them: claims about it are judged on more seeds.
    """
    sized = reproduction.scales[scale]
    store = StoredRuns(path, plan_record(reproduction, scale, 1))
    least = min(sized.seeds, len(store.plan["judged_seeds"]))
    labels = [run.label for run in reproduction.runs(sized, 0)]
    found = {label: _seeds(store, label) for label in labels}
    untried = _without_trials(store, sized.tuning)
    finished = {label: seeds for label, seeds in found.items() if len(seeds) >= least and label not in untried}
    if not finished:
        return None
    by_seed = [
        {label: seeds[seed] for label, seeds in finished.items() if seed < len(seeds)}
        for seed in range(max(map(len, finished.values())))
    ]
    left_out = [label for label in labels if label not in finished]
    return gathered(reproduction, scale, by_seed, _choices(store, sized.tuning), left_out)


def _seeds(store: StoredRuns, label: str) -> list[Measured]:
    """The judged runs of a label, from seed 0 to the first that is missing."""
    found = (store.measured(label, seed) for seed in count())
    return [one for one in takewhile(lambda one: one is not None, found) if one is not None]


def _without_trials(store: StoredRuns, tuning: Tuning | None) -> set[str]:
    """The labels of contestants some but not all of whose trials are stored: their grid has become wider."""
    if tuning is None:
        return set()
    tried = {label for label, value, _ in store.runs if value is not None}
    contestants = tuning.contestants.values()
    open_ended = [one for one in contestants if one.label in tried and not _trials(store, tuning, one)]
    return {label for one in open_ended for label in (one.label, *one.also)}


def _choices(store: StoredRuns, tuning: Tuning | None) -> dict[str, TuningChoice]:
    """What tuning chose for each contestant all of whose trials are stored."""
    if tuning is None:
        return {}
    tried = {name: _trials(store, tuning, one) for name, one in tuning.contestants.items()}
    return {name: choice(tuning, measured) for name, measured in tried.items() if measured}


def _trials(store: StoredRuns, tuning: Tuning, contestant: TunedSetting) -> dict[float, list[Measured]]:
    """A contestant's trials by candidate; none where one is missing."""
    found: dict[float, list[Measured]] = {}
    for value in contestant.values:
        for seed in tuning.seeds:
            measured = store.measured(contestant.label, seed, value)
            if measured is None:
                return {}
            found.setdefault(value, []).append(measured)
    return found
