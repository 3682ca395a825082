"""Devices and asynchrony before training: what is bound to the run, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedtempo.algorithms.parts.rate_rules import BLOCKS, HISTORY
from fedtempo.devices import Devices, RunningDevices
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.costs import Ledger
from fedtempo.federation.federation import Federation
from fedtempo.params import Params
from fedtempo.schedules import Now, Schedule, as_schedule, at_step, sees_clients
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.cohort import Cohort
from fedtempo.server.robust import plain_mean

PLAIN_UPLOADS = frozenset({"delta", "buffers"})
"""Groups of an upload that may come late: displacements, which are added to the newest model as they are."""
TRIED_ROUNDS = (0, 1, 2, 5, 10, 50, 200, 1000)
TRIED_STEPS = 3
TRIED_CLIENTS = 1000
"""Clients whose devices are asked for twice."""


def with_devices(
    federation: Federation, devices: Devices | None, evaluation: Evaluation | None, shared: Params
) -> Federation:
    """The federation with its devices, and with what its schedules need to know about clients."""
    schedules = [schedule for schedule in _client_schedules(federation, evaluation) if sees_clients(schedule)]
    problem = federation.problem.known_as(
        sees_clients=bool(schedules), keeps_loss=any(_reads_last_loss(s) for s in schedules)
    )
    if devices is None:
        return replace(federation, problem=problem)
    _check_repeats(devices, problem.seed, problem.data.clients[:TRIED_CLIENTS])
    # Schedules may divide by a device's speed, so they are tried with some speed before the operations are counted.
    first = replace(problem, devices=RunningDevices(devices, problem.seed, 1, 1, 1.0))
    tried = replace(federation, problem=first)
    ledger = Ledger(tried, shared, federation.first_extra(shared))
    traffic = ledger.traffic(1)
    running = RunningDevices(devices, problem.seed, traffic.bytes_down, traffic.bytes_up, ledger.row_flops)
    return replace(federation, problem=replace(problem, devices=running.checked(problem.data.clients)))


def _check_repeats(devices: Devices, seed: int, clients: np.ndarray) -> None:
    """A function of the user's says the same of a client whenever it is asked: in a resumed run, in another process."""
    if not devices.is_own:
        return
    first, again = (np.stack(devices.traits(seed, clients)) for _ in range(2))
    if not np.array_equal(first, again, equal_nan=True):
        rule = "return the same for the same seed and clients: np.random.default_rng([seed, client])"
        raise ConfigError(f"devices {devices.name!r} must {rule}. Got others the second time.")


def _client_schedules(federation: Federation, evaluation: Evaluation | None) -> Iterator[Schedule]:
    """Every schedule that clients evaluate."""
    for phase in (*federation.algorithm.phases, *(federation.algorithm.serving.newcomer_phases or ())):
        yield phase.length.count
        yield from (schedule for _, schedule in phase.schedules)
    for value in () if evaluation is None else (evaluation.lr, evaluation.steps, evaluation.epochs):
        if value is not None:
            yield as_schedule(value)


class _Watched:
    """A position that notes which of its fields are read."""

    def __init__(self, now: Now) -> None:
        self._now, self.read = now, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._now, name)


def _reads_last_loss(schedule: Schedule) -> bool:
    """Whether the rule looks at the client's last loss, in rounds and at steps all over a run."""
    for round_number in TRIED_ROUNDS:
        for step in range(TRIED_STEPS):
            place = Now(round=round_number, seconds_per_step=1.0, transfer=1.0, last_loss=1.0, client=0)
            watched = _Watched(at_step(place, step, TRIED_STEPS, 1))
            try:
                schedule.rule(watched)  # type: ignore[arg-type]
            except Exception:  # a rule that needs more than fields, such as a copy of the position: better keep it
                return True
            if "last_loss" in watched.read:
                return True
    return False


def check_clock(federation: Federation, deadline: float | None, partial_work: bool) -> None:
    """The deadline is one, partial work has one to end at, and a private run has no clock."""
    require(deadline is None or (is_number(deadline) and deadline > 0), "deadline", "a number > 0", deadline)
    require(isinstance(partial_work, bool), "partial_work", "true or false", partial_work)
    devices = federation.problem.devices
    timed = deadline is not None and devices is not None
    require(timed or not partial_work, "partial_work", "false without devices and a deadline", partial_work)
    # A deadline inside an epoch or a block would leave out what is done at its end.
    algorithm = federation.algorithm
    apart = BLOCKS not in algorithm.owns
    require(
        apart or not partial_work, "partial_work", f"false for {algorithm!r}, some of whose steps belong together", True
    )
    private = federation.private and devices is not None
    require(not private, "devices", "left out for a private mean: times would tell who took part", devices)


def check_asynchrony(
    rule: Asynchrony | None,
    federation: Federation,
    cohort: Cohort,
    rounds: int,
    quorum: int,
    over_selection: float,
) -> None:
    """Refuse what has no meaning when uploads come one by one and late."""
    if rule is None:
        return
    require(isinstance(rule, Asynchrony), "asynchrony", "an Asynchrony, such as asynchrony.fedbuff()", rule)
    problem, algorithm = federation.problem, federation.algorithm
    plain = federation.policy is None or federation.policy.aggregator == plain_mean
    require(plain, "aggregator", "the plain mean in an asynchronous run", federation.policy)
    require(quorum == 1, "quorum", "1 in an asynchronous run: the buffer is what is waited for", quorum)
    require(over_selection == 0, "over_selection", "0 in an asynchronous run: nobody is waited for", over_selection)
    compress = algorithm.uploads.compress
    plain = compress is None or compress.feedback != "ef21"
    require(plain, "compress", "without EF21 in an asynchronous run: its server adds what is missing", compress)
    extra = federation.first_extra(federation.first_shared())
    alone = set(federation.expected) <= PLAIN_UPLOADS and HISTORY not in algorithm.owns
    if algorithm.uploads.nothing or extra or not alone:
        raise ConfigError(
            f"algorithm must send displacements alone in an asynchronous run. Got {algorithm!r} on this model: for "
            "control variates, memories, norms and averaged optimizer states that come late there is no rule."
        )
    expected = cohort.expected(problem.now(0, 1.0), len(problem.data.clients))
    require(expected >= 1, "cohort", "at least 1 in an asynchronous run", expected)
    _check_events(rule, federation, rounds)


def _check_events(rule: Asynchrony, federation: Federation, rounds: int) -> None:
    if rule.events is None:
        return
    others = {client for _, client in rule.events} - set(federation.problem.data.clients.tolist())
    require(not others, "events", "about training clients", sorted(others)[:3])
    finished = sum(kind == "finish" for kind, _ in rule.events)
    most = finished // rule.buffer
    require(rounds <= most, "rounds", f"at most {most}, the versions that the events make", rounds)
