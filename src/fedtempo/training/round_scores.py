"""The scores of a round: who scores users, on which state, and what validation selects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedtempo.backends import Engine, serial
from fedtempo.evaluation.remembered import RememberedScores, memory_for
from fedtempo.evaluation.scoring import Evaluator
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.training.experiment import Experiment
from fedtempo.training.one_round import state_of
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import State
from fedtempo.training.storage.in_memory import Store


def memory_of(experiment: Experiment) -> RememberedScores | None:
    """The cache of scores, for users whose model has not changed; None where reusing a score could change bits."""
    if experiment.evaluation is None:
        return None
    is_serial = experiment.backend.name == serial.name
    return memory_for(experiment.federation, experiment.evaluation, is_serial, experiment.first_shared)


def evaluator_of(
    experiment: Experiment,
    engine: Engine,
    store: Store,
    latest: Mapping[int, Params],
    memory: RememberedScores | None = None,
) -> Evaluator | None:
    """The evaluator of this round, or None. This round's clients are scored on the state that is not committed yet."""
    if experiment.evaluation is None:
        return None
    if memory is not None:
        memory.forget(latest)

    def personal_of(client: int) -> Params:
        if client not in latest:
            return state_of(experiment, store, client)
        return experiment.federation.personal_state(client, experiment.first_shared, latest[client])

    return Evaluator(experiment.federation, engine, experiment.evaluation, experiment.block, personal_of, memory)


def evaluated(
    experiment: Experiment,
    evaluator: Evaluator | None,
    state: State,
    report: RoundReport,
    now: Now,
    planned: int | None,
) -> tuple[State, RoundReport]:
    """Score the round if an evaluation is due.

    Validation selects the round. Test scores are kept only for a round that validation has just selected, so nobody can
    select by them.
    """
    if evaluator is None or not evaluator.protocol.due(now.round, experiment.rounds, planned):
        return state, report
    server = experiment.federation.algorithm.server
    model = {**state.shared, **server.model(state.shared, state.server)}
    extra = server.extra(state.server)
    sizes = experiment.federation.problem.data.sizes
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
