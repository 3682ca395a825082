"""Pictures of what was run: who has which labels, and which rates the schedules gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import PARTS
from fedtempo.data.summary import client_by_label, merged_rows
from fedtempo.schedules import Now
from fedtempo.training.experiment import Experiment
from fedtempo.training.plan import FROM_HISTORY, STEPS, planned_rounds, planned_steps, positions, unplanned
from fedtempo.training.round_report import RoundReport

MOST_CLIENTS = 400
"""Columns of the picture; of more clients, evenly spaced ones are shown."""
MOST_LABELS = 100
"""Rows of the picture; more labels are drawn several to a row."""
MOST_COUNTS = 1 << 24
LARGEST_COLUMN = 1 << 28
"""Bytes of a label column that a report is ready to read."""
MOST_NAMES = 20_000
MOST_ROUNDS = 120
MOST_PLANNED = 20_000
"""Local steps, of all rounds shown together, whose rates are worked out."""
MOST_DRAWN = 200_000
"""The same where every round is asked for."""
MOST_STEPS = 200
WHOLE_ROUNDS = 10
"""Rounds at the start that are drawn step by step where every round is asked for."""


@dataclass(frozen=True)
class DataPicture:
    """Rows by label of the clients shown."""

    title: str
    digest: str
    clients: np.ndarray
    """The clients shown, of `total`."""
    total: int
    new: np.ndarray
    """Which of them are new users."""
    rows: np.ndarray
    """Rows of each client shown, in all parts."""
    counts: np.ndarray
    """Shape (clients shown, groups of labels)."""
    labels: int
    names: Sequence[str] | None = None
    """Names of all clients, where they have any."""


@dataclass(frozen=True)
class RatePlan:
    """Rates of a median client: by round at the first and the last step, and step by step in a few rounds."""

    samples: int
    rounds: list[int]
    first: list[list[dict[str, float]]]
    """For each phase and round, the rates of its first step; `K` is the number of steps."""
    last: list[list[dict[str, float]]]
    inside: dict[int, list[list[dict[str, float]]]]
    """For a few rounds, by phase, the rates of every step."""
    unknown: dict[str, tuple[str, ...]]
    """What is not drawn since only the run can tell it, with what it follows."""


def picture_of(data: FederatedData) -> DataPicture:
    """Clients by labels. Where there are too many clients, every n-th is shown; the others are only counted."""
    chosen = np.array(evenly(range(len(data)), MOST_CLIENTS), dtype=np.int64)
    rows = np.sum([data.sizes(part) for part in PARTS], axis=0)
    counts = _counts(data, chosen)
    return DataPicture(
        title=data.description,
        digest=data.digest(),
        clients=chosen,
        total=len(data),
        new=np.isin(chosen, data.held_out),
        rows=rows[chosen],
        counts=merged_rows(counts.T, MOST_LABELS).T,
        labels=counts.shape[1],
        names=None if data.names is None or len(data) > MOST_NAMES else [str(name) for name in data.names],
    )


def _counts(data: FederatedData, chosen: np.ndarray) -> np.ndarray:
    labels = data.columns.get("y")
    nothing = np.zeros((len(chosen), 0), dtype=np.int64)
    if labels is None or np.issubdtype(labels.dtype, np.floating) or labels.nbytes > LARGEST_COLUMN:
        return nothing
    classes = labels.shape[1] if labels.dtype == bool else int(labels.max()) + 1
    if classes * len(chosen) > MOST_COUNTS:
        return nothing
    shown = replace(data, bounds=data.bounds[chosen], held_out=data.held_out[:0], names=None, outputs=None)
    return client_by_label(shown)


def plan_of(
    experiment: Experiment,
    history: Sequence[RoundReport] = (),
    samples: int | None = None,
    *,
    every_round: bool = False,
) -> RatePlan:
    """The rates of a client, by default one of median size; what follows the loss or the clock follows the history's.

    `every_round` shows all rounds up to the most steps that a page holds, and ten rounds step by step.
    """
    federation = experiment.federation
    size = samples or int(np.median(federation.problem.sizes[federation.problem.data.clients]))
    rounds = evenly(range(experiment.rounds), _affordable(experiment, size, every_round))
    places = list(positions(experiment, history, rounds))
    steps = [_steps(experiment, size, now) for now in places]
    phases = range(len(federation.algorithm.phases))
    known = FROM_HISTORY if history else ()
    unknown = unplanned(federation.algorithm, places, size, federation.problem.batching, known)
    whole = unknown.keys().isdisjoint((phase, STEPS) for phase in phases)
    inside = {rounds[0], *((rounds[-1], *(range(WHOLE_ROUNDS) if every_round else ())) if whole else ())}
    for now, by_phase in zip(places, steps, strict=True):
        for phase, entries in enumerate(by_phase):
            if now.round and (phase, STEPS) in unknown:
                del entries[1:]
            _leave_out(entries, {name for place, name in unknown if place == phase or place < 0})
    return RatePlan(
        samples=size,
        rounds=rounds,
        first=[[by_phase[phase][0] for by_phase in steps] for phase in phases],
        last=[[{} if (phase, STEPS) in unknown else by_phase[phase][-1] for by_phase in steps] for phase in phases],
        inside={r: _thinned(by_phase) for r, by_phase in zip(rounds, steps, strict=True) if r in inside},
        unknown={name: words for (_, name), words in unknown.items()},
    )


def _leave_out(entries: list[dict[str, float]], names: set[str]) -> None:
    for entry in entries:
        for name in names & set(entry):
            del entry[name]


def _affordable(experiment: Experiment, samples: int, every_round: bool) -> int:
    """How many rounds are shown: fewer where each has very many steps."""
    (now,) = positions(experiment, (), [0])
    federation = experiment.federation
    steps = sum(phase.length.steps(now, samples, federation.problem.batching) for phase in federation.algorithm.phases)
    most, rounds = (MOST_DRAWN, experiment.rounds) if every_round else (MOST_PLANNED, MOST_ROUNDS)
    return max(2, min(rounds, most // max(1, steps)))


def _steps(experiment: Experiment, samples: int, now: Now) -> list[list[dict[str, float]]]:
    """By phase, the rates of every step of a round. A phase without steps has one entry, that says so."""
    federation = experiment.federation
    plan = (federation.algorithm, [now.round], samples, federation.problem.batching, now)
    (planned,) = planned_rounds(*plan)
    by_phase: list[list[dict[str, float]]] = [[] for _ in planned.steps]
    for step in planned_steps(*plan):
        server = planned.server if step.phase == 0 else {}
        by_phase[step.phase].append({"step": float(step.step), STEPS: float(step.steps), **step.rates, **server})
    return [steps or [{"step": 0.0, STEPS: 0.0}] for steps in by_phase]


def _thinned(by_phase: list[list[dict[str, float]]]) -> list[list[dict[str, float]]]:
    return [[steps[index] for index in evenly(range(len(steps)), MOST_STEPS)] for steps in by_phase]


def evenly(indices: Sequence[int], most: int) -> list[int]:
    """At most `most` of the indices, evenly spaced, the first and the last among them.

    >>> evenly(range(10), most=4)
    [0, 3, 6, 9]
    """
    if len(indices) <= most:
        return list(indices)
    chosen = np.unique(np.linspace(0, len(indices) - 1, most).round().astype(np.int64))
    return [indices[place] for place in chosen.tolist()]
