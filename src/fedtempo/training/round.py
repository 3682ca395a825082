"""A round from top to bottom: who is asked, what goes down, who trains, what the server makes of it, what it costs.

`train_round` is the round. A `Run` is what all its rounds share: what every run has, and a part for each feature that a
run may have. A part that a run does not have is None, and no function of it is entered:

| part | what it adds | where |
|---|---|---|
| `privacy` | noise on the sum, and reports that say nothing of clients | `training/private_rounds.py` |
| `clock` | devices that are slow, away, or late | `training/clock.py` |
| `faults` | clients and workers that fail on purpose | `server/fault_injection.py` |
| `admission` | a largest norm for uploads | `server/admission.py` |
| `combine` | a robust mean | `server/robust.py` |
| `compress_down` | a compressed model on its way down | `federation/traffic.py` |
| `scoring` | scores of users, the selected round, patience | `training/round_scores.py` |

Asynchronous runs have `next_version` in `training/asynchronous/rounds.py` in place of `train_round`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch

from fedtempo.backends import Block, Engine, Order, WorkerPool
from fedtempo.client.compression.compressor import Compressor
from fedtempo.client.objectives import Received
from fedtempo.errors import TrainingError
from fedtempo.federation.costs import Ledger
from fedtempo.federation.traffic import compress_download
from fedtempo.params import Params, select
from fedtempo.randomness import generator
from fedtempo.schedules import Now
from fedtempo.server.admission import Admission
from fedtempo.server.fault_injection import Faults
from fedtempo.server.robust import ROBUST, Combine
from fedtempo.server.sums import NOT_FINITE, TOO_LARGE_TO_ADD, Aggregate, BlockSum, Failure, mean
from fedtempo.training.clock import Clock, Participants
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_rounds import Privacy
from fedtempo.training.round_report import Clients, RoundReport
from fedtempo.training.round_scores import RoundScoring
from fedtempo.training.server_step import server_step
from fedtempo.training.state import AfterRound, State
from fedtempo.training.storage.in_memory import Store

DROPPED = "dropped out"
REMEMBERED_NORMS = 20
"""Rounds whose median norms admission compares with."""


class Run(NamedTuple):
    """What all rounds of a run share, made once by `of`; None where the run has no such part."""

    experiment: Experiment
    engine: Engine
    store: Store
    ledger: Ledger
    on_nodes: bool = False
    """Whether clients are real: they have their own clock, and keep their states themselves."""
    reads_kept: bool = False
    """Whether a schedule looks at what clients keep. Most runs would read it from the store for nothing."""
    absent_train: bool | Literal["own"] = False
    """Whether clients outside the cohort train as well; see `Memory.absent_train`."""
    privacy: Privacy | None = None
    clock: Clock | None = None
    faults: Faults | None = None
    admission: Admission | None = None
    combine: Combine | None = None
    compress_down: Compressor | None = None
    scoring: RoundScoring | None = None

    @classmethod
    def of(cls, experiment: Experiment, engine: Engine, store: Store, ledger: Ledger, on_nodes: bool = False) -> Run:
        """The experiment's run on this engine, with the parts that it uses."""
        federation, problem = experiment.federation, experiment.federation.problem
        policy, algorithm = federation.policy, federation.algorithm
        devices, protocol = None if on_nodes else problem.devices, experiment.evaluation
        return cls(
            experiment,
            engine,
            store,
            ledger,
            on_nodes,
            reads_kept=problem.keeps_loss and not on_nodes,
            absent_train=algorithm.memory.absent_train,
            privacy=Privacy(experiment, ledger) if federation.private else None,
            clock=None if devices is None else Clock.of(experiment, devices),
            faults=policy.faults if policy is not None and policy.faults != Faults() else None,
            admission=None if policy is None else policy.admission,
            combine=None if policy is None else policy.aggregator.combine,
            compress_down=algorithm.compress_down,
            scoring=None if protocol is None else RoundScoring.of(experiment, protocol, engine, store, on_nodes),
        )


def train_round(run: Run, state: State, history: Sequence[RoundReport]) -> AfterRound:
    """The round that follows `history`; nothing is committed."""
    started, replaced = time.perf_counter(), run.engine.status.replaced
    now = before = position(run, state, len(history))
    if run.faults is not None:
        kill_worker(run, run.faults, now)
    if run.clock is not None:
        now = run.clock.starts(now, run.experiment.federation.problem.data.clients)
    asked = ask(run, state, now)
    order = send(run, state, now)
    began = time.perf_counter()
    total = run.engine.train(order, blocks_of(run, asked.clients))
    if run.on_nodes and run.privacy is None:
        asked = asked._replace(seconds=time.perf_counter() - began)
    if run.privacy is not None:  # from here on, nothing is left of a single client
        state, kept, report = run.privacy.conclude(state, total, asked.clients, now)
    else:
        state, kept, report = conclude(run, state, total, asked, now)
    if run.absent_train and not report.abandoned:
        others = train_absent(run, order, asked)
        kept, report = {**others.personal, **kept}, with_lost_work(report, len(others.failures))
    if run.scoring is not None:  # users are served without a deadline, at the time when the round was due
        state, report = run.scoring.score(state, kept, report, before, history)
    return AfterRound(state, kept, timed(run, report, started, replaced))


def position(run: Run, state: State, number: int) -> Now:
    """The position of a round before its first step: number, expected cohort, progress of the loss, time."""
    if run.privacy is not None:
        return run.privacy.position(number)
    now = run.experiment.federation.problem.now(number, 1.0, state.progress.ratio, state.progress.plateaus)
    return replace(now, cohort=run.experiment.cohort.expected(now, now.clients), time=state.time)


def ask(run: Run, state: State, now: Now) -> Participants:
    """Who is asked, and whose answers count: with over-selection, the first that arrive.

    Simulated clients arrive as their devices let them; without devices the order of arrival is drawn. Real clients are
    all asked, and their order is observed. The cohorts of a private run are drawn from its secret key: if the run's
    seed told who took part, sampling would hide nothing.
    """
    experiment, problem = run.experiment, run.experiment.federation.problem
    seed, over = problem.seed if state.secret is None else state.secret.cohort_seed, experiment.over_selection
    failures: list[Failure] = []
    if run.clock is None:
        chosen = experiment.cohort.members(problem.data.clients, now, seed, over)
    else:
        chosen, failures = run.clock.present(experiment.cohort, problem.data.clients, now, seed, over)
    silent = False
    if run.faults is not None:
        kinds = run.faults.assigned(problem.seed, now.round, chosen)
        drops = np.array([kind == "drop" for kind in kinds], dtype=bool)
        failures, silent = failures + [Failure(c, DROPPED) for c in chosen[drops].tolist()], bool(drops.any())
        chosen = chosen[~drops]
    if run.clock is not None:
        enough = round(now.cohort) if over else None
        personal = states_of(run, chosen) if run.reads_kept else ()
        answered = run.clock.passage(run.ledger, chosen, now, personal, enough, silent)
        return answered._replace(failures=failures + answered.failures)
    if over and not run.on_nodes:
        arrival = generator(problem.seed, "arrival", now.round).permutation(chosen)
        chosen = np.sort(arrival[: round(now.cohort)])
    return Participants(chosen, failures)


def send(run: Run, state: State, now: Now) -> Order:
    """What all clients of the round get: the model, the position, and the largest norm that an upload may have."""
    shared, packed = state.shared, None
    if run.compress_down is not None:
        shared, packed = compress_download(run.experiment.federation, shared, now.round)
    limit = math.inf if run.admission is None else norm_limit(run.admission, state)
    extra = run.experiment.federation.algorithm.server.extra(state.server)
    return Order(Received(shared, extra), now, limit, packed)


def conclude(run: Run, state: State, total: BlockSum, asked: Participants, now: Now) -> AfterRound:
    """The server's step on the sum of uploads, the costs and the report. Below quorum only the round number moves on.

    Whoever did the work is charged, also where the upload was refused or came too late.
    """
    if not total.clients:
        check_alive(run, total, now)
    counts, server = total.clients >= run.experiment.quorum, run.experiment.federation.algorithm.server
    if counts:
        # Local training sends nothing, so there is nothing to step on.
        if total.sums:
            state = server_step(run.experiment.federation, state, mean_of(run, total), now)
            state = state if run.admission is None else state._replace(norms=remembered_norms(state, total))
        state = state._replace(progress=state.progress.after(total.mean_loss))
    failures = sorted([*asked.failures, *total.failures])
    failed = {failure.client for failure in failures}
    charged = asked.clients
    if len(asked.also_charged):
        charged = np.sort(np.concatenate([charged, asked.also_charged]))
    costs = run.ledger.clients(charged, now, states_of(run, charged) if run.reads_kept else ())
    seconds = now.time - state.time + asked.seconds
    report = RoundReport(
        now.round,
        total.mean_loss,
        Clients([client for client in asked.clients.tolist() if client not in failed]),
        costs,
        state.costs + costs,
        0.0,
        {**measurements_of(total), **server.measurements(state.server)},
        tuple(failures),
        not counts,
        time=seconds,
        energy=asked.joules,
        total_time=state.time + seconds,
        total_energy=state.energy + asked.joules,
        params=state.shared,
    )
    return AfterRound(with_spending(state, report), total.personal if counts else {}, report)


def mean_of(run: Run, total: BlockSum) -> Aggregate:
    """The mean upload, or a robust mean in its place: of displacements, and of layers' statistics."""
    federation = run.experiment.federation
    aggregate = mean(total, federation.algorithm.uploads.unweighted, federation.problem.dtype)
    if run.combine is None or not total.each:
        return aggregate
    stacked = {n: torch.stack([upload[n] for _, upload in total.each]) for n in total.each[0][1]}
    robust = run.combine(stacked, torch.tensor([weight for weight, _ in total.each]))
    groups = {group: select(robust, tensors) for group, tensors in aggregate.means.items() if group in ROBUST}
    return aggregate._replace(means={**aggregate.means, **groups})


def train_absent(run: Run, order: Order, asked: Participants) -> BlockSum:
    """Train those that were not asked, for what they keep; their sums are thrown away, and they cost nothing.

    Whoever was asked and failed is not absent: it keeps what it had, like a client whose upload is refused.
    """
    met = [*asked.clients.tolist(), *(failure.client for failure in asked.failures)]
    absent = np.setdiff1d(run.experiment.federation.problem.data.clients, met)
    now = replace(order.now, absent=run.absent_train)
    return run.engine.train(order._replace(now=now, limit=math.inf), blocks_of(run, absent))


# ---------------------------------------------------------------------- what both kinds of rounds use


def blocks_of(
    run: Run, clients: np.ndarray, newer: Mapping[int, Params] | None = None, on_nodes: bool | None = None
) -> Iterator[Block]:
    """The clients cut into blocks that run together, with what each client keeps; `newer` goes before the store.

    A generator: an engine in this process reads personal states from the store one block at a time. Clients on nodes
    keep their states themselves; a block tells them which state belongs to the selected round.
    """
    experiment, store = run.experiment, run.store
    for start in range(0, len(clients), experiment.block):
        together = clients[start : start + experiment.block]
        kept: list[Params] = []
        if not experiment.clients_keep_nothing:
            kept = [state_of(run, client, newer) for client in together.tolist()]
        aside = bool(kept) and (run.on_nodes if on_nodes is None else on_nodes) and store.selected is not None
        selected = [store.get(client, selected=True) or {} for client in together.tolist()] if aside else []
        yield Block(together, kept, selected)


def state_of(run: Run, client: int, newer: Mapping[int, Params] | None = None) -> Params:
    """What a client keeps: the newest there is, or what it starts with."""
    kept = newer[client] if newer is not None and client in newer else run.store.get(client)
    return run.experiment.personal_state(client, kept)


def states_of(run: Run, clients: np.ndarray) -> Sequence[Params]:
    """What each client keeps, for schedules that look at it."""
    return [state_of(run, client) for client in clients.tolist()]


def kill_worker(run: Run, faults: Faults, now: Now) -> None:
    """Kill a worker where the injected faults say so; another one takes over, and no number changes."""
    if faults.kills(run.experiment.federation.problem.seed, now.round) and isinstance(run.engine, WorkerPool):
        run.engine.kill_worker()


def norm_limit(admission: Admission, state: State) -> float:
    """The largest norm that an upload of the next round may have."""
    return admission.limit(statistics.median(state.norms) if state.norms else math.nan)


def remembered_norms(state: State, total: BlockSum) -> tuple[float, ...]:
    """The median norms of the latest rounds, with that of these uploads where their norms were taken."""
    return (*state.norms, statistics.median(total.norms))[-REMEMBERED_NORMS:] if total.norms else state.norms


def check_alive(run: Run, total: BlockSum, now: Now) -> None:
    """Stop the run if every client diverged and no fault was injected: then the learning rate is too large."""
    if run.faults is None and any(failure.reason in (NOT_FINITE, TOO_LARGE_TO_ADD) for failure in total.failures):
        raise TrainingError(f"run stopped: no client's update is finite in round {now.round}. Lower the learning rate.")


def measurements_of(total: BlockSum) -> dict[str, float]:
    """Sums of what clients measured; norms of clipped steps and rates of ruled steps become means over those steps."""
    sums = {name: exact.value for name, exact in total.measurements.items()}
    if "clipped_norm" in sums:
        sums["clipped_norm"] = sums["clipped_norm"] / max(sums["clipped_steps"], 1.0)
    if "rate" in sums:
        sums["rate"] = sums["rate"] / max(sums["rate_steps"], 1.0)
    return sums


def with_spending(state: State, report: RoundReport) -> State:
    """The state with what has been spent after a round: costs, time and energy."""
    return state._replace(costs=report.total_costs, time=report.total_time, energy=report.total_energy)


def with_lost_work(report: RoundReport, absent: int) -> RoundReport:
    """The report with the number of absent clients that keep what they had, since what they found is not finite."""
    if not absent or report.private:
        return report
    return replace(report, measurements={**report.measurements, "absent_not_finite": float(absent)})


def timed(run: Run, report: RoundReport, started: float, replaced: int) -> RoundReport:
    """The report with the seconds that the round took, and with the workers that had to be replaced."""
    lost = run.engine.status.replaced - replaced
    measured = {**report.measurements, "workers_replaced": float(lost)} if lost else report.measurements
    # A round's time would tell that a slow client took part, so a private run reports none.
    seconds = 0.0 if run.privacy is not None else time.perf_counter() - started
    return replace(report, seconds=seconds, measurements=measured)
