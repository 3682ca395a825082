"""The training loop: a generator that yields a report after every round.

The simulator, Ray and a Flower deployment all run this loop; they differ in the engine that it is given. One round is
in `training/round.py`, what a client does in `client/program.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path

from fedtempo.backends import Engine, engine_for
from fedtempo.errors import require
from fedtempo.federation.costs import Ledger
from fedtempo.params import select, size_in_bytes
from fedtempo.support.accelerator import told_in_one_line
from fedtempo.support.allocator import freed_memory_kept
from fedtempo.support.kind import kind_here
from fedtempo.support.threads import one_thread
from fedtempo.training.asynchronous.asked import AskedEngine
from fedtempo.training.asynchronous.rounds import next_version
from fedtempo.training.clock import AWAY, LEFT
from fedtempo.training.experiment import Experiment
from fedtempo.training.extension import check_extension
from fedtempo.training.log import LOGGER, log_end, log_round, log_start
from fedtempo.training.result import Result
from fedtempo.training.round import DROPPED, Run, position, train_round
from fedtempo.training.round_report import RoundReport, RoundState
from fedtempo.training.saved import Snapshot
from fedtempo.training.state import Progress, State
from fedtempo.training.storage.in_memory import MemoryStore, Saved, Store
from fedtempo.training.storage.kinds import Here, move, require_kind
from fedtempo.training.storage.on_disk import DATABASE, DurableStore
from fedtempo.training.tracking import Tracker, tracking

KEPT_MODELS = 64 * 2**20
"""Bytes of models that a result's history may hold. Reports of a longer run have no parameters."""


def train_experiment(
    experiment: Experiment,
    out: Path | None = None,
    resume: bool = False,
    commit_every: int = 1,
    trackers: Sequence[Tracker] = (),
    engine: Engine | None = None,
    claimed: Callable[[Path], None] | None = None,
    states: bool = False,
    as_planned: bool = False,
    same_kind: bool = False,
    notes_as_warnings: bool = False,
) -> Generator[RoundReport, None, Result]:
    """Train round by round: choose clients, train them, take the server's step, score, commit, yield the report.

    The experiment says where clients run, unless the caller gives an `engine`. `claimed` is called once a new folder
    belongs to this run, and may write into it. With `states` every report holds the whole state. A stored run may be
    given more rounds; `as_planned` keeps what was chosen for their number. `same_kind` refuses another kind of
    processor. `notes_as_warnings` logs what was decided for the user as a warning.
    """
    federation, server = experiment.federation, experiment.federation.algorithm.server
    engine = _not_waiting(experiment, engine)
    real = engine is not None
    state, history, store = _start(experiment, out, resume, commit_every, claimed, as_planned, same_kind, real)
    # A history of all models may not fit into memory. Long runs keep the reports and drop their models.
    keeps_models = size_in_bytes(state.shared) * experiment.rounds <= KEPT_MODELS
    with (
        told_in_one_line(federation.problem.device),
        one_thread(),
        freed_memory_kept(),
        closing(store),
        nullcontext(engine) if engine else _engine(experiment, experiment.rounds - len(history)) as clients,
        tracking(trackers, experiment, out, resume, history) as tracked,
    ):
        log_start(experiment, history, notes_as_warnings)
        # The ledger has to know who was asked before: a client gets the tensors that never change only once.
        extra, stages = server.extra(state.server), experiment.operations
        ledger = Ledger(federation, experiment.first_shared, extra, _asked(history), stages)
        run = Run.of(experiment, clients, store, ledger, real)
        one_round = train_round if experiment.asynchrony is None else next_version
        for _ in range(len(history), 0 if _stopped(history) else experiment.rounds):
            state, kept, report = one_round(run, state, history)
            # Commit first, report afterwards: a round that was reported is never lost.
            store.commit(state, kept, report)
            tracked.round(report)
            log_round(report, experiment.rounds)
            if states:
                report = replace(report, state=RoundState(state.shared, state.server, dict(kept)))
            history.append(report if keeps_models else replace(report, params={}))
            yield report
            if report.stops:
                break
        # The number of blocks would tell how many clients took part, which a private run does not publish.
        timed = None if federation.private else clients.status.calibration
        ran_as = "clients on nodes of their own" if real else experiment.ran_as(timed)
        result = _result(run, state, history, ran_as)
        tracked.end(result)
        log_end(result, notes_as_warnings)
    return result


def _result(run: Run, state: State, history: list[RoundReport], ran_as: str) -> Result:
    """The finished run, with the round that validation selected."""
    last = _snapshot(run, history, state, None)
    result = Result(run.experiment, last, history, run.store, ran_as, releases=state.releases)
    chosen = run.store.selected
    if chosen is not None:
        result.chosen = _snapshot(run, history, chosen.state, chosen.round)
    return result


def _not_waiting(experiment: Experiment, engine: Engine | None) -> Engine | None:
    """The engine of an asynchronous deployment asks clients one by one, unless a list of events sets their order."""
    rule = experiment.asynchrony
    if rule is None:
        return engine
    if engine is None:
        known = experiment.federation.problem.devices is not None or rule.events is not None
        require(known, "asynchrony", "given with devices, which say who arrives when", rule)
        return None
    plain = experiment.federation.algorithm.compress_down is None
    require(plain, "compress_down", "left out in an asynchronous deployment", experiment.federation.algorithm)
    return engine if rule.events is not None else AskedEngine(engine)


def _stopped(history: Sequence[RoundReport]) -> bool:
    return bool(history) and history[-1].stops


def _snapshot(run: Run, history: Sequence[RoundReport], state: State, number: int | None) -> Snapshot:
    """The state after a round (by default the last), with the position that its evaluation was made at."""
    last = len(history) - 1 if number is None else number
    # Schedules may follow the smoothed loss. It is not stored per round, so it is computed again from the reports.
    progress = Progress().after_rounds(history[:last])
    return Snapshot(last, state.shared, state.server, position(run, state._replace(progress=progress), last))


def _engine(experiment: Experiment, rounds: int) -> AbstractContextManager[Engine]:
    """Where the experiment's clients run for the rounds that are left."""
    return engine_for(
        experiment.federation,
        experiment.backend,
        experiment.workers,
        experiment.cluster,
        rounds if experiment.calibrates else None,
        experiment.worker_timeout,
        () if experiment.evaluation is None else (experiment.evaluation,),
    )


def _asked(history: Sequence[RoundReport]) -> Iterator[int]:
    """Clients that were sent a whole model in these rounds, whether or not they sent anything back."""
    for report in history:
        yield from report.clients
        yield from (failure.client for failure in report.failures if failure.reason not in (DROPPED, AWAY, LEFT))


def _start(
    experiment: Experiment,
    out: Path | None,
    resume: bool,
    commit_every: int,
    claimed: Callable[[Path], None] | None,
    as_planned: bool,
    same_kind: bool,
    real: bool,
) -> tuple[State, list[RoundReport], Store]:
    """The first state, or the one a stored run had reached."""
    federation = experiment.federation
    trained = select(experiment.first_shared, federation.stepped_names)
    secret = federation.policy.aggregator.secret() if federation.policy is not None else None
    state = State(experiment.first_shared, federation.algorithm.server.init(trained), secret=secret)
    if out is None:
        return state, [], MemoryStore()
    extend = functools.partial(check_extension, experiment, as_planned)
    here = Here(kind_here(federation.problem.device), experiment.rough_identity)
    store = DurableStore(out, experiment.identity(), resume, here, commit_every, claimed, extend)
    if secret is not None:
        # The key of the noise is in the database: only its owner may read it. SQLite gives its log the same mode.
        for part in out.glob(f"{DATABASE}*"):
            part.chmod(0o600)
    try:
        saved = store.load(state) or Saved(state, [])
        if resume and len(saved.history) < experiment.rounds and not _stopped(saved.history):
            _go_on(store, here.kind, len(saved.history), same_kind, private=secret is not None)
            if secret is not None and real:
                saved = _charged(saved, store)
    except BaseException:
        store.close()
        raise
    return saved.state, saved.history, store


def _go_on(store: DurableStore, kind: Mapping[str, str], done: int, same_kind: bool, private: bool) -> None:
    """Write down what the run goes on with. Another kind of processor is refused, or told in one line."""
    before = store.kinds.newest
    if before != kind:
        require_kind(before, kind, same_kind, private)
        LOGGER.warning("%s", move(before, kind, done))
    store.go_on(kind, done)


def _charged(saved: Saved, store: DurableStore) -> Saved:
    """The state of a resumed private deployment, charged for the means that it releases a second time.

    Clients may have seen the round that was cut short, and rounds that were committed and lost, and may answer them
    differently now. The charge is written at once: a server that is killed again in this round is charged again.
    """
    state = saved.state._replace(releases=saved.state.releases + 1 + saved.lost)
    store.restate(state)
    return saved._replace(state=state)


def drained(rounds: Generator[RoundReport, None, Result], *observers: Callable[[RoundReport], None]) -> Result:
    """Run a training generator to its end, show every report to the observers, and return the result."""
    with closing(rounds):  # an observer that raises leaves no lock and no worker behind
        while True:
            try:
                report = next(rounds)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            for observe in observers:
                observe(report)
