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
from fedtempo.federation.costs import StageFlops, measured_stages
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, add, different_form, leaves, no_tensor_in, select, zeros_like
from fedtempo.randomness import generators_kept, states_of_generators
from fedtempo.schedules import Now
from fedtempo.server.step import Server
from fedtempo.support.user_errors import place_of
from fedtempo.training.checks.repeats import check_repeats, repeated, require_same

KERNEL = "a function of (gradient, decay, state, parameters, now, rate) that returns a state or None"
DIRECTION = "a function of (gradient, state, parameters, now) that returns (direction, state)"


def check_functions(federation: Federation) -> list[StageFlops]:
    """Every function of the algorithm that a client's round calls runs on this model, and returns what it should.

    Returns the operations of every stage, which the trial of a step counts.
    """
    with generators_kept():
        operations = _try_one_round(federation)
    check_repeats(federation)
    return operations


def _try_one_round(federation: Federation) -> list[StageFlops]:
    shared, memory = federation.first_shared(), federation.algorithm.memory
    client = int(federation.problem.data.clients[0])
    with _trial("server.init and server.extra", "functions of the trained tensors, and of the state made of them"):
        received = Received(shared, federation.first_extra(shared))
        trained = select(shared, federation.stepped_names)
        _require_state("the state of server.init", federation.algorithm.server.init(trained))
    with _trial("server.model", "a function of (shared, state) that returns tensors by name"):
        _check_served(federation.algorithm.server, shared, trained)
    for stage in federation.program.stages:
        _check_first_state(stage, trained)
    with _trial("memory.initial_state", "a function of (shared, names) that returns tensors by name"):
        own = federation.first_personal(client, shared)
        _require_state("what memory.initial_state returns", own)
    rule = "a function of (received, personal) that returns (personal, scratch)"
    given = [*received, own]
    with _trial("memory.begin", rule, given):
        carry = federation.program.init(received, own)
        _require_state("what memory.begin returns", (carry.personal, carry.scratch))
        _require_state("the state of a phase's rule, init,", carry.states)
    (now,) = federation.problem.places(Now(samples=2, total_samples=2), np.array([client]))
    for stage in federation.program.stages:
        _check_directions(stage, carry, now)
    rule = "made of functions that run on the model, such as an objective that returns a Value"
    with _trial("phases", rule, given, may_draw=federation.problem.draws_masks):
        operations = measured_stages(federation, shared, received.extra)
    rule = "a function of (received, carry) that returns tensors by name"
    given += [carry.shared, carry.personal]
    with _trial("memory.final_state", rule, given):
        kept = memory.final_state(seen(received, carry), carry)
        _require_tensors("memory.final_state", rule, kept)
        lost = sorted(federation.personal_names - set(kept))
        if lost:
            raise ConfigError(f"memory.final_state must return the personal tensors too. Got nothing for {lost[0]!r}.")
    rule = "a function of (received, carry) that returns tensors by group, 'delta' among them"
    with _trial("uploads.upload", rule, given):
        federation.program.finish(received, carry)
        _ = federation.expected
    return operations


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


def _check_first_state(stage: Stage, trained: Params) -> None:
    """What an optimizer begins with are tensors: other values could be neither stored nor computed side by side."""
    optimizer = stage.phase.optimizer
    field = f"optimizer {optimizer.name!r}, init"
    with _trial(field, "a function of the trained tensors that returns a state", (trained,)):
        _require_state(f"the state of {field}", optimizer.transform.init(trained))


def _require_state(field: str, state: object) -> None:
    wrong = no_tensor_in(state)
    if wrong:
        rule = "tensors alone, in dicts, lists or tuples: torch.zeros(()) for a count, () for nothing"
        raise ConfigError(f"{field} must hold {rule}. Got {wrong}.")


def _check_transform(field: str, transform: Transform, state: Any, trained: Params, now: Now) -> None:
    if is_identity(transform):
        return
    with _trial(f"{field}, update", DIRECTION, (trained,)):
        _require_state(f"the state of {field}", state)
        before = {name: torch.empty_like(value) for name, value in leaves(state, "").items()}
        direction, after = transform.update(zeros_like(trained), state, trained, now)
        _require_tensors(f"{field}, update", DIRECTION, direction)
        wrong = different_form(direction, trained)
        if wrong:
            raise ConfigError(f"{field}, update must return a direction of the gradient's form. Got {wrong}.")
        _require_state(f"the state of {field}, update,", after)
        wrong = different_form(leaves(after, ""), before)
        if wrong:
            raise ConfigError(f"{field}, update must return a state of the form that init made. Got {wrong}.")
    with _trial(f"{field}, update", DIRECTION, (trained,)):
        # Of zeros most functions make zeros, whatever they remember. Each call has a state of its own to write into.
        ones = {name: torch.ones_like(value) for name, value in trained.items()}
        calls = (transform.update(ones, transform.init(trained), trained, now) for _ in range(2))
        first, second = ({**direction, **leaves(after, "state")} for direction, after in calls)
        require_same(f"{field}, update must be a function that remembers", first, second)
    if transform.one_pass is not None:
        with _trial(f"{field}, one_pass", KERNEL, (trained,)):
            _check_one_pass(field, transform, trained, now)


def _check_one_pass(field: str, transform: Transform, trained: Params, now: Now) -> None:
    """A step in one pass leads where `update` leads, weights and state: another backend takes the other way."""
    assert transform.one_pass is not None
    rate, gradient = 0.5, {name: torch.full_like(value, 0.1) for name, value in trained.items()}
    for decay in (0.0, 0.25):
        params = {name: value.clone() for name, value in trained.items()}
        new = transform.one_pass(dict(gradient), decay, transform.init(trained), params, now, rate)
        direction, after = transform.update(add(gradient, trained, decay), transform.init(trained), trained, now)
        expected = add(trained, direction, -rate) if new is not None else trained
        found, wanted = leaves(() if new is None else new, "state"), leaves(() if new is None else after, "state")
        same = found.keys() == wanted.keys() and all(repeated(found[name], wanted[name]) for name in wanted)
        if not same or not all(repeated(params[name], expected[name]) for name in trained):
            what = f"other weights or another state for decay {decay:g} and rate {rate:g}"
            raise ConfigError(
                f"{field}, one_pass must step as update does, or write nothing and return None. Got {what}."
            )


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
