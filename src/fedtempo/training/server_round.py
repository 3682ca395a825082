"""One round at the server: who is asked, what the mean upload does to the model, what is reported."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from fedtempo.devices import RunningDevices
from fedtempo.errors import FedTempoError, TrainingError, first_line
from fedtempo.federation.costs import Ledger
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, add, all_finite, different_form, select
from fedtempo.randomness import generator
from fedtempo.schedules import Now
from fedtempo.server.fault_injection import Faults
from fedtempo.server.private_mean import private_aggregate
from fedtempo.server.robust import ROBUST, Aggregator
from fedtempo.server.step import Server
from fedtempo.server.sums import Aggregate, BlockSum, Failure, mean
from fedtempo.training.clock import AWAY, passage, waiting, work_of
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_runs import hides_cohorts
from fedtempo.training.round_report import Clients, RoundReport
from fedtempo.training.state import State

REMEMBERED_NORMS = 20
DROPPED = "dropped out"
NOBODY = np.empty(0, dtype=np.int64)


class Participants(NamedTuple):
    """The clients that answer, in ascending order, those that were asked and did not, and how the round passes."""

    clients: np.ndarray
    failures: list[Failure]
    also_charged: np.ndarray = NOBODY
    """Clients whose uploads came too late: what they did has been spent."""
    seconds: float = 0.0
    joules: float = 0.0


def now_in(experiment: Experiment, state: State, round_number: int) -> Now:
    """The position of a round before its first step: round number, cohort, samples, progress of the loss."""
    progress = state.progress
    if experiment.federation.private:
        # The position is sent to clients. Totals over rows and losses would tell them something about other clients.
        now = replace(experiment.federation.problem.now(round_number, 1.0), total_samples=1)
        return replace(now, cohort=experiment.cohort.expected(now, now.clients))
    now = experiment.federation.problem.now(round_number, 1.0, progress.ratio, progress.plateaus)
    return replace(now, cohort=experiment.cohort.expected(now, now.clients), time=state.time)


def begun(experiment: Experiment, now: Now, real: bool = False) -> Now:
    """The position of the round when it begins: simulated clients may have to be waited for."""
    devices = experiment.federation.problem.devices
    if devices is None or real or not devices.devices.may_be_away:
        return now
    clients = experiment.federation.problem.data.clients
    return replace(now, time=now.time + waiting(devices, clients, now.time, experiment.quorum))


def participants(
    experiment: Experiment,
    state: State,
    now: Now,
    ledger: Ledger,
    personal_of: Callable[[np.ndarray], Sequence[Params]] = lambda clients: (),
    real: bool = False,
) -> Participants:
    """The cohort, with over-selection: of the clients that do not drop out, the first to arrive count.

    Simulated clients arrive as their devices let them; without devices the order of arrival is drawn. Real clients are
    all asked, and their order is observed. The cohorts of a private run are drawn from its secret key: if the run's
    seed told who took part, sampling would hide nothing. `personal_of` is what clients keep, for schedules that look.
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
        work = work_of(devices, ledger, chosen, now, personal_of(chosen))
        enough, silent = (round(now.cohort) if over else None), any(f.reason == DROPPED for f in failures)
        found = passage(devices, work, chosen, now, experiment.deadline, enough, silent)
        return Participants(found.counted, failures + found.failures, found.late, found.seconds, found.joules)
    if over and not real:
        arrival = generator(federation.problem.seed, "arrival", now.round).permutation(chosen)
        chosen = np.sort(arrival[: round(now.cohort)])
    return Participants(chosen, failures)


def _chosen(
    experiment: Experiment, now: Now, seed: int, devices: RunningDevices | None
) -> tuple[np.ndarray, list[Failure]]:
    """The clients that are asked: chosen among those that are there, or from a list, without those that are away."""
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


def conclude(
    experiment: Experiment,
    state: State,
    block: BlockSum,
    cohort: Participants,
    now: Now,
    ledger: Ledger,
    personal_of: Callable[[np.ndarray], Sequence[Params]] = lambda clients: (),
) -> tuple[State, dict[int, Params], RoundReport]:
    """The state after the round, what clients keep, and the report. Below quorum only the round number moves on."""
    if experiment.federation.private:
        return _conclude_privately(experiment, state, block, cohort, now, ledger)
    abandoned = block.clients < experiment.quorum
    check_alive(experiment.federation, block, now)
    loss = block.loss.value / block.loss_weight if block.loss_weight else float("nan")
    if not abandoned:
        state = _server_step(experiment.federation, state, block, now)._replace(progress=state.progress.after(loss))
    charged = np.sort(np.concatenate([cohort.clients, cohort.also_charged]))
    costs = ledger.clients(charged, now, personal_of(charged))
    seconds = now.time - state.time + cohort.seconds
    failures = sorted([*cohort.failures, *block.failures])
    failed = {failure.client for failure in failures}
    report = RoundReport(
        now.round,
        loss,
        Clients(client for client in cohort.clients.tolist() if client not in failed),
        costs,
        state.costs + costs,
        0.0,
        {**measurements_of(block), **experiment.federation.algorithm.server.measurements(state.server)},
        tuple(failures),
        abandoned,
        time=seconds,
        energy=cohort.joules,
        total_time=state.time + seconds,
        total_energy=state.energy + cohort.joules,
        params=state.shared,
    )
    return passed(state, report), {} if abandoned else block.personal, report


def passed(state: State, report: RoundReport) -> State:
    """The state with what has been spent after a round: costs, time and energy."""
    return state._replace(costs=report.total_costs, time=report.total_time, energy=report.total_energy)


def _conclude_privately(
    experiment: Experiment, state: State, block: BlockSum, cohort: Participants, now: Now, ledger: Ledger
) -> tuple[State, dict[int, Params], RoundReport]:
    """As `conclude`, for a private run. Every round counts, even one without uploads: its mean is then noise alone.

    Only the noised sum and what clients keep is used of the block. Its loss, measurements, norms, failures and number
    of clients are dropped here, and so are the rows and steps that `ledger` knows of the cohort.
    """
    federation = experiment.federation
    assert federation.policy is not None and state.secret is not None
    deviation, like = federation.policy.aggregator.deviation, federation.expected["delta"]
    aggregate = private_aggregate(block, like, deviation, state.secret, now.round, now.cohort)
    state = stepped(federation, state, aggregate, now)
    costs = ledger.traffic(now.cohort)
    report = RoundReport(
        now.round,
        float("nan"),
        Clients(() if hides_cohorts(federation, experiment.cohort) else cohort.clients.tolist()),
        costs,
        state.costs + costs,
        0.0,
        federation.algorithm.server.measurements(state.server),
        params=state.shared,
        private=True,
    )
    return state._replace(costs=report.total_costs, releases=state.releases + 1), block.personal, report


def check_alive(federation: Federation, block: BlockSum, now: Now) -> None:
    """Stop the run if every client diverged and no fault was injected: then the learning rate is too large."""
    injected = federation.policy is not None and federation.policy.faults != Faults()
    if not injected and not block.clients and any(f.reason == "not finite" for f in block.failures):
        raise TrainingError(f"run stopped: no client's update is finite in round {now.round}. Lower the learning rate.")


def _server_step(federation: Federation, state: State, block: BlockSum, now: Now) -> State:
    """One server step on the mean upload; a model that is no longer finite stops the run at the last good round."""
    if not block.sums:  # local training sends nothing, so there is nothing to step on
        return state
    algorithm = federation.algorithm
    aggregate = mean(block, algorithm.uploads.unweighted, federation.problem.dtype)
    if federation.policy is not None:
        aggregate = _aggregated(federation.policy.aggregator, aggregate, block)
    norms = (*state.norms, statistics.median(block.norms))[-REMEMBERED_NORMS:] if block.norms else state.norms
    return stepped(federation, state, aggregate, now)._replace(norms=norms)


def stepped(federation: Federation, state: State, aggregate: Aggregate, now: Now) -> State:
    """The server's step on a mean upload."""
    algorithm = federation.algorithm
    # The server's rule sees trained parameters only: Adam must not adapt to BatchNorm's statistics. Those are averaged.
    trained = select(state.shared, federation.stepped_names)
    moved, server = _moved(algorithm.server, trained, state.server, aggregate, now)
    buffers = aggregate.means.get("buffers", {})
    shared = {**state.shared, **moved, **add(select(state.shared, buffers), buffers)}
    if not all_finite(shared.values()):
        raise TrainingError(f"run stopped: the model is not finite after round {now.round}. Lower the learning rate.")
    return state._replace(shared=shared, server=server)


def _moved(server: Server, trained: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
    """What the server's step makes of the trained tensors: some or all of them, in the form that they had."""
    rule = "a function of (shared, state, aggregate, now) that returns (shared, state)"
    try:
        moved, new = server.step(trained, state, aggregate, now)
        wrong = different_form({**trained, **moved}, trained)
    except FedTempoError:
        raise
    # The step may be the user's code and may raise anything. The error has to name it and the round.
    except Exception as error:
        what = f"{type(error).__name__} ({first_line(error)})"
        raise TrainingError(f"server.step must be {rule}. Got {what} in round {now.round}.") from error
    if wrong:
        kept = "tensors of the names, shapes and types that it was given"
        raise TrainingError(f"server.step must return {kept}. Got {wrong} in round {now.round}.")
    return moved, new


def _aggregated(aggregator: Aggregator, aggregate: Aggregate, block: BlockSum) -> Aggregate:
    """The mean displacement, and that of layers' statistics, replaced by a robust one."""
    if aggregator.combine is None or not block.each:
        return aggregate
    stacked = {n: torch.stack([upload[n] for _, upload in block.each]) for n in block.each[0][1]}
    robust = aggregator.combine(stacked, torch.tensor([weight for weight, _ in block.each]))
    groups = {group: select(robust, tensors) for group, tensors in aggregate.means.items() if group in ROBUST}
    return aggregate._replace(means={**aggregate.means, **groups})


def measurements_of(block: BlockSum) -> dict[str, float]:
    """Sums of what clients measured; norms of clipped steps and rates of ruled steps become means over those steps."""
    sums = {name: total.value for name, total in block.measurements.items()}
    if "clipped_norm" in sums:
        sums["clipped_norm"] = sums["clipped_norm"] / max(sums["clipped_steps"], 1.0)
    if "rate" in sums:
        sums["rate"] = sums["rate"] / max(sums["rate_steps"], 1.0)
    return sums
