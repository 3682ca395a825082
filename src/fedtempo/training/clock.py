"""The clock of a simulated run: when uploads arrive, who counts, how long a round takes and what energy it costs.

Times follow from devices, steps and bytes alone. They are worked out at the server, so no backend can change them, and
they change no model unless a rule asks for it: a deadline, over-selection, hours of availability, asynchrony.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedtempo.devices import RunningDevices
from fedtempo.devices.running import Work
from fedtempo.devices.traits import DAY, HOUR
from fedtempo.federation.costs import Ledger
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.server.cohort import Cohort
from fedtempo.server.sums import Failure
from fedtempo.training.experiment import Experiment

LATE = "late: after the deadline"
LEFT = "left before it had finished"
AWAY = "not there"
SHORTEST_WAIT = 1e-3
"""Seconds: hours are rounded, so a client may be just about to open when it should have opened."""
NOBODY = np.empty(0, dtype=np.int64)


class Clock(NamedTuple):
    """The devices of a simulated run, and what they decide about its rounds."""

    devices: RunningDevices
    deadline: float | None
    partial_work: bool
    """Whether clients stop at the deadline and send what they have."""
    quorum: int

    @classmethod
    def of(cls, experiment: Experiment, devices: RunningDevices) -> Clock:
        """The clock of this run."""
        return cls(devices, experiment.deadline, experiment.partial_work, experiment.quorum)

    def starts(self, now: Now, clients: np.ndarray) -> Now:
        """The position of a round when it begins: clients may have to be waited for, and have a deadline."""
        if self.partial_work:
            now = replace(now, deadline=self.deadline or 0.0)
        if not self.devices.devices.may_be_away:
            return now
        return replace(now, time=now.time + waiting(self.devices, clients, now.time, self.quorum))

    def present(
        self, rule: Cohort, clients: np.ndarray, now: Now, seed: int, over: float
    ) -> tuple[np.ndarray, list[Failure]]:
        """The cohort, chosen among the clients that are there; of a list, without those that are away."""
        if not self.devices.devices.may_be_away:
            return rule.members(clients, now, seed, over), []
        if not rule.lists:
            return rule.members(clients[self.devices.available(clients, now.time)], now, seed, over), []
        chosen = rule.members(clients, now, seed, over)
        there = self.devices.available(chosen, now.time)
        return chosen[there], [Failure(client, AWAY) for client in chosen[~there].tolist()]

    def passage(
        self,
        ledger: Ledger,
        clients: np.ndarray,
        now: Now,
        personal: Sequence[Params],
        enough: int | None,
        silent: bool,
    ) -> Participants:
        """Who arrives in time and when the round ends; see `passage`."""
        work = work_of(self.devices, ledger, clients, now, personal)
        return passage(self.devices, work, clients, now, self.deadline, enough, silent)


class Participants(NamedTuple):
    """Who answers in a round, who was asked and does not count, and how long the round takes on the clock."""

    clients: np.ndarray
    """Clients whose uploads count, in ascending order."""
    failures: list[Failure]
    also_charged: np.ndarray = NOBODY
    """Clients that did their whole work and came too late, in ascending order: what they did is charged."""
    seconds: float = 0.0
    joules: float = 0.0


def work_of(
    devices: RunningDevices, ledger: Ledger, clients: np.ndarray, now: Now, personal: Sequence[Params] = ()
) -> Work:
    """What the work of a round takes each of these clients."""
    steps, flops = ledger.work(clients, now, personal)
    return devices.work(devices.traits(clients), steps, flops, ledger.first_bytes(clients))


class Outcomes(NamedTuple):
    """What becomes of each client that was asked: whether it left or was late, and when it is done with the round."""

    arrivals: np.ndarray
    """Seconds after the start at which each upload would arrive."""
    left: np.ndarray
    late: np.ndarray
    ends: np.ndarray
    """Seconds after the start at which each arrives, leaves or reaches the deadline."""


def outcomes(
    devices: RunningDevices, work: Work, clients: np.ndarray, now: Now, time: float, deadline: float | None
) -> Outcomes:
    """Who arrives in time, who leaves before and who is late, for clients that start at this second of the clock."""
    limit = math.inf if deadline is None else deadline
    arrivals, leaves = work.arrivals(), devices.leaves(clients, time, *now.path)
    # A client whose work was cut to nothing has nothing to send.
    idle = (work.seconds[1] <= 0) & bool(now.deadline)
    left = leaves < np.minimum(arrivals, limit)
    late = ~left & ((arrivals > limit * (1 + 1e-9)) | idle)
    return Outcomes(arrivals, left, late, np.where(left, leaves, np.where(late, limit, arrivals)))


def passage(
    devices: RunningDevices,
    work: Work,
    clients: np.ndarray,
    now: Now,
    deadline: float | None,
    enough: int | None,
    silent: bool,
) -> Participants:
    """Who arrives in time and when the round ends.

    The round ends with the last client that is waited for: with the one that makes it `enough` where more were asked
    than needed, else with the slowest. A client that leaves is waited for until it leaves, a late one, or one that is
    `silent`, until the deadline.
    """
    arrivals, left, late, ends = outcomes(devices, work, clients, now, now.time, deadline)
    arrived = np.flatnonzero(~left & ~late)
    # Equal times are ordered by client number, so that the outcome does not depend on the order of the cohort.
    order = arrived[np.lexsort((clients[arrived], arrivals[arrived]))]
    if enough is not None and len(order) >= enough:
        order = order[:enough]
        seconds = float(arrivals[order[-1]]) if enough else 0.0
    else:
        seconds = float(ends.max(initial=0.0))
        seconds = deadline if deadline is not None and (silent or late.any()) else seconds
    joules = math.fsum(work.spent(np.minimum(ends, seconds)).tolist())
    failures = [Failure(int(client), LEFT) for client in clients[left]]
    failures += [Failure(int(client), LATE) for client in clients[late]]
    return Participants(np.sort(clients[order]), failures, np.sort(clients[late]), seconds, joules)


def waiting(devices: RunningDevices, clients: np.ndarray, time: float, wanted: int) -> float:
    """Seconds until `wanted` clients are available at the same time; if that never happens, until one is."""
    wanted, waited = min(wanted, len(clients)), 0.0
    # Once everybody has joined, every day is like the one before.
    while waited <= devices.devices.availability.joins + 2 * DAY * HOUR:
        # Before the last of the `wanted` that come first, there cannot be as many. Then some may have gone again.
        wait = float(np.partition(devices.waits(clients, time + waited), wanted - 1)[wanted - 1])
        if wait <= 0:
            return waited
        waited += max(wait, SHORTEST_WAIT)
    return waiting(devices, clients, time, 1) if wanted > 1 else waited
