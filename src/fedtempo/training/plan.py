"""The plan of a run before it starts: every rate and step count over rounds and steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.client.phase import Phase
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now


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
