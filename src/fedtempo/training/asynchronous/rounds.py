"""Asynchronous rounds: one round is one version of the model, made from the uploads of a buffer.

Clients train when they arrive, all arrivals of a buffer that started from one version together. That is what they
would have sent: a client's work depends on the model it started from and on nothing that happened since.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedtempo.backends import Order
from fedtempo.client.objectives import Received
from fedtempo.errors import TrainingError
from fedtempo.federation.costs import Costs
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.sums import BlockSum, Failure
from fedtempo.training.asynchronous.arrivals import Arrivals, ByDevice, ByList, ByNode
from fedtempo.training.asynchronous.asked import AskedEngine
from fedtempo.training.asynchronous.flights import Flight, Flights, Version
from fedtempo.training.clock import LEFT
from fedtempo.training.round import (
    Run,
    blocks_of,
    check_alive,
    kill_worker,
    measurements_of,
    position,
    remembered_norms,
    send,
    state_of,
    timed,
    with_spending,
)
from fedtempo.training.round_report import Clients, RoundReport
from fedtempo.training.server_step import server_step
from fedtempo.training.state import AfterRound, State

STALE = "too stale"
MOST_ARRIVALS = 100
"""After so many arrivals for each upload of a buffer, a run whose uploads do not count is stopped."""


@dataclass
class _Buffer:
    """What has come in for the next version."""

    sums: dict[int, BlockSum] = field(default_factory=dict)
    """Sums of accepted uploads by the version that they started from."""
    personal: dict[int, Params] = field(default_factory=dict)
    waiting: list[Flight] = field(default_factory=list)
    """Arrivals that have not been trained yet."""
    trained: list[Flight] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    costs: Costs = field(default_factory=Costs)
    joules: list[float] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """How many uploads count so far."""
        return sum(block.clients for block in self.sums.values())


def next_version(run: Run, state: State, history: Sequence[RoundReport]) -> AfterRound:
    """Make the next version of the model; nothing is committed.

    Clients of an `AskedEngine` are real: they arrive when they arrive, and time is measured.
    """
    started, replaced = time.perf_counter(), run.engine.status.replaced
    rule = run.experiment.asynchrony
    assert rule is not None
    now = replace(position(run, state, len(history)), cohort=float(rule.buffer))
    if run.faults is not None:
        kill_worker(run, run.faults, now)
    order, flights = send(run, state, now), state.flights or Flights(time=state.time)
    newest = Version(order.received.shared, now.loss_ratio, now.plateaus, flights.time)
    flights = flights._replace(versions={**flights.versions, now.round: newest})
    filling = _Filling(run, rule, now, order.limit, flights)
    filling.fill()
    state, kept, report = _concluded(run, rule, state, filling.flights, filling.buffer, now)
    if run.scoring is not None:
        state, report = run.scoring.score(state, kept, report, now, history)
    return AfterRound(state, kept, timed(run, report, started, replaced))


@dataclass
class _Filling:
    """A buffer while it fills: who arrives, who is refused, who is trained, and what that costs."""

    run: Run
    rule: Asynchrony
    now: Now
    limit: float
    """The largest norm that an upload may have."""
    flights: Flights
    """Who is on the way, and the versions they started from."""
    buffer: _Buffer = field(default_factory=_Buffer)

    def fill(self) -> None:
        """Take arrivals until the buffer is full of uploads that count."""
        arrivals, most = self._arrivals(), MOST_ARRIVALS * self.rule.buffer
        came = 0
        while self._has_room():
            came += 1
            if came > most:
                raise TrainingError(
                    f"run stopped: {most} clients came for version {self.now.round}, and too few count."
                )
            self.flights, flight = arrivals.next(self.flights)
            self._take(flight)

    def _has_room(self) -> bool:
        if self.buffer.accepted + len(self.buffer.waiting) == self.rule.buffer:
            self._train()  # some uploads may be refused, and then the buffer waits for others
        return self.buffer.accepted < self.rule.buffer

    def _take(self, flight: Flight) -> None:
        """Refuse an arrival, or let it wait until the buffer is trained."""
        buffer = self.buffer
        buffer.joules.append(flight.joules)
        if not flight.lost and any(flight.client == other.client for other in buffer.waiting):
            self._train()  # a client that came twice goes on from what it kept the first time
        refusal = flight.lost or (STALE if self.rule.refuses(self.now.round - flight.version) else "")
        if refusal:
            self._refuse(flight, refusal)
            return
        buffer.waiting.append(flight)
        if isinstance(self.run.engine, AskedEngine):
            self._train()  # the answer is here already, and the client may be asked again at once

    def _refuse(self, flight: Flight, reason: str) -> None:
        self.buffer.failures.append(Failure(flight.client, reason))
        if reason != LEFT:  # whoever is late or stale has done its work, and is charged as in a round
            kept = self._kept_by(np.array([flight.client]))
            self.buffer.costs += self.run.ledger.clients([flight.client], self._position(flight, self.flights), kept)

    def _train(self) -> None:
        """Train the arrivals that wait, version by version, and add what they send to the buffer."""
        buffer, keeps_loss = self.buffer, self.run.experiment.federation.problem.keeps_loss
        waiting, buffer.waiting = buffer.waiting, []
        for version, again in sorted({(flight.version, flight.again) for flight in waiting}):
            group = [flight for flight in waiting if (flight.version, flight.again) == (version, again)]
            clients = np.array(sorted(flight.client for flight in group), dtype=np.int64)
            order = self._order(group[0], self.flights)
            buffer.costs += self.run.ledger.clients(clients, order.now, self._states(clients) if keeps_loss else ())
            block = self.run.engine.train(order, blocks_of(self.run, clients, buffer.personal, on_nodes=False))
            buffer.personal.update(block.personal)
            refused = {failure.client for failure in block.failures}
            buffer.trained += [flight for flight in group if flight.client not in refused]
            buffer.failures += block.failures
            if not block.clients:
                check_alive(self.run, block, order.now)
            else:
                buffer.sums.setdefault(version, BlockSum()).add_block(block)

    def _arrivals(self) -> Arrivals:
        """Where the next arrival comes from: a list of events, real nodes, or simulated devices."""
        now = self._placed(self.now, self.flights.versions[self.now.round])
        if self.rule.events is not None:
            return ByList(self.rule.events, now)
        if isinstance(self.run.engine, AskedEngine):
            return ByNode(self.run.experiment, self.run.engine, now, self._ask)
        devices = self.run.experiment.federation.problem.devices
        assert devices is not None  # checked before training
        return ByDevice(self.run.experiment, devices, self.run.ledger, now, self._kept_by)

    def _ask(self, flight: Flight, at: Flights) -> None:
        """Send a real client to work."""
        assert isinstance(self.run.engine, AskedEngine)
        clients = np.array([flight.client])
        blocks = blocks_of(self.run, clients, self.buffer.personal, on_nodes=True)
        self.run.engine.ask(flight.client, self._order(flight, at), blocks)

    def _kept_by(self, clients: np.ndarray) -> Sequence[Params]:
        """What clients keep, where a schedule looks at it."""
        if not self.run.experiment.federation.problem.keeps_loss:
            return ()
        if {flight.client for flight in self.buffer.waiting} & set(clients.tolist()):
            self._train()  # how long a client works may depend on the loss that it has just had
        return self._states(clients)

    def _states(self, clients: np.ndarray) -> list[Params]:
        return [state_of(self.run, client, self.buffer.personal) for client in clients.tolist()]

    def _order(self, flight: Flight, at: Flights) -> Order:
        """What a client that started from a version has got."""
        return Order(Received(at.versions[flight.version].shared, {}), self._position(flight, at), self.limit)

    def _position(self, flight: Flight, at: Flights) -> Now:
        """The position of a client that started from a version."""
        here = replace(self.now, round=flight.version, again=flight.again)
        return self._placed(here, at.versions[flight.version])

    def _placed(self, now: Now, version: Version) -> Now:
        """The position of clients that started from a version: rates and steps are those of that version."""
        deadline = (self.run.experiment.deadline or 0.0) if self.run.experiment.partial_work else 0.0
        where = {"loss_ratio": version.loss_ratio, "plateaus": version.plateaus, "time": version.time}
        return replace(now, **where, deadline=deadline)  # type: ignore[arg-type]


def _concluded(run: Run, rule: Asynchrony, state: State, flights: Flights, buffer: _Buffer, now: Now) -> AfterRound:
    """The server's step on the buffer, and the report."""
    federation = run.experiment.federation
    models = {number: one.shared for number, one in flights.versions.items()}
    aggregate = rule.aggregate(buffer.sums, now.round, models, state.shared, federation.problem.dtype)
    total = BlockSum()
    for version in sorted(buffer.sums):
        total.add_block(replace(buffer.sums[version], sums={}))
    loss, norms = total.mean_loss, remembered_norms(state, total)
    seconds, joules = flights.time - state.time, sum(buffer.joules)
    state = server_step(federation, state, aggregate, now)
    state = state._replace(norms=norms, progress=state.progress.after(loss), flights=flights.pruned())
    staleness = [now.round - flight.version for flight in buffer.trained]
    measured = {"staleness": statistics.fmean(staleness), "max_staleness": float(max(staleness))}
    report = RoundReport(
        now.round,
        loss,
        Clients(sorted(flight.client for flight in buffer.trained)),
        buffer.costs,
        state.costs + buffer.costs,
        0.0,
        {**measurements_of(total), **measured, **federation.algorithm.server.measurements(state.server)},
        tuple(sorted(buffer.failures)),
        time=seconds,
        energy=joules,
        total_time=state.time + seconds,
        total_energy=state.energy + joules,
        params=state.shared,
    )
    return AfterRound(with_spending(state, report), buffer.personal, report)
