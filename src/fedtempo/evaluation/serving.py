"""How a user is served: which phases its model goes through before it predicts.

By default fine-tuning does what the algorithm does in training: the same optimizer, objective and trained tensors. What
the evaluation protocol sets (a length, a rate, the tensors) replaces that, for existing and for new users alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.client.objectives import supervised
from fedtempo.client.phase import Length, Phase, length
from fedtempo.client.transforms import is_identity
from fedtempo.evaluation.protocol import Evaluation, Scores
from fedtempo.federation.federation import Federation
from fedtempo.params import Selector, everything, submodule
from fedtempo.schedules import Now, Schedule, as_schedule
from fedtempo.schedules.follows import at_first_step
from fedtempo.schedules.stages import counts_steps


class Served(NamedTuple):
    """How a user's model is made."""

    phases: tuple[Phase, ...]
    as_kept: bool
    """Whether to start from the state that the client holds, without what the algorithm does to it in a round."""


def served_phases(federation: Federation, protocol: Evaluation, newcomers: bool) -> Served:
    """The phases a user goes through before being served.

    New users are served as the algorithm prescribes. So are existing users of an algorithm that keeps no state at
    clients (FedRecon). All others fine-tune the model that they hold.
    """
    algorithm = federation.algorithm
    own = algorithm.serving.newcomer_phases
    if (newcomers or algorithm.memory.stateless) and own is not None:
        return Served(tuple(_as_protocol_says(federation, phase, protocol, phase.length) for phase in own), False)
    phase = fine_tuning(federation, protocol)
    return Served((phase,), phase.after is None)


def serves_as_held(served: Served, now: Now) -> bool:
    """Whether users are served with the model that they hold, as it is: `Evaluation(steps=0)`."""
    lengths = [(phase.length.units(now), phase.length.offset, phase.enter) for phase in served.phases]
    return served.as_kept and all(length == (0, 0, None) for length in lengths)


def fine_tuning(federation: Federation, protocol: Evaluation) -> Phase:
    """One epoch of the algorithm's own local steps, unless the protocol says otherwise."""
    model_phase = _own_phase(federation.algorithm)
    hooks = tuple(hook.in_fine_tuning(protocol.decays) for hook in model_phase.hooks)
    plain = replace(model_phase, on=federation.algorithm.serving.finetune_on, hooks=hooks)
    return _as_protocol_says(federation, plain, protocol, length(epochs=1))


def _own_phase(algorithm: Algorithm) -> Phase:
    """The phase that fine-tuning follows: the one named for it, the newcomers', or the first on the served tensors."""
    serving = algorithm.serving
    if serving.finetune_like is not None:
        return serving.finetune_like
    if serving.newcomer_phases:
        return serving.newcomer_phases[-1]
    served = [p for p in algorithm.phases if p.on == serving.finetune_on or "both" in (p.on, serving.finetune_on)]
    return (served or list(algorithm.phases))[0]


def _as_protocol_says(federation: Federation, phase: Phase, protocol: Evaluation, own_length: Length) -> Phase:
    """The phase with the length, rate and tensors that the protocol sets."""
    given = protocol.steps is not None or protocol.epochs is not None
    return replace(
        phase,
        length=length(protocol.steps, protocol.epochs, minimum=0) if given else own_length,
        lr=_rate(federation, phase, protocol),
        hooks=phase.hooks if protocol.lr is None else tuple(hook.at_own_rate() for hook in phase.hooks),
        counts_earlier=False,
        trains=_trains(phase, protocol),
    )


def _rate(federation: Federation, phase: Phase, protocol: Evaluation) -> Schedule:
    """The protocol's rate, or the phase's own rate at its first step, constant over all steps unless `decays`."""
    if protocol.lr is not None:
        return as_schedule(protocol.lr)
    own = phase.lr
    if own.name == "constant":
        return own
    batching, counts = phase.batching(federation.problem.batching), counts_steps(own)

    def rule(now: Now) -> float:
        if counts:  # the steps of training, not of fine-tuning, say how far the run is
            _, rows = phase.rows(now.samples)
            now = replace(now, earlier=phase.length.steps_before(now, rows, batching))
        # One step of one: a rate that makes up for later, smaller steps has none to make up for.
        return own.at(now if protocol.decays else replace(now, step=0, steps=1, epoch=0, ends_epoch=False))

    if protocol.decays and not counts:
        return own
    named = own if protocol.decays else at_first_step(own)
    return Schedule(named.name, named.settings, rule)


def _trains(phase: Phase, protocol: Evaluation) -> Selector:
    if protocol.trains is None:
        return phase.trains
    head = submodule("head")
    return {"all": everything, "head": head, "body": ~head}[protocol.trains]


def fine_tuning_in_words(federation: Federation, protocol: Evaluation) -> str:
    """One line that says how users are fine-tuned: existing users and, if it differs, new users."""
    existing, new = (
        " then ".join(map(_in_words, served_phases(federation, protocol, newcomers).phases))
        for newcomers in (False, True)
    )
    if existing == new or not len(federation.problem.data.held_out):
        return existing
    return f"{existing}; new users: {new}"


def _in_words(phase: Phase) -> str:
    count = phase.length
    number = f"{count.times} x " if count.times != 1 else ""
    units = _schedule_in_words(count.count)
    amount = f"{number}{units} {count.unit.removesuffix('s') if units == '1' else count.unit}"
    parts = [f"{amount} at lr {_schedule_in_words(phase.lr)} on {phase.trains!r}"]
    if phase.objective is not supervised:
        # A callable object has no name of its own unless it says one.
        of_function = getattr(phase.objective, "__qualname__", type(phase.objective).__name__).split(".")[0]
        parts.append(f"objective {getattr(phase.objective, 'name', of_function)}")
    if not is_identity(phase.direction):
        rates = ", ".join(f"{name} {_schedule_in_words(rate)}" for name, rate in phase.direction.schedules)
        parts.append(f"the algorithm's own direction{f' ({rates})' if rates else ''}")
    return ", ".join(parts)


def _schedule_in_words(schedule: Schedule) -> str:
    return f"{schedule.settings['value']:g}" if schedule.name == "constant" else repr(schedule)


CLEARLY = 2.0
"""Standard errors over users by which fine-tuning must lower the mean before it counts as harm."""


def harm(scores: Scores) -> tuple[float, float] | None:
    """The means before and after where fine-tuning made existing users clearly worse; None where it did not."""
    seen = scores.existing_after.samples > 0
    before, after = (s.values[scores.metric][seen] for s in (scores.existing_before, scores.existing_after))
    both = np.isfinite(before) & np.isfinite(after)  # a model that has diverged is told by its own score
    before, after = before[both], after[both]
    loss = (after - before) if scores.lower_is_better else (before - after)
    loss = loss[np.isfinite(loss)]
    if len(loss) < 2:
        return None
    error = float(loss.std(ddof=1)) / len(loss) ** 0.5
    worse = float(loss.mean()) > max(CLEARLY * error, 0.01 * abs(float(np.nanmean(before))))
    return (float(np.nanmean(before)), float(np.nanmean(after))) if worse else None
