"""Whether `vmap` can run a model: two clients take one step side by side, and their models predict."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from fedtempo.backends import vectorised
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Length
from fedtempo.errors import first_line
from fedtempo.federation.federation import Federation
from fedtempo.params import Params
from fedtempo.schedules import constant

LONGEST_REASON = 160
DEPENDS = "what it computes depends on the data"


def why_not_vectorised(federation: Federation, shared: Params) -> str | None:
    """None if clients can run side by side; otherwise the reason, in one line.

    Data-dependent control flow and packed sequences cannot: `vmap` runs one program for all clients. The smallest
    clients are tried, so this costs two small batches.
    """
    problem = federation.problem
    clients = problem.data.clients
    two = np.sort(clients[np.argsort(problem.sizes[clients], kind="stable")[:2]])
    received = Received(shared, federation.first_extra(shared))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about slow paths that are not taken then
            _try(federation, received, two)
    except Exception as error:  # the model is the user's code; serial code says it better if the model is at fault
        reason = first_line(error.__cause__ or error)
        return DEPENDS if reason.startswith("vmap: It looks like") else reason[:LONGEST_REASON]
    return None


def _try(federation: Federation, received: Received, two: np.ndarray) -> None:
    problem, shared = federation.problem, received.shared
    short = tuple(replace(phase, length=Length(constant(1))) for phase in federation.algorithm.phases)
    program = federation.compile(short, uploads=True)
    personal = [federation.first_personal(client, shared) for client in two.tolist()]
    for trained in vectorised.train(problem, program, received, problem.now(0, 1.0), two, personal):
        rows = problem.rows(two, np.zeros((len(two), 1), dtype=np.int64))
        trained.each(
            lambda carry, batch: federation.algorithm.serving.predict(
                problem.network, carry.shared, carry.personal, batch, False
            ),
            rows,
        )
