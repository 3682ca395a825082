"""The server's step on a mean upload. The step may be a user's own, so its result is checked."""

from __future__ import annotations

from typing import Any

from fedtempo.errors import FedTempoError, TrainingError, first_line
from fedtempo.federation.federation import Federation
from fedtempo.params import Params, add, all_finite, different_form, leaves, no_tensor_in, select
from fedtempo.schedules import Now
from fedtempo.server.step import Server
from fedtempo.server.sums import Aggregate
from fedtempo.training.state import State


def server_step(federation: Federation, state: State, aggregate: Aggregate, now: Now) -> State:
    """The state after the step; a model that is no longer finite stops the run at the last good round."""
    algorithm = federation.algorithm
    # The server's rule sees trained parameters only: Adam must not adapt to BatchNorm's statistics. Those are averaged.
    trained = select(state.shared, federation.stepped_names)
    moved, server = _moved(algorithm.server, trained, state.server, aggregate, now)
    buffers = aggregate.means.get("buffers", {})
    shared = {**state.shared, **moved, **add(select(state.shared, buffers), buffers)}
    if not all_finite(shared.values()):
        raise TrainingError(f"run stopped: the model is not finite after round {now.round}. Lower the learning rate.")
    return state._replace(shared=shared, server=server)


def _moved(server: Server, trained: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
    """What the server's step makes of the trained tensors: some or all of them, in the form that they had."""
    rule = "a function of (shared, state, aggregate, now) that returns (shared, state)"
    try:
        before = leaves(state, "state")
        moved, new = server.step(trained, state, aggregate, now)
        wrong = different_form({**trained, **moved}, trained)
        # A stored state is read in the form of the first one, so a state that grows would be cut off by a resume.
        other = no_tensor_in(new) or different_form(leaves(new, "state"), before)
    except FedTempoError:
        raise
    # The step may be the user's code and may raise anything. The error has to name it and the round.
    except Exception as error:
        what = f"{type(error).__name__} ({first_line(error)})"
        raise TrainingError(f"server.step must be {rule}. Got {what} in round {now.round}.") from error
    if wrong:
        kept = "tensors of the names, shapes and types that it was given"
        raise TrainingError(f"server.step must return {kept}. Got {wrong} in round {now.round}.")
    if other:
        kept = "a state of the names, shapes and types that server.init made"
        raise TrainingError(f"server.step must return {kept}. Got {other} in round {now.round}.")
    return moved, new
