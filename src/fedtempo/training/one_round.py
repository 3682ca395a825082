"""One round, from the choice of its clients to its report: who is asked, what they train from, what comes of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedtempo.backends import Block, Engine, Order
from fedtempo.client.objectives import Received
from fedtempo.federation.costs import Ledger
from fedtempo.federation.traffic import compress_download
from fedtempo.params import Params
from fedtempo.schedules import Now
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport
from fedtempo.training.server_round import begun, conclude, norm_limit, participants
from fedtempo.training.state import State
from fedtempo.training.storage.in_memory import Store


def next_round(
    experiment: Experiment, state: State, engine: Engine, store: Store, ledger: Ledger, now: Now, real: bool
) -> tuple[State, dict[int, Params], RoundReport]:
    """The state after one more round, what its clients keep, and its report; `real` clients have their own clock."""
    federation, server = experiment.federation, experiment.federation.algorithm.server
    now = begun(experiment, now, real)
    if experiment.partial_work and not real:
        now = replace(now, deadline=experiment.deadline or 0.0)

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
    state, personal, report = conclude(experiment, state, block, cohort, now, ledger, kept_by)
    if not federation.algorithm.memory.absent_train or report.abandoned:
        return state, personal, report
    # What absent clients send is thrown away here. The model goes down to them too; costs count the cohort alone.
    absent = np.setdiff1d(federation.problem.data.clients, cohort.clients)
    others = engine.train(order, blocks_of(experiment, store, absent, on_nodes=real))
    return state, {**others.personal, **personal}, report


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
    nothing = experiment.federation.keeps_nothing(experiment.first_shared)
    for start in range(0, len(clients), experiment.block):
        together = clients[start : start + experiment.block]
        kept = [] if nothing else [state_of(experiment, store, client, newer) for client in together.tolist()]
        aside = bool(kept) and on_nodes and store.selected is not None
        selected = [store.get(client, selected=True) or {} for client in together.tolist()] if aside else []
        yield Block(together, kept, selected)


def state_of(experiment: Experiment, store: Store, client: int, newer: Mapping[int, Params] | None = None) -> Params:
    """What a client keeps: the newest there is, or what it starts with."""
    kept = newer[client] if newer is not None and client in newer else store.get(client)
    return experiment.federation.personal_state(client, experiment.first_shared, kept)
