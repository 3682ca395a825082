"""The plan of a run before it starts: every rate and step count over rounds and steps."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.client.phase import Phase
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now
from fedtempo.schedules.follows import CLOCK, LOSS, follows
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import Progress

GRADIENTS = "the gradients"
STEPS = "K"
"""The number of steps of a phase, beside the names of its rates."""
FROM_HISTORY = frozenset({LOSS, CLOCK})
"""What the history of a run tells of its rounds."""


@dataclass(frozen=True)
class PlannedStep:
    """One local step of one client: which phase it belongs to and the rates it uses."""

    round: int
    phase: int
    step: int
    steps: int
    rates: dict[str, float]


@dataclass(frozen=True)
class PlannedRound:
    """One round: local steps of each phase, server rates, and the personalization ratio of the first phase."""

    round: int
    steps: tuple[int, ...]
    server: dict[str, float]
    ratio: float
    travel: float = 0.0
    """The sum of the first phase's rates, shortened epochs as they are left: how far a client goes along gradients of
    length 1 and one direction."""
    factors: float = 0.0
    """The same in first steps: 10 for ten equal steps, 2.5 for ten that shrink by 0.6."""


def planned_steps(
    algorithm: Algorithm, rounds: Iterable[int], samples: int, batching: Batching, now: Now
) -> Iterator[PlannedStep]:
    """What a client with this many samples will do in these rounds, step by step."""
    for round_number in rounds:
        for index, phase in enumerate(algorithm.phases):
            here = _at(now, round_number, samples)
            for place in phase.positions(here, samples, batching):
                rates = {n: s.at(place) for n, s in phase.schedules}
                yield PlannedStep(round_number, index, place.step, place.steps, rates)


def planned_rounds(
    algorithm: Algorithm, rounds: Iterable[int], samples: int, batching: Batching, now: Now
) -> Iterator[PlannedRound]:
    """The same by round. The ratio is AvgGradInner : AvgGrad (FedDecay, Table 1) of the first phase's rates."""
    for round_number in rounds:
        here = _at(now, round_number, samples)
        timelines = [phase.positions(here, samples, batching) for phase in algorithm.phases]
        server = {name: schedule.at(here) for name, schedule in algorithm.server.schedules}
        ratio, rates = _ratio(algorithm.phases[0], timelines[0])
        travel = math.fsum(rates)
        factors = travel / rates[0] if rates and rates[0] else 0.0
        yield PlannedRound(round_number, tuple(map(len, timelines)), server, ratio, travel, factors)


def positions(experiment: Experiment, history: Sequence[RoundReport], rounds: Iterable[int]) -> Iterator[Now]:
    """Where the median client stood, in ascending rounds, before each began; what no history tells is as at first."""
    problem, progress, done = experiment.federation.problem, Progress(), 0
    for round_number in rounds:
        progress = progress.after_rounds(history[done:round_number])
        done = round_number
        now = problem.now(round_number, 1.0, progress.ratio, progress.plateaus)
        time = history[round_number - 1].total_time if 0 < round_number <= len(history) else 0.0
        now = replace(now, cohort=experiment.cohort.expected(now, now.clients), time=time)
        yield problem.places(now, problem.median_client)[0]


def unplanned(
    algorithm: Algorithm, places: Sequence[Now], samples: int, batching: Batching, known: Collection[str] = ()
) -> dict[tuple[int, str], tuple[str, ...]]:
    """What each rate follows that only the run can tell, by phase and name; the server's have the phase -1.

    `known` is what is told anyway, such as the clock where the positions come from a run's history.
    """
    here = [_at(place, place.round, samples) for place in places]
    found = {(-1, name): follows(rate.at, here) for name, rate in algorithm.server.schedules}
    for index, phase in enumerate(algorithm.phases):

        def count(now: Now, phase: Phase = phase) -> float:
            return float(len(phase.positions(now, samples, batching)))

        steps = follows(count, here)
        ruled = phase.stop_rule is not None or phase.until is not None
        found[index, STEPS] = (*steps, GRADIENTS) if ruled else steps
        inside = [place for now in here for place in _ends(phase.positions(now, samples, batching))]
        for name, rate in phase.schedules:
            followed = follows(rate.at, inside)
            found[index, name] = (*followed, GRADIENTS) if name == "lr" and phase.rate_rule is not None else followed
    return {key: left for key, words in found.items() if (left := tuple(w for w in words if w not in known))}


def _ends(places: Sequence[Now]) -> list[Now]:
    return [places[0], places[-1]] if places else []


def _ratio(phase: Phase, places: Sequence[Now]) -> tuple[float, list[float]]:
    """R of a phase's steps (FedDecay, appendix A.1), and how far each of them goes in the end.

    An epoch that is shortened at its end is walked at full rates: a step sees those before it in its own epoch at full
    length, and those of earlier epochs as they were left.
    """
    inner, left, epoch, walked = 0.0, list[float](), 0, 0.0
    for place in places:
        if place.epoch != epoch:
            epoch, walked = place.epoch, math.fsum(left)
        rate = phase.lr.at(place)
        left.append(rate if phase.epoch_factor is None else rate * phase.epoch_factor.at(place))
        inner += left[-1] * walked
        walked += rate
    total = math.fsum(left)
    return (inner / total if total else 0.0), left


def _at(now: Now, round_number: int, samples: int) -> Now:
    return replace(now, round=round_number, samples=samples)
