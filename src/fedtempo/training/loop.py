"""The training loop: a generator that yields a report after every round."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedtempo.backends import Block, Engine, Order, engine_for, run_blocks
from fedtempo.costs import Ledger
from fedtempo.evaluation.protocol import Evaluator
from fedtempo.objectives import Received
from fedtempo.params import Params, select, size_in_bytes
from fedtempo.schedules import Now
from fedtempo.training.durable import DurableStore
from fedtempo.training.experiment import Experiment
from fedtempo.training.result import Result
from fedtempo.training.round import conclude, norm_limit, now_in, participants
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import State
from fedtempo.training.store import MemoryStore, Store
from fedtempo.training.tracking import Tracker, tracking

KEPT_MODELS = 64 * 2**20
"""Bytes of models that a result's history may hold; a longer run's history has reports without parameters."""


def train_experiment(
    experiment: Experiment,
    out: Path | None = None,
    resume: bool = False,
    commit_every: int = 1,
    trackers: Sequence[Tracker] = (),
    elsewhere: Engine | None = None,
) -> Generator[RoundReport, None, Result]:
    """Train round by round: choose clients, let them work, step, score, commit, yield the report.

    The experiment says where clients run, unless they are `elsewhere`, behind an engine of the caller's.
    """
    federation, algorithm = experiment.federation, experiment.federation.algorithm
    state, history, store = _start(experiment, out, resume, commit_every)
    keeps_models = size_in_bytes(state.shared) * experiment.rounds <= KEPT_MODELS
    left = experiment.rounds - len(history)
    where = (experiment.backend, experiment.workers, experiment.cluster, left if experiment.calibrates else None)
    with (
        one_thread(),
        closing(store),
        elsewhere or engine_for(federation, *where) as engine,
        tracking(trackers, experiment, out, resume, history) as told,
    ):
        ledger = Ledger(federation, experiment.first_shared, algorithm.server.extra(state.server))
        for round_number in range(len(history), experiment.rounds):
            started, deaths = time.perf_counter(), engine.deaths
            now = now_in(experiment, state, round_number)
            cohort = participants(experiment, now, real=elsewhere is not None)
            received = Received(state.shared, algorithm.server.extra(state.server))
            order = Order(received, now, norm_limit(federation, state))
            if federation.scrutiny is not None and federation.scrutiny.faults.kills(federation.seed, now.round):
                engine.kill_worker()
            block = engine.add_up(run_blocks, order, _blocks(experiment, store, cohort.clients))
            state, personal, report = conclude(experiment, state, block, cohort, now, ledger)
            evaluator = _evaluator(experiment, engine, store, personal)
            state, report = _evaluated(experiment, evaluator, state, report, now)
            lost = {"workers_replaced": float(engine.deaths - deaths)} if engine.deaths > deaths else {}
            measured = {**report.measurements, **lost}
            report = replace(report, seconds=time.perf_counter() - started, measurements=measured)
            store.commit(state, personal, report)
            told.round(report)
            history.append(report if keeps_models else replace(report, params={}))
            yield report
        now = now_in(experiment, state, experiment.rounds - 1)
        ran_as = "clients on nodes of their own" if elsewhere else experiment.ran_as(engine.calibration)
        result = Result(experiment, state.shared, state.server, history, store, now, ran_as)
        told.end(result)
    return result


def _start(
    experiment: Experiment, out: Path | None, resume: bool, commit_every: int
) -> tuple[State, list[RoundReport], Store]:
    """The first state, or the one a stored run had reached."""
    federation = experiment.federation
    trained = select(experiment.first_shared, federation.trained_names)
    state = State(experiment.first_shared, federation.algorithm.server.init(trained))
    if out is None:
        return state, [], MemoryStore()
    store = DurableStore(out, experiment.identity(), resume, commit_every)
    try:
        saved = store.load(state)
    except BaseException:
        store.close()
        raise
    return (state, [], store) if saved is None else (saved.state, saved.history, store)


def _blocks(experiment: Experiment, store: Store, clients: np.ndarray) -> Iterator[Block]:
    """The cohort cut into clients that run together, with what each of them keeps."""
    nothing = experiment.federation.keeps_nothing(experiment.first_shared)
    for start in range(0, len(clients), experiment.block):
        together = clients[start : start + experiment.block]
        kept = [] if nothing else [_state_of(experiment, store, client) for client in together.tolist()]
        yield Block(together, kept)


def _state_of(experiment: Experiment, store: Store, client: int) -> Params:
    kept = store.get(client)
    return kept if kept is not None else experiment.federation.first_personal(client, experiment.first_shared)


def _evaluator(experiment: Experiment, engine: Engine, store: Store, latest: Mapping[int, Params]) -> Evaluator | None:
    """Scores users on what they have now: this round's clients on what is about to be committed."""
    if experiment.evaluation is None:
        return None

    def personal_of(client: int) -> Params:
        return latest[client] if client in latest else _state_of(experiment, store, client)

    return Evaluator(experiment.federation, engine, experiment.evaluation, experiment.block, personal_of)


def _evaluated(
    experiment: Experiment, evaluator: Evaluator | None, state: State, report: RoundReport, now: Now
) -> tuple[State, RoundReport]:
    """Score the round if it is due. Validation selects; test scores are kept only for a round it has just selected."""
    if evaluator is None or not evaluator.protocol.due(now.round, experiment.rounds):
        return state, report
    server = experiment.federation.algorithm.server
    model = {**state.shared, **server.model(state.shared, state.server)}
    extra = server.extra(state.server)
    sizes = experiment.federation.data.sizes
    has_test = bool(sizes("test").any())
    if not sizes("validation").any():
        (only,) = evaluator.scores(model, extra, now, "test" if has_test else "train")
        return state, replace(report, test=only)
    validation, *test = evaluator.scores(model, extra, now, "validation", *(("test",) if has_test else ()))
    quality = validation.quality()
    if quality <= state.best_validation:
        return state, replace(report, validation=validation)
    selected = test[0] if test else validation
    return state._replace(best_validation=quality), replace(report, validation=validation, test=selected)


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread while training: repeatable bits, and faster than threads that fight for two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def drained(rounds: Generator[RoundReport, None, Result], *observers: Callable[[RoundReport], None]) -> Result:
    """Run a training generator to its end, show every report to the observers, and return the result."""
    while True:
        try:
            report = next(rounds)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        for observe in observers:
            observe(report)
