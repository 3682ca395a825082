"""Which client of an asynchronous run arrives next: as devices let them, or as a list of events says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from fedtempo.devices import RunningDevices
from fedtempo.errors import TrainingError
from fedtempo.federation.costs import Ledger
from fedtempo.randomness import generator
from fedtempo.schedules import Now
from fedtempo.server.asynchrony import Event
from fedtempo.training.asynchronous.asked import AskedEngine
from fedtempo.training.asynchronous.flights import Flight, Flights
from fedtempo.training.clock import LATE, LEFT, outcomes, waiting, work_of
from fedtempo.training.experiment import Experiment
from fedtempo.training.state import KeptBy

SMALL = 4096
"""Of so many clients, those that are free are listed; of more, clients are drawn until some are free."""
TRIES = 64


class Arrivals(Protocol):
    """Says who arrives next."""

    def next(self, flights: Flights) -> tuple[Flights, Flight]:
        """The clients at work after the next one has finished, and that one."""
        ...


def starters(
    experiment: Experiment, now: Now, flights: Flights, free: int, there: Callable[[np.ndarray], np.ndarray]
) -> tuple[Flights, np.ndarray]:
    """The clients that start next: a whole cohort if no client is at work, else `free` clients that are drawn.

    `there` selects the clients that may be asked now. The result is empty only if no client is both free and available.
    """
    problem, rule = experiment.federation.problem, experiment.cohort
    pool = pool_of(experiment, now)
    if not flights.flying and flights.filled != now.round:
        # Where nobody is at work, a whole cohort starts, chosen as in a synchronous round.
        present = there(pool)
        chosen = present if rule.lists or not len(present) else rule.members(present, now, problem.seed)
        if len(chosen):
            return flights._replace(filled=now.round), chosen
    draws = generator(problem.seed, "asynchronous", flights.events)
    busy = np.array(sorted(flight.client for flight in flights.flying), dtype=np.int64)
    if len(pool) > SMALL:
        found: list[int] = []
        for _ in range(TRIES):
            tries = pool[draws.integers(len(pool), size=4 * free)]
            found = list(dict.fromkeys([*found, *there(tries[~np.isin(tries, busy)]).tolist()]))
            if len(found) >= free:
                return flights, np.array(found[:free], dtype=np.int64)
    # Few clients, or very few of many are there: all are looked at.
    return flights, draws.permutation(there(np.setdiff1d(pool, busy)))[:free]


def pool_of(experiment: Experiment, now: Now) -> np.ndarray:
    """The clients that may start from this version: all, or those that a list of cohorts names for it."""
    problem, rule = experiment.federation.problem, experiment.cohort
    return rule.members(problem.data.clients, now, problem.seed) if rule.lists else problem.data.clients


class ByDevice:
    """Clients take as long as their devices do. As soon as one is done another one starts, from the newest model."""

    def __init__(
        self,
        experiment: Experiment,
        devices: RunningDevices,
        ledger: Ledger,
        now: Now,
        kept_by: KeptBy,
    ) -> None:
        self._experiment, self._devices, self._ledger = experiment, devices, ledger
        self._now = now
        """The position of the newest version, from which clients start now."""
        self._kept_by = kept_by
        self._at_once = max(1, round(experiment.cohort.expected(now, now.clients)))
        self._starts: Counter[int] = Counter()

    def next(self, flights: Flights) -> tuple[Flights, Flight]:
        """Start clients where there is room, and let the clock run until one is done."""
        while True:
            due = min(flights.flying, key=lambda flight: (flight.ends, flight.client), default=None)
            # Whoever finishes at this very moment does so before anybody starts: the newest model may depend on it.
            if due is not None and due.ends <= flights.time:
                return flights.without(due), due
            started = self._started(flights)
            if started is not None:
                flights = started
            elif due is not None:
                return flights.without(due), due
            else:
                pool = pool_of(self._experiment, self._now)
                flights = flights._replace(time=flights.time + waiting(self._devices, pool, flights.time, 1))

    def _started(self, flights: Flights) -> Flights | None:
        """The clients at work after every free place was taken; None where nobody could start."""
        free = self._at_once - len(flights.flying)
        if free <= 0:
            return None
        flights, chosen = starters(
            self._experiment, self._now, flights, free, lambda clients: self._there(clients, flights.time)
        )
        if not len(chosen):
            return None
        counts = np.array([self._starts[client] for client in chosen.tolist()])
        new = [
            flight
            for again in np.unique(counts).tolist()
            for flight in self._of(chosen[counts == again], again, flights.time)
        ]
        self._starts.update(chosen.tolist())
        return flights._replace(flying=(*flights.flying, *new), events=flights.events + len(new))

    def _there(self, clients: np.ndarray, time: float) -> np.ndarray:
        if not self._devices.devices.may_be_away or not len(clients):
            return clients
        return np.asarray(clients[self._devices.available(clients, time)])

    def _of(self, clients: np.ndarray, again: int, time: float) -> list[Flight]:
        """The flights of clients that start now: when each arrives, or when and why it is lost."""
        place = replace(self._now, again=again)
        work = work_of(self._devices, self._ledger, clients, place, self._kept_by(clients))
        _, left, late, lasts = outcomes(self._devices, work, clients, place, time, self._experiment.deadline)
        joules = work.spent(lasts)
        reasons = [LEFT if gone else LATE if slow else "" for gone, slow in zip(left, late, strict=True)]
        columns = zip(clients.tolist(), lasts.tolist(), joules.tolist(), reasons, strict=True)
        return [Flight(client, place.round, again, time + last, spent, why) for client, last, spent, why in columns]


class ByList:
    """Clients start and finish as a list of events says. No time passes."""

    def __init__(self, events: Sequence[Event], now: Now) -> None:
        self._events, self._now = events, now
        self._starts: Counter[int] = Counter()

    def next(self, flights: Flights) -> tuple[Flights, Flight]:
        """Go through the list up to the next finish."""
        while flights.events < len(self._events):
            kind, client = self._events[flights.events]
            if kind == "finish":
                flight = next(one for one in flights.flying if one.client == client)
                return flights.without(flight), flight
            new = Flight(client, self._now.round, self._starts[client], flights.time, 0.0)
            self._starts[client] += 1
            flights = flights._replace(flying=(*flights.flying, new), events=flights.events + 1)
        raise TrainingError(f"run stopped: the events end before version {self._now.round + 1} of the model.")


class ByNode:
    """Real clients. As soon as one has answered, another one is asked; the server waits for no client in particular."""

    def __init__(
        self, experiment: Experiment, engine: AskedEngine, now: Now, ask: Callable[[Flight, Flights], None]
    ) -> None:
        self._experiment, self._engine, self._now, self._ask = experiment, engine, now, ask
        self._at_once = max(1, round(experiment.cohort.expected(now, now.clients)))
        self._starts: Counter[int] = Counter()

    def next(self, flights: Flights) -> tuple[Flights, Flight]:
        """Ask clients where there is room, and wait for the first answer."""
        for flight in flights.flying:  # after a restart the server asks again for what it was waiting for
            if not self._engine.asked(flight.client):
                self._ask(flight, flights)
        free = self._at_once - len(flights.flying)
        if free > 0:
            flights, chosen = starters(self._experiment, self._now, flights, free, lambda clients: clients)
            new = [Flight(c, self._now.round, self._starts[c], 0.0, 0.0) for c in chosen.tolist()]
            self._starts.update(chosen.tolist())
            flights = flights._replace(flying=(*flights.flying, *new), events=flights.events + len(new))
            for flight in new:
                self._ask(flight, flights)
        client, seconds = self._engine.wait()
        flight = next(one for one in flights.flying if one.client == client)
        return flights.without(flight)._replace(time=flights.time + seconds), flight
