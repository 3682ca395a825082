"""The end of a round at the server: what the mean upload does to the model, what is charged, what is reported."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch

from fedtempo.errors import FedTempoError, TrainingError, first_line
from fedtempo.federation.costs import Ledger
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, add, all_finite, different_form, leaves, no_tensor_in, select
from fedtempo.schedules import Now
from fedtempo.server.admission import NOT_FINITE, TOO_LARGE_TO_ADD
from fedtempo.server.fault_injection import Faults
from fedtempo.server.private_mean import private_aggregate
from fedtempo.server.robust import ROBUST, Aggregator
from fedtempo.server.step import Server
from fedtempo.server.sums import Aggregate, BlockSum, mean
from fedtempo.training.clock import Participants
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_runs import hides_cohorts
from fedtempo.training.round_report import Clients, RoundReport
from fedtempo.training.state import AfterRound, KeptBy, State, keeps_unread

REMEMBERED_NORMS = 20
"""Rounds whose median norms admission compares with."""


def conclude(
    experiment: Experiment,
    state: State,
    block: BlockSum,
    cohort: Participants,
    now: Now,
    ledger: Ledger,
    kept_by: KeptBy = keeps_unread,
) -> AfterRound:
    """Take the server's step on the sum of uploads, charge the costs, make the report.

    Below quorum only the round number moves on.
    """
    if experiment.federation.private:
        return _conclude_privately(experiment, state, block, cohort, now, ledger)
    abandoned = block.clients < experiment.quorum
    check_alive(experiment.federation, block, now)
    loss = block.mean_loss
    if not abandoned:
        state = _server_step(experiment.federation, state, block, now)._replace(progress=state.progress.after(loss))
    # Whoever did the work is charged, also where the upload was refused or came too late.
    charged = np.sort(np.concatenate([cohort.clients, cohort.also_charged]))
    costs = ledger.clients(charged, now, kept_by(charged))
    seconds = now.time - state.time + cohort.seconds
    failures = sorted([*cohort.failures, *block.failures])
    failed = {failure.client for failure in failures}
    report = RoundReport(
        now.round,
        loss,
        Clients([client for client in cohort.clients.tolist() if client not in failed]),
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
    return AfterRound(passed(state, report), {} if abandoned else block.personal, report)


def passed(state: State, report: RoundReport) -> State:
    """The state with what has been spent after a round: costs, time and energy."""
    return state._replace(costs=report.total_costs, time=report.total_time, energy=report.total_energy)


def _conclude_privately(
    experiment: Experiment, state: State, block: BlockSum, cohort: Participants, now: Now, ledger: Ledger
) -> AfterRound:
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
    state = state._replace(costs=report.total_costs, releases=state.releases + 1)
    return AfterRound(state, block.personal, report)


def check_alive(federation: Federation, block: BlockSum, now: Now) -> None:
    """Stop the run if every client diverged and no fault was injected: then the learning rate is too large."""
    injected = federation.policy is not None and federation.policy.faults != Faults()
    if not injected and not block.clients and any(f.reason in (NOT_FINITE, TOO_LARGE_TO_ADD) for f in block.failures):
        raise TrainingError(f"run stopped: no client's update is finite in round {now.round}. Lower the learning rate.")


def _server_step(federation: Federation, state: State, block: BlockSum, now: Now) -> State:
    """One server step on the mean upload; a model that is no longer finite stops the run at the last good round."""
    if not block.sums:  # local training sends nothing, so there is nothing to step on
        return state
    algorithm = federation.algorithm
    aggregate = mean(block, algorithm.uploads.unweighted, federation.problem.dtype)
    if federation.policy is not None:
        aggregate = _aggregated(federation.policy.aggregator, aggregate, block)
    return stepped(federation, state, aggregate, now)._replace(norms=remembered_norms(state, block))


def remembered_norms(state: State, block: BlockSum) -> tuple[float, ...]:
    """The median norms of the latest rounds, with that of this block's uploads where their norms were taken."""
    return (*state.norms, statistics.median(block.norms))[-REMEMBERED_NORMS:] if block.norms else state.norms


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
        before = leaves(state, "state")
        moved, new = server.step(trained, state, aggregate, now)
        wrong = different_form({**trained, **moved}, trained)
        # A stored state is read in the form of the first one, so a state that grows would be cut off by a resume.
        other = no_tensor_in(new) or different_form(leaves(new, "state"), before)
    except FedTempoError:
        raise
    # The step may be the user's code and may raise anything. The error has to name it and the round.
    except Exception as error:
        what = f"{type(error).__name__} ({first_line(error)})"
        raise TrainingError(f"server.step must be {rule}. Got {what} in round {now.round}.") from error
    if wrong:
        kept = "tensors of the names, shapes and types that it was given"
        raise TrainingError(f"server.step must return {kept}. Got {wrong} in round {now.round}.")
    if other:
        kept = "a state of the names, shapes and types that server.init made"
        raise TrainingError(f"server.step must return {kept}. Got {other} in round {now.round}.")
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
