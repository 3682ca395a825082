"""Checks before training: everything that can be wrong is found now, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedtempo.algorithms.parts.rate_rules import CENTRE, HISTORY
from fedtempo.client.phase import Phase
from fedtempo.errors import ConfigError, FedTempoError, first_line, is_count, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.serving import served_phases
from fedtempo.federation.federation import Federation
from fedtempo.params import submodule
from fedtempo.schedules import Now, Schedule, at_step, whole_number
from fedtempo.server.cohort import Cohort
from fedtempo.server.robust import ROBUST, plain_mean

MOST = 1_000_000_000
"""The largest count that makes sense for rows of a batch and clients."""
MOST_ROUNDS = 1_000_000_000
"""The most rounds of a run, for calls, experiment files and commands."""
MOST_STEPS = 1_000_000
"""The most local steps or epochs of a phase in one round; every step is planned before it is taken."""
SOME_CLIENTS = 4
MANY_CLIENTS = 10_000
"""As many clients are asked for the rates of a first step."""
Found = tuple[str, Now, float]
"""The name of a schedule, where it was asked, and its number there."""


def check_rounds(rounds: int) -> None:
    """Rounds are counted from one up."""
    require(is_count(rounds) and rounds <= MOST_ROUNDS, "rounds", f"an int in [1, {MOST_ROUNDS}]", rounds)


def check_cohort(rule: Cohort, federation: Federation, rounds: int) -> None:
    """Every round's cohort can be drawn; cohorts that were written down name training clients, each once."""
    clients = federation.problem.data.clients

    def of_round(round_number: int) -> Iterator[Found]:
        now = federation.problem.now(round_number, 1.0)
        expected = _expected(rule, now, len(clients))
        require(0 < expected <= len(clients), "cohort", f"at most {len(clients)} (the training clients)", expected)
        if rule.lists:
            rule.members(clients, now, federation.problem.seed)
        yield "cohort", now, expected

    _check_repeats(range(min(rounds, 10_000)) if rule.lists else sampled_rounds(rounds), of_round)
    if not rule.is_ours:
        _check_own_rule(rule, federation, rounds)


def _expected(rule: Cohort, now: Now, clients: int) -> float:
    """How many clients a round is expected to have, by a number of ours or a function of the user's."""
    try:
        return rule.expected(now, clients)
    except FedTempoError:
        raise
    except Exception as error:  # the user's code may raise anything
        form = "a number, a function of now that returns one, or an ft.cohort.Cohort that chooses clients"
        what = f"{type(error).__name__} in round {now.round}: {first_line(error)}"
        raise ConfigError(f"cohort must be {form}. Got {rule.description}: {what}.") from error


def _check_own_rule(rule: Cohort, federation: Federation, rounds: int) -> None:
    """A cohort's rule of the user's own can be run, and chooses the same for the same seed and round."""
    clients, seed = federation.problem.data.clients, federation.problem.seed
    # The first two rounds come again after the last: a rule that remembers calls or rounds chooses others by then.
    early = list(range(min(rounds, 2)))
    asked = (*early, rounds - 1, *early, *early)
    try:
        chosen = [rule.members(clients, federation.problem.now(number, 1.0), seed) for number in asked]
    except FedTempoError:
        raise
    except Exception as error:  # the user's code may raise anything
        form = "function of (clients, now, seed, over) that returns some of the clients"
        raise ConfigError(
            f"the cohort {rule.description!r} must choose by a {form}. Got {type(error).__name__}: {first_line(error)}."
        ) from error
    again = "the same clients for the same seed and round: np.random.default_rng([seed, now.round])"
    first = dict(zip(reversed(asked), reversed(chosen), strict=True))
    same = all(np.array_equal(members, first[number]) for number, members in zip(asked, chosen, strict=True))
    require(same, f"what the cohort {rule.description!r} chooses", again, "others")


def check_uploads_suffice(rule: Cohort, federation: Federation, rounds: int) -> None:
    """Every round's cohort is large enough for the aggregator. That fewer may answer is what the quorum is for."""
    if federation.policy is None:
        return
    aggregator, clients = federation.policy.aggregator, len(federation.problem.data.clients)
    for round_number in sampled_rounds(rounds):
        expected = rule.expected(federation.problem.now(round_number, 1.0), clients)
        enough = expected >= aggregator.fewest or aggregator.fewest == 1
        require(enough, "cohort", f"at least {aggregator.fewest} in every round for {aggregator!r}", expected)


def check_protocol(protocol: Evaluation | None) -> None:
    """How users are scored is a protocol, or nobody is scored."""
    rule = "an ft.Evaluation, such as ft.Evaluation(every=5), or None"
    require(protocol is None or isinstance(protocol, Evaluation), "evaluation", rule, protocol)


def check_evaluation(protocol: Evaluation | None, federation: Federation, rounds: int = 1) -> None:
    """Fine-tuning can be run on this model, and its rate is a rate in every round that is scored."""
    if protocol is None:
        return
    validates = bool(federation.problem.data.sizes("validation").any())
    rule = "left out where no rows are for validation: nothing says that a round is better"
    require(protocol.patience is None or validates, "evaluation.patience", rule, protocol.patience)
    whole = protocol.trains != "body" or bool(submodule("head").names(federation.problem.model))
    require(whole, "evaluation.trains", "'all' for a model without a submodule 'head'", protocol.trains)
    first, data = federation.problem.now(0, 1.0), federation.problem.data
    asked = [number for number in sampled_rounds(rounds) if protocol.due(number, rounds)]
    try:
        for newcomers in (False, True):
            phases, as_kept = served_phases(federation, protocol, newcomers)
            federation.compile(phases, as_kept=as_kept)
            users = data.held_out if newcomers and len(data.held_out) else data.clients
            places = _places(federation, first, users[:SOME_CLIENTS])
            _check_repeats(asked, partial(_of_phases, federation, phases, places))
            others = _places(federation, first, users[:MANY_CLIENTS]) - places
            _check_first_steps(federation, phases, others, asked[0])
    except ConfigError as error:
        raise ConfigError(f"evaluation: {error}") from error


def check_schedules(federation: Federation, rounds: int, cohort: float) -> None:
    """Every rate is finite and not negative in every round, and every phase has its steps."""
    first, clients = federation.problem.now(0, cohort), federation.problem.data.clients
    _check_parts_of_epochs(federation)
    _check_planned_rounds(federation, rounds)
    # Where schedules can tell clients apart, some clients stand for all in every round, and all are asked once.
    places = _places(federation, first, clients[:SOME_CLIENTS])
    _check_repeats(sampled_rounds(rounds), lambda number: _of_round(federation, replace(first, round=number), places))
    others = _places(federation, first, clients[:MANY_CLIENTS]) - places
    _check_first_steps(federation, _phases(federation), others, round_number=0)


def _check_parts_of_epochs(federation: Federation) -> None:
    """Less than an epoch is drawn at random: in order, every round would train on the same first rows."""
    sizes = federation.problem.sizes[federation.problem.data.clients]
    for phase in _phases(federation):
        batching, length = phase.batching(federation.problem.batching), phase.length
        part = length.unit == "epochs" and length.count.is_constant and 0 < length.count.settings["value"] < 1
        if part and batching.mode == "in_order" and batching.per_epoch(int(sizes.max(initial=1))) > 1:
            rule = "at least 1 where batches come in order, as every round would train on the same first rows"
            raise ConfigError(f"epochs must be {rule}. Got {length.count.settings['value']}.")


def _check_planned_rounds(federation: Federation, rounds: int) -> None:
    """A schedule that ends with the run ends with this run."""
    named = [pair for phase in _phases(federation) for pair in phase.schedules]
    for name, schedule in (*named, *federation.algorithm.server.schedules):
        for part in schedule.parts():
            if part.name == "wsd" and part.settings["over"] == "round" and part.settings["rounds"] != rounds:
                rule = f"planned for the run's rounds ({rounds}): wsd(..., rounds={rounds})"
                raise ConfigError(f"{name} must be {rule}. Got rounds={part.settings['rounds']}.")


def _places(federation: Federation, now: Now, clients: np.ndarray) -> set[Now]:
    """Where these clients stand, with the sizes that schedules see in training."""
    problem = federation.problem
    if not problem.sees_clients:
        return set(problem.places(now, clients))
    sizes = problem.sizes[clients].tolist()
    return {replace(at, samples=size) for at, size in zip(problem.places(now, clients), sizes, strict=True)}


def _phases(federation: Federation) -> list[Phase]:
    phases = federation.algorithm.phases
    return [*phases, *(phase.beside.phase for phase in phases if phase.beside is not None)]


def _check_repeats(asked: Sequence[int], numbers_of: Callable[[int], Iterator[Found]]) -> None:
    """Ask for the numbers of every round, and again for those of the first two."""
    found = {number: list(numbers_of(number)) for number in asked[:2]}
    for number in asked[2:]:
        for _ in numbers_of(number):
            pass
    # A function that remembers calls or rounds has other numbers by now.
    for number, numbers in found.items():
        for (name, now, value), (_, _, again) in zip(numbers, numbers_of(number), strict=False):
            if again != value:
                rule = "the same number whenever it is asked for a round and step: a function that remembers nothing"
                what = f"{value}, then {again} at round {number}, step {now.step}"
                raise ConfigError(f"{name} must be {rule}. Got {what}.")


def _of_phases(
    federation: Federation, phases: Iterable[Phase], places: Iterable[Now], round_number: int
) -> Iterator[Found]:
    """All numbers of a round's local steps that schedules give, checked."""
    for place in places:
        for phase in phases:
            yield from _check_phase(phase, replace(place, round=round_number), _largest(federation))


def _check_first_steps(
    federation: Federation, phases: Sequence[Phase], places: Iterable[Now], round_number: int
) -> None:
    for place in places:
        for phase in phases:
            for _ in _check_phase(phase, replace(place, round=round_number), _largest(federation), steps=1):
                pass


def _of_round(federation: Federation, now: Now, places: Iterable[Now]) -> Iterator[Found]:
    """All numbers of a round that schedules give, checked."""
    yield from _of_phases(federation, _phases(federation), places, now.round)
    for name, schedule in federation.algorithm.server.schedules:
        yield _check_rate(name, schedule, now, _largest(federation))


def check_personal(federation: Federation) -> None:
    """An algorithm whose model has personal tensors steps on the whole model, and tells them from the shared ones."""
    algorithm, names = federation.algorithm, federation.personal_names
    if not names:
        return
    apart = [phase.on for phase in _phases(federation) if phase.on != "both" and not phase.own]
    # Torch would fill the gap in such a model with the module's own weights, which nobody trains.
    rule = f"left out for {algorithm.name}: its phases are on {' and '.join(sorted(set(apart)))} tensors alone"
    require(not apart, "personal", rule, algorithm.personal)
    rule = f"left out for {algorithm.name}: it sets {CENTRE}, personal ones too"
    require(CENTRE not in algorithm.owns, "personal", rule, algorithm.personal)


def check_aggregator(federation: Federation) -> None:
    """A robust aggregator sees all that clients send, every client counts alike, and no memory needs the plain mean."""
    aggregator = plain_mean if federation.policy is None else federation.policy.aggregator
    if aggregator == plain_mean:
        return
    algorithm = federation.algorithm
    rule = f"the plain mean for {algorithm!r}"
    require(HISTORY not in algorithm.owns, "aggregator", f"{rule}: its server adds up what clients sent", aggregator)
    others = sorted(set(federation.expected) - set(ROBUST))
    if not aggregator.private:  # what a private mean refuses has messages of its own
        sent = ", ".join(map(repr, others))
        require(not others, "aggregator", f"{rule} on this model: clients also send {sent}", aggregator)
        uniform = aggregator.combine is None or algorithm.weighting == "uniform"
        require(
            uniform, "weighting", f"'uniform' for {aggregator!r}, which counts every client alike", algorithm.weighting
        )


def sampled_rounds(rounds: int) -> list[int]:
    """The first rounds, and some of the later ones where there are many."""
    return sorted({*range(min(rounds, 200)), *np.linspace(0, rounds - 1, 200, dtype=int).tolist()})


def _largest(federation: Federation) -> float:
    return float(torch.finfo(federation.problem.dtype).max)


def _check_phase(phase: Phase, now: Now, largest: float, steps: int = 1000) -> Iterator[Found]:
    unit = phase.length.unit
    units = _number(unit, now, lambda: phase.length.units(now)) * phase.length.times
    require(units <= MOST_STEPS, f"{unit} in round {now.round}", f"at most {MOST_STEPS}", units)
    yield unit, now, units
    whole = max(whole_number(units), 1)
    for step in range(min(whole, steps)):
        here = at_step(now, step, whole, 1)
        for name, schedule in phase.schedules:
            yield _check_rate(name, schedule, here, largest)


def _check_rate(name: str, schedule: Schedule, now: Now, largest: float) -> Found:
    value = _number(name, now, lambda: schedule.at(now))
    lowest = "above 0" if name == "max_norm" else "at least 0"
    if value < 0 or (value == 0 and name == "max_norm"):
        raise ConfigError(f"{name} must be {lowest}. Got {value} at {_where(now)}.")
    if value > largest:
        raise ConfigError(f"{name} must be at most {largest:.3g}, the largest of its dtype. Got {value}.")
    return name, now, value


def _number(name: str, now: Now, rule: Callable[[], Any]) -> Any:
    """The value of a schedule. An error in it is reported now, with its name, and not in the middle of the run."""
    try:
        return rule()
    except FedTempoError:
        raise
    except Exception as error:
        what = f"{type(error).__name__} ({first_line(error)}) at {_where(now)}"
        raise ConfigError(f"{name} must be a number in every round. Got {what}.") from error


def _where(now: Now) -> str:
    client = "" if now.client < 0 else f", for client {now.client} of {now.samples} rows"
    return f"round {now.round}, step {now.step}{client}"
