"""What a private run does otherwise in every round: nothing leaves a round but through the clipped and noised mean."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedtempo.federation.costs import Ledger
from fedtempo.schedules import Now
from fedtempo.server.private_mean import private_aggregate
from fedtempo.server.sums import BlockSum
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_runs import hides_cohorts
from fedtempo.training.round_report import Clients, RoundReport
from fedtempo.training.server_step import server_step
from fedtempo.training.state import AfterRound, State


class Privacy(NamedTuple):
    """A private run's position, mean and report."""

    experiment: Experiment
    ledger: Ledger

    def position(self, number: int) -> Now:
        """The position of a round. It is sent to clients: totals over rows or losses would tell of other clients."""
        now = replace(self.experiment.federation.problem.now(number, 1.0), total_samples=1)
        return replace(now, cohort=self.experiment.cohort.expected(now, now.clients))

    def conclude(self, state: State, total: BlockSum, asked: np.ndarray, now: Now) -> AfterRound:
        """The server's step on the noised mean. Every round counts: without uploads its mean is noise alone.

        Only the noised sum and what clients keep is used of the total. Its loss, measurements, norms, failures and
        number of clients are dropped here, and so are the rows and steps that the ledger knows of the cohort.
        """
        federation = self.experiment.federation
        assert federation.policy is not None and state.secret is not None
        deviation, like = federation.policy.aggregator.deviation, federation.expected["delta"]
        aggregate = private_aggregate(total, like, deviation, state.secret, now.round, now.cohort)
        state = server_step(federation, state, aggregate, now)
        costs = self.ledger.traffic(now.cohort)
        report = RoundReport(
            now.round,
            float("nan"),
            Clients(() if hides_cohorts(federation, self.experiment.cohort) else asked.tolist()),
            costs,
            state.costs + costs,
            0.0,
            federation.algorithm.server.measurements(state.server),
            params=state.shared,
            private=True,
        )
        state = state._replace(costs=report.total_costs, releases=state.releases + 1)
        return AfterRound(state, total.personal, report)
