"""A trial of a round, twice: clients and server make the same tensors of the same tensors again.

A function that counts its calls, or draws from an iterator, works and has no number of its own: what it returns depends
on how many clients this process has trained, and on how often the library has asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from fedtempo.client.gradients import by_autograd
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.errors import ConfigError, FedTempoError
from fedtempo.federation.costs import two_rows
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, leaves, select
from fedtempo.randomness import generators_kept, states_of_generators
from fedtempo.schedules import Now
from fedtempo.server.sums import BlockSum, Groups, mean
from fedtempo.tasks import Batch

NOTHING = "nothing: the same tensors of the same tensors, however often it is called"
DRAWS = "must be without random numbers of torch, numpy or Python, which no seed of the run can repeat"
Made = tuple[str, Params]
"""What must be repeated, in words, and the tensors that it made."""


def check_repeats(federation: Federation) -> None:
    """One step of every phase, the upload and the server's step give the same tensors the second time."""
    with generators_kept():
        before = states_of_generators()
        try:
            for (what, first), (_, second) in zip(_round(federation), _round(federation), strict=True):
                drew = states_of_generators() != before
                require_same(f"{what.partition(' must ')[0]} {DRAWS}" if drew else what, first, second)
        except FedTempoError:
            raise
        except Exception:  # in training it fails as well, with the round and the client in the message
            return


def require_same(what: str, first: Params, second: Params) -> None:
    """Refuse functions that made other tensors when they were called again."""
    if first.keys() != second.keys() or not all(repeated(first[name], second[name]) for name in first):
        reason = "" if what.endswith(DRAWS) else f" {NOTHING}"
        raise ConfigError(f"{what}{reason}. Got others the second time.")


def repeated(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same numbers but for rounding, however small they are."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    one, other = one.detach().double(), other.detach().double()
    largest = float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-5, atol=1e-5 * largest, equal_nan=True)


def _round(federation: Federation) -> Iterator[Made]:
    """What the first client and the server make in a round of one step a phase."""
    shared, client = federation.first_shared(), int(federation.problem.data.clients[0])
    state = federation.algorithm.server.init(select(shared, federation.stepped_names))
    received = Received(shared, federation.algorithm.server.extra(state))
    carry = federation.program.init(received, federation.first_personal(client, shared))
    yield "memory must start a round by functions that remember", _tensors(carry)
    (now,) = federation.problem.places(Now(samples=2, total_samples=2), np.array([client]))
    carry = _stepped(federation, received, carry, two_rows(federation, client), now)
    yield "phases must be made of functions that remember", _tensors(carry)
    groups, kept, _ = federation.program.finish(received, carry)
    yield "memory.final_state must be a function that remembers", kept
    yield "uploads.upload must be a function that remembers", leaves(groups, "")
    if groups:
        yield "server.step must be a function that remembers", _moved(federation, shared, state, groups)


def _stepped(federation: Federation, received: Received, carry: Carry, rows: Batch, now: Now) -> Carry:
    """The client after one step of every phase."""
    for stage in federation.program.stages:
        batch = rows
        if stage.phase.enter is not None:
            carry, batch = stage.enter(received, carry, {n: v for n, v in rows.items() if n != "_key"})
            batch = {**batch, **{n: v for n, v in rows.items() if n == "_key"}}
        carry, _ = stage.step(by_autograd, received, carry, batch, now)
    return carry


def _moved(federation: Federation, shared: Params, state: object, groups: Groups) -> Params:
    """The server's tensors and its state after this upload alone."""
    block = BlockSum(weight=1.0, clients=1)
    block.add_upload(groups)
    aggregate = mean(block, federation.algorithm.uploads.unweighted, federation.problem.dtype)
    trained, now = select(shared, federation.stepped_names), federation.problem.now(0, 1.0)
    moved, after = federation.algorithm.server.step(trained, state, aggregate, now)
    return {**moved, **leaves(after, "state")}


def _tensors(carry: Carry) -> Params:
    return leaves(carry._asdict(), "")
