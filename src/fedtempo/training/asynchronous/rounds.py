"""Asynchronous rounds: one round is one version of the model, made from the uploads of a buffer.

Clients train when they arrive, all arrivals of a buffer that started from one version together. That is what they
would have sent: a client's work depends on the model it started from and on nothing that happened since.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedtempo.backends import Engine, Order
from fedtempo.client.objectives import Received
from fedtempo.errors import TrainingError
from fedtempo.federation.costs import Costs, Ledger
from fedtempo.federation.traffic import compress_download
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.sums import BlockSum, Failure
from fedtempo.training.asynchronous.arrivals import Arrivals, ByDevice, ByList, ByNode
from fedtempo.training.asynchronous.asked import AskedEngine
from fedtempo.training.asynchronous.flights import Flight, Flights, Version
from fedtempo.training.clock import LEFT
from fedtempo.training.experiment import Experiment
from fedtempo.training.one_round import blocks_of, norm_limit, state_of
from fedtempo.training.round_report import Clients, RoundReport
from fedtempo.training.server_round import REMEMBERED_NORMS, check_alive, measurements_of, passed, stepped
from fedtempo.training.state import State
from fedtempo.training.storage.in_memory import Store

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


def next_version(
    experiment: Experiment, state: State, engine: Engine, store: Store, ledger: Ledger, now: Now
) -> tuple[State, dict[int, Params], RoundReport]:
    """The state after the next version of the model, what the clients in it keep, and its report.

    Clients of an `AskedEngine` are real: they arrive when they arrive, and time is measured.
    """
    rule = experiment.asynchrony
    assert rule is not None
    now = replace(now, cohort=float(rule.buffer))
    flights = state.flights or Flights(time=state.time)
    down = compress_download(experiment.federation, state.shared, now.round)
    newest = Version(down.shared, now.loss_ratio, now.plateaus, flights.time)
    flights = flights._replace(versions={**flights.versions, now.round: newest})
    buffer = _Buffer()

    def train() -> None:
        _train(experiment, flights, engine, store, ledger, norm_limit(experiment.federation, state), now, buffer)

    def kept_by(clients: np.ndarray) -> Sequence[Params]:
        if not experiment.federation.problem.keeps_loss:
            return ()
        if {flight.client for flight in buffer.waiting} & set(clients.tolist()):
            train()  # how long a client works may depend on the loss that it has just had
        return [state_of(experiment, store, client, buffer.personal) for client in clients.tolist()]

    def ask(flight: Flight, at: Flights) -> None:
        if isinstance(engine, AskedEngine):
            order = _order(experiment, at, flight, now, norm_limit(experiment.federation, state))
            clients = np.array([flight.client])
            engine.ask(flight.client, order, blocks_of(experiment, store, clients, buffer.personal, on_nodes=True))

    arrivals, came = _arrivals(experiment, rule, engine, ledger, _placed(experiment, now, newest), kept_by, ask), 0
    while buffer.accepted + len(buffer.waiting) < rule.buffer or buffer.waiting:
        if buffer.accepted + len(buffer.waiting) == rule.buffer:
            train()  # some uploads may be refused, and then the buffer waits for others
            continue
        flights, flight = arrivals.next(flights)
        came += 1
        if came > MOST_ARRIVALS * rule.buffer:
            raise TrainingError(f"run stopped: {came - 1} clients came for version {now.round}, and too few count.")
        buffer.joules.append(flight.joules)
        if not flight.lost and any(flight.client == other.client for other in buffer.waiting):
            train()  # a client that came twice goes on from what it kept the first time
        refusal = flight.lost or (STALE if rule.refuses(now.round - flight.version) else "")
        if refusal:
            buffer.failures.append(Failure(flight.client, refusal))
            if refusal != LEFT:  # whoever is late or stale has done its work, and is charged as in a round
                kept = kept_by(np.array([flight.client]))
                buffer.costs += ledger.clients([flight.client], _place(experiment, flights, flight, now), kept)
        else:
            buffer.waiting.append(flight)
            if isinstance(engine, AskedEngine):
                train()  # the answer is here already, and the client may be asked again at once
    return _concluded(experiment, rule, state, flights, buffer, now)


def _arrivals(
    experiment: Experiment,
    rule: Asynchrony,
    engine: Engine,
    ledger: Ledger,
    now: Now,
    kept_by: Callable[[np.ndarray], Sequence[Params]],
    ask: Callable[[Flight, Flights], None],
) -> Arrivals:
    if rule.events is not None:
        return ByList(rule.events, now)
    if isinstance(engine, AskedEngine):
        return ByNode(experiment, engine, now, ask)
    devices = experiment.federation.problem.devices
    assert devices is not None  # checked before training
    return ByDevice(experiment, devices, ledger, now, kept_by)


def _order(experiment: Experiment, flights: Flights, flight: Flight, now: Now, limit: float) -> Order:
    """What a client that started from a version has got."""
    shared = flights.versions[flight.version].shared
    return Order(Received(shared, {}), _place(experiment, flights, flight, now), limit)


def _place(experiment: Experiment, flights: Flights, flight: Flight, now: Now) -> Now:
    """The position of a client that started from a version."""
    here = replace(now, round=flight.version, again=flight.again)
    return _placed(experiment, here, flights.versions[flight.version])


def _placed(experiment: Experiment, now: Now, version: Version) -> Now:
    """The position of clients that started from a version: rates and steps are those of that version."""
    deadline = (experiment.deadline or 0.0) if experiment.partial_work else 0.0
    where = {"loss_ratio": version.loss_ratio, "plateaus": version.plateaus, "time": version.time}
    return replace(now, **where, deadline=deadline)  # type: ignore[arg-type]


def _train(
    experiment: Experiment,
    flights: Flights,
    engine: Engine,
    store: Store,
    ledger: Ledger,
    limit: float,
    now: Now,
    buffer: _Buffer,
) -> None:
    """Train the arrivals that wait, version by version, and add what they send to the buffer."""
    keeps_loss = experiment.federation.problem.keeps_loss
    waiting, buffer.waiting = buffer.waiting, []
    for version, again in sorted({(flight.version, flight.again) for flight in waiting}):
        group = [flight for flight in waiting if (flight.version, flight.again) == (version, again)]
        clients = np.array(sorted(flight.client for flight in group), dtype=np.int64)
        order = _order(experiment, flights, group[0], now, limit)
        kept = [state_of(experiment, store, c, buffer.personal) for c in clients.tolist()] if keeps_loss else ()
        buffer.costs += ledger.clients(clients, order.now, kept)
        block = engine.train(order, blocks_of(experiment, store, clients, buffer.personal))
        buffer.personal.update(block.personal)
        refused = {failure.client for failure in block.failures}
        buffer.trained += [flight for flight in group if flight.client not in refused]
        buffer.failures += block.failures
        check_alive(experiment.federation, block, order.now)
        if block.clients:
            buffer.sums.setdefault(version, BlockSum()).add_block(block)


def _concluded(
    experiment: Experiment, rule: Asynchrony, state: State, flights: Flights, buffer: _Buffer, now: Now
) -> tuple[State, dict[int, Params], RoundReport]:
    """The server's step on the buffer, and the report."""
    federation = experiment.federation
    models = {number: one.shared for number, one in flights.versions.items()}
    aggregate = rule.aggregate(buffer.sums, now.round, models, state.shared, federation.problem.dtype)
    total = BlockSum()
    for version in sorted(buffer.sums):
        total.add_block(replace(buffer.sums[version], sums={}))
    loss = total.loss.value / total.loss_weight if total.loss_weight else float("nan")
    norms = (*state.norms, statistics.median(total.norms))[-REMEMBERED_NORMS:] if total.norms else state.norms
    seconds, joules = flights.time - state.time, sum(buffer.joules)
    state = stepped(federation, state, aggregate, now)
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
    return passed(state, report), buffer.personal, report
