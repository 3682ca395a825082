"""A trial of an algorithm's functions before training: one client takes a step of every phase and makes its upload.

Each function may be the user's code. It may raise anything, and it may return what looks right and is not: a direction
that leaves a tensor out would train the others without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fedtempo.client.local_step import seen
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.client.program import Stage
from fedtempo.client.transforms import Transform, is_identity
from fedtempo.errors import ConfigError, FedTempoError, first_line, require
from fedtempo.federation.costs import measured_stages
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, different_form, select, zeros_like
from fedtempo.randomness import generators_kept, states_of_generators
from fedtempo.schedules import Now
from fedtempo.server.step import Server
from fedtempo.support.user_errors import place_of

DIRECTION = "a function of (gradient, state, parameters, now) that returns (direction, state)"


def check_functions(federation: Federation) -> None:
    """Every function of the algorithm that a client's round calls runs on this model, and returns what it should."""
    with generators_kept():
        _try_one_round(federation)


def _try_one_round(federation: Federation) -> None:
    shared, memory = federation.first_shared(), federation.algorithm.memory
    client = int(federation.problem.data.clients[0])
    with _trial("server.init and server.extra", "functions of the trained tensors, and of the state made of them"):
        received = Received(shared, federation.first_extra(shared))
    with _trial("server.model", "a function of (shared, state) that returns tensors by name"):
        _check_served(federation.algorithm.server, shared, select(shared, federation.stepped_names))
    with _trial("memory.initial_state", "a function of (shared, names) that returns tensors by name"):
        own = federation.first_personal(client, shared)
    rule = "a function of (received, personal) that returns (personal, scratch)"
    given = [*received, own]
    with _trial("memory.begin", rule, given):
        carry = federation.program.init(received, own)
    (now,) = federation.problem.places(Now(samples=2, total_samples=2), np.array([client]))
    for stage in federation.program.stages:
        _check_directions(stage, carry, now)
    rule = "made of functions that run on the model, such as an objective that returns a Value"
    with _trial("phases", rule, given, may_draw=federation.problem.draws_masks):
        measured_stages(federation, shared, received.extra)
    rule = "a function of (received, carry) that returns tensors by name"
    given += [carry.shared, carry.personal]
    with _trial("memory.final_state", rule, given):
        _require_tensors("memory.final_state", rule, memory.final_state(seen(received, carry), carry))
    rule = "a function of (received, carry) that returns tensors by group, 'delta' among them"
    with _trial("uploads.upload", rule, given):
        federation.program.finish(received, carry)
        _ = federation.expected


def _check_served(server: Server, shared: Params, trained: Params) -> None:
    """What is served instead of shared tensors has their names, shapes and types."""
    wrong = different_form({**shared, **server.model(shared, server.init(trained))}, shared)
    if wrong:
        raise ConfigError(f"server.model must return shared tensors in their form. Got {wrong}.")


def _check_directions(stage: Stage, carry: Carry, now: Now) -> None:
    """What a phase makes of a gradient of zeros has the gradient's names, shapes and types."""
    trained, _ = stage.split(carry)
    state = carry.states[stage.number]
    _check_transform("phases[...].direction", stage.phase.direction, state.direction, trained, now)
    optimizer = stage.phase.optimizer
    _check_transform(f"optimizer {optimizer.name!r}", optimizer.transform, state.optimizer, trained, now)


def _check_transform(field: str, transform: Transform, state: Any, trained: Params, now: Now) -> None:
    if is_identity(transform):
        return
    with _trial(f"{field}, update", DIRECTION, (trained,)):
        direction, _ = transform.update(zeros_like(trained), state, trained, now)
        _require_tensors(f"{field}, update", DIRECTION, direction)
        wrong = different_form(direction, trained)
        if wrong:
            raise ConfigError(f"{field}, update must return a direction of the gradient's form. Got {wrong}.")


def _require_tensors(field: str, rule: str, found: object) -> None:
    holds = isinstance(found, Mapping) and all(isinstance(t, torch.Tensor) for t in found.values())
    require(holds, field, rule, found)


@contextmanager
def _trial(field: str, rule: str, given: Sequence[Params] = (), may_draw: bool = False) -> Iterator[None]:
    """Report what goes wrong inside as a wrong setting; a line of the user's code is named.

    `given` are tensors that the code must not write over: they belong to all clients, or to a stored state.
    """
    before, written = states_of_generators(), _writes(given)
    try:
        yield
    except FedTempoError:
        raise
    except Exception as error:
        what = f"{type(error).__name__} ({first_line(error)}){place_of(error)}"
        raise ConfigError(f"{field} must be {rule}. Got {what}.") from error
    if not may_draw and states_of_generators() != before:
        reason = "without random numbers of torch, numpy or Python, which no seed of the run can repeat"
        raise ConfigError(f"{field} must be {reason}. Got draws.")
    changed = [name for (name, old), (_, new) in zip(written, _writes(given), strict=True) if new != old]
    if changed:
        reason = "leave the tensors that it is given as they are, and return others"
        raise ConfigError(f"{field} must {reason}. Got a write into {changed[0]!r}.")


def _writes(given: Sequence[Params]) -> list[tuple[str, int]]:
    """How often each of these tensors has been written over."""
    return [(name, tensor._version) for tensors in given for name, tensor in tensors.items()]
