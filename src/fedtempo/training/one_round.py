"""One round, from the choice of its clients to its report: who is asked, what they train from, who trains them.

`next_round` is the round, read from top to bottom. What the server makes of the sum of uploads is in `server_round.py`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedtempo.backends import Block, Engine, Order
from fedtempo.client.objectives import Received
from fedtempo.devices import RunningDevices
from fedtempo.federation.costs import Ledger
from fedtempo.federation.federation import Federation
from fedtempo.federation.traffic import compress_download
from fedtempo.params import Params
from fedtempo.randomness import generator
from fedtempo.schedules import Now
from fedtempo.server.sums import Failure
from fedtempo.training.clock import AWAY, Participants, passage, waiting, work_of
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport
from fedtempo.training.server_round import conclude
from fedtempo.training.state import AfterRound, KeptBy, State, keeps_unread
from fedtempo.training.storage.in_memory import Store

DROPPED = "dropped out"


def now_in(experiment: Experiment, state: State, round_number: int) -> Now:
    """The position of a round before its first step: round number, cohort, samples, progress of the loss."""
    progress = state.progress
    if experiment.federation.private:
        # The position is sent to clients. Totals over rows and losses would tell them something about other clients.
        now = replace(experiment.federation.problem.now(round_number, 1.0), total_samples=1)
        return replace(now, cohort=experiment.cohort.expected(now, now.clients))
    now = experiment.federation.problem.now(round_number, 1.0, progress.ratio, progress.plateaus)
    return replace(now, cohort=experiment.cohort.expected(now, now.clients), time=state.time)


def next_round(
    experiment: Experiment, state: State, engine: Engine, store: Store, ledger: Ledger, now: Now, real: bool
) -> AfterRound:
    """Train one more round; `real` clients have their own clock."""
    federation, server = experiment.federation, experiment.federation.algorithm.server
    if not real:
        now = _simulated_start(experiment, now)

    def kept_by(clients: np.ndarray) -> Sequence[Params]:
        # Read from the store only where a schedule looks at it: most runs would read it for nothing.
        seen = federation.problem.keeps_loss and not real
        return [state_of(experiment, store, client) for client in clients.tolist()] if seen else ()

    cohort = participants(experiment, state, now, ledger, kept_by, real)
    # The order is what all clients of the round get: the model, the position, and the largest norm allowed.
    down = compress_download(federation, state.shared, now.round)
    received = Received(down.shared, server.extra(state.server))
    order = Order(received, now, norm_limit(federation, state), down.packed)
    began = time.perf_counter()
    block = engine.train(order, blocks_of(experiment, store, cohort.clients, on_nodes=real))
    if real:
        cohort = cohort._replace(seconds=0.0 if federation.private else time.perf_counter() - began)
    after = conclude(experiment, state, block, cohort, now, ledger, kept_by)
    if not federation.algorithm.memory.absent_train or after.report.abandoned:
        return after
    # Absent clients send nothing: their sums are thrown away here. The model goes down to them; costs count the cohort.
    # Who was asked and failed is not absent: it keeps what it had, like a client whose upload is refused.
    asked = [*cohort.clients.tolist(), *(failure.client for failure in cohort.failures)]
    absent = np.setdiff1d(federation.problem.data.clients, asked)
    order = order._replace(now=replace(now, absent=federation.algorithm.memory.absent_train), limit=math.inf)
    others = engine.train(order, blocks_of(experiment, store, absent, on_nodes=real))
    report = _with_lost_work(after.report, len(others.failures))
    return after._replace(kept={**others.personal, **after.kept}, report=report)


def _with_lost_work(report: RoundReport, absent: int) -> RoundReport:
    """The report with the number of absent clients that keep what they had, since what they found is not finite."""
    if not absent or report.private:
        return report
    return replace(report, measurements={**report.measurements, "absent_not_finite": float(absent)})


def _simulated_start(experiment: Experiment, now: Now) -> Now:
    """The position of a simulated round when it begins: clients may have to be waited for, and have a deadline."""
    if experiment.partial_work:
        now = replace(now, deadline=experiment.deadline or 0.0)
    devices = experiment.federation.problem.devices
    if devices is None or not devices.devices.may_be_away:
        return now
    clients = experiment.federation.problem.data.clients
    return replace(now, time=now.time + waiting(devices, clients, now.time, experiment.quorum))


def participants(
    experiment: Experiment,
    state: State,
    now: Now,
    ledger: Ledger,
    kept_by: KeptBy = keeps_unread,
    real: bool = False,
) -> Participants:
    """The cohort, with over-selection: of the clients that do not drop out, the first to arrive count.

    Simulated clients arrive as their devices let them; without devices the order of arrival is drawn. Real clients are
    all asked, and their order is observed. The cohorts of a private run are drawn from its secret key: if the run's
    seed told who took part, sampling would hide nothing. `kept_by` is what clients keep, for schedules that look.
    """
    federation, over = experiment.federation, experiment.over_selection
    seed = federation.problem.seed if state.secret is None else state.secret.cohort_seed
    devices = None if real else federation.problem.devices
    chosen, failures = _chosen(experiment, now, seed, devices)
    if federation.policy is not None:
        kinds = federation.policy.faults.assigned(federation.problem.seed, now.round, chosen)
        dropped = [Failure(c, DROPPED) for c, kind in zip(chosen.tolist(), kinds, strict=True) if kind == "drop"]
        failures = failures + dropped
        chosen = np.array([c for c, kind in zip(chosen.tolist(), kinds, strict=True) if kind != "drop"], dtype=np.int64)
    if devices is not None:
        work = work_of(devices, ledger, chosen, now, kept_by(chosen))
        enough, silent = (round(now.cohort) if over else None), any(f.reason == DROPPED for f in failures)
        answered = passage(devices, work, chosen, now, experiment.deadline, enough, silent)
        return answered._replace(failures=failures + answered.failures)
    if over and not real:
        arrival = generator(federation.problem.seed, "arrival", now.round).permutation(chosen)
        chosen = np.sort(arrival[: round(now.cohort)])
    return Participants(chosen, failures)


def _chosen(
    experiment: Experiment, now: Now, seed: int, devices: RunningDevices | None
) -> tuple[np.ndarray, list[Failure]]:
    """The clients that are asked: chosen among the available ones, or from a list, without those that are away."""
    clients, rule, over = experiment.federation.problem.data.clients, experiment.cohort, experiment.over_selection
    if devices is None or not devices.devices.may_be_away:
        return rule.members(clients, now, seed, over), []
    if not rule.lists:
        return rule.members(clients[devices.available(clients, now.time)], now, seed, over), []
    chosen = rule.members(clients, now, seed, over)
    there = devices.available(chosen, now.time)
    return chosen[there], [Failure(client, AWAY) for client in chosen[~there].tolist()]


def norm_limit(federation: Federation, state: State) -> float:
    """The largest norm that an upload of this round may have."""
    if federation.policy is None:
        return float("inf")
    median = statistics.median(state.norms) if state.norms else float("nan")
    return federation.policy.admission.limit(median)


def blocks_of(
    experiment: Experiment,
    store: Store,
    clients: np.ndarray,
    newer: Mapping[int, Params] | None = None,
    on_nodes: bool = False,
) -> Iterator[Block]:
    """The clients cut into blocks that run together, with what each client keeps; `newer` goes before the store.

    A generator: an engine in this process reads personal states from the store one block at a time. Clients `on_nodes`
    keep their states themselves; a block tells them which state belongs to the selected round.
    """
    for start in range(0, len(clients), experiment.block):
        together = clients[start : start + experiment.block]
        kept: list[Params] = []
        if not experiment.clients_keep_nothing:
            kept = [state_of(experiment, store, client, newer) for client in together.tolist()]
        aside = bool(kept) and on_nodes and store.selected is not None
        selected = [store.get(client, selected=True) or {} for client in together.tolist()] if aside else []
        yield Block(together, kept, selected)


def state_of(experiment: Experiment, store: Store, client: int, newer: Mapping[int, Params] | None = None) -> Params:
    """What a client keeps: the newest there is, or what it starts with."""
    kept = newer[client] if newer is not None and client in newer else store.get(client)
    return experiment.federation.personal_state(client, experiment.first_shared, kept)
