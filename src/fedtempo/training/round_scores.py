"""The scores of a round: who scores users, on which state, what validation selects, and when it gives up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedtempo.backends import Engine, serial
from fedtempo.backends.collect import WAITING_BYTES
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.remembered import RememberedScores, memory_for
from fedtempo.evaluation.scoring import Evaluator
from fedtempo.params import Params, size_in_bytes
from fedtempo.schedules import Now
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport, evaluations_since_best
from fedtempo.training.state import State
from fedtempo.training.storage.in_memory import Store

MOST_READ = 256
"""Users whose scores are read from a device together."""


class RoundScoring(NamedTuple):
    """Scores rounds by the run's evaluation protocol."""

    experiment: Experiment
    protocol: Evaluation
    engine: Engine
    store: Store
    memory: RememberedScores | None
    """Scores of users whose model has not changed; None where reusing a score could change bits."""

    @classmethod
    def of(
        cls, experiment: Experiment, protocol: Evaluation, engine: Engine, store: Store, on_nodes: bool
    ) -> RoundScoring:
        """The scoring of this run. Real users may not answer, so their scores are not reused."""
        is_serial = experiment.backend.name == serial.name
        memory = memory_for(experiment.federation, protocol, is_serial, experiment.first_shared)
        return cls(experiment, protocol, engine, store, None if on_nodes else memory)

    def score(
        self, state: State, kept: Mapping[int, Params], report: RoundReport, now: Now, history: Sequence[RoundReport]
    ) -> tuple[State, RoundReport]:
        """Score the round if an evaluation is due, and say whether the run stops for want of a better one.

        This comes before the commit: validation may select the round, and the selection is committed with it.
        """
        if self.memory is not None:
            self.memory.forget(kept)
        if not self.protocol.due(now.round, self.experiment.rounds, self.store.planned):
            return state, report
        state, report = self._scored(self._evaluator(kept), state, report, now)
        return state, replace(report, stops=self._gives_up(history, report))

    def _evaluator(self, kept: Mapping[int, Params]) -> Evaluator:
        """The evaluator of this round. Its clients are scored on the state that is not committed yet."""

        def personal_of(client: int) -> Params:
            return self.experiment.personal_state(client, kept[client] if client in kept else self.store.get(client))

        block = _users_read_together(self.experiment)
        return Evaluator(self.experiment.federation, self.engine, self.protocol, block, personal_of, self.memory)

    def _scored(self, evaluator: Evaluator, state: State, report: RoundReport, now: Now) -> tuple[State, RoundReport]:
        """Validation selects the round.

        Test scores are kept only for a round that validation has just selected, so nobody can select by them.
        """
        server, sizes = self.experiment.federation.algorithm.server, self.experiment.federation.problem.data.sizes
        model = {**state.shared, **server.model(state.shared, state.server)}
        extra = server.extra(state.server)
        has_test = bool(sizes("test").any())
        if not sizes("validation").any():
            (only,) = evaluator.scores(model, extra, now, "test" if has_test else "train")
            return state, replace(report, test=only)
        validation, *test = evaluator.scores(model, extra, now, "validation", *(("test",) if has_test else ()))
        quality = validation.quality()
        if not quality > state.best_validation:  # written this way round, a NaN never wins
            return state, replace(report, validation=validation)
        selected = test[0] if test else validation
        return state._replace(best_validation=quality), replace(report, validation=validation, test=selected)

    def _gives_up(self, history: Sequence[RoundReport], report: RoundReport) -> bool:
        """Whether validation has not selected a round for as many evaluations as the run has patience for."""
        patience = self.protocol.patience
        if patience is None or report.validation is None or report.round + 1 == self.experiment.rounds:
            return False
        return evaluations_since_best([*history, report]) >= patience


def _users_read_together(experiment: Experiment) -> int:
    """How many users a block of the evaluation has. One by one on a device, many are scored before a score is read."""
    if experiment.federation.problem.device == "cpu" or experiment.backend.stacks:
        return experiment.block
    # What they keep is on the device meanwhile, and is seldom larger than the model.
    return max(experiment.block, min(MOST_READ, WAITING_BYTES // max(1, size_in_bytes(experiment.first_shared))))
