"""How a user is served: which phases it goes through before its model predicts."""

from __future__ import annotations

from typing import Any

from fedtempo.client.phase import Phase, length
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.federation import Federation
from fedtempo.params import submodule
from fedtempo.schedules import Now, Schedule, as_schedule
from fedtempo.transforms import identity


def served_phases(
    federation: Federation, protocol: Evaluation, now: Now, newcomers: bool
) -> tuple[tuple[Phase, ...], bool]:
    """The phases a user goes through before being served, and whether they start from the state as it was kept.

    New users are served as the algorithm says; so are existing ones where nothing is remembered (FedRecon).
    """
    algorithm = federation.algorithm
    if (newcomers or algorithm.memory.stateless) and algorithm.serving.newcomer_phases is not None:
        return algorithm.serving.newcomer_phases, False
    return (fine_tuning(federation, protocol, now),), True


def fine_tuning(federation: Federation, protocol: Evaluation, now: Now) -> Phase:
    """A plain supervised phase on the model the user is served with."""
    algorithm = federation.algorithm
    steps, epochs = protocol.steps, protocol.epochs
    if steps is None and epochs is None:
        epochs = 1
    model_phase = algorithm.serving.finetune_like
    kwargs: dict[str, Any] = {}
    if model_phase is not None:
        kwargs = {"objective": model_phase.objective, "enter": model_phase.enter}
    if protocol.trains == "head":
        kwargs["trains"] = submodule("head")
    return Phase(
        length(steps, epochs, minimum=0),
        _tuning_rate(federation, protocol, now),
        direction=identity,
        on=algorithm.serving.finetune_on,
        **kwargs,
    )


def _tuning_rate(federation: Federation, protocol: Evaluation, now: Now) -> Schedule:
    """The given rate, or the training rate of this round at its first step."""
    own = federation.algorithm.phases[0].lr
    if protocol.lr is not None:
        return as_schedule(protocol.lr)
    return own if protocol.decays else as_schedule(own.at(now))
