"""FedSpeed: FedDyn's pull with a gradient taken where the loss is higher."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Serving, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.fedsam import POINT, ascending
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.displacement_history import history_memory, longer_history, pulled
from fedtempo.algorithms.parts.history_server import with_history
from fedtempo.algorithms.parts.rate_rules import CENTRE, HISTORY
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Hook
from fedtempo.errors import require
from fedtempo.params import add, subtract
from fedtempo.schedules import Rate, checked_rate
from fedtempo.server.sums import Groups


@named
def fedspeed(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    pull: Rate = 0.1,
    rho: Rate = 0.1,
    alpha: float = 1.0,
    normalised: bool = True,
    max_norm: Rate | None = None,
    history: Literal["participants", "all"] = "participants",
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """y <- y - l ((1 - alpha) g + alpha g_up + pull (y - x + h_i)), h_i <- h_i + (y_K - x); x <- mean_S (y_i + h_i).

    Sun et al. (2023) with pull = 1 / lambda and g_up = grad f_i(y + rho g / |g|); `normalised=False` is the paper's y +
    rho g. The authors' code adds the mean of all clients' h instead (`history="all"`), which is the same where
    everybody takes part, and clips all but pull y at `max_norm=10`: that part comes after as a weight decay. The
    first round moves x by twice the mean displacement, for a small `pull` too. Another `weighting` is that of mean_S;
    the mean of all clients' h knows uniform weights only.
    """
    require(0 <= alpha <= 1, "alpha", "a number in [0, 1]", alpha)
    strength = checked_rate(pull, "pull")
    alike = weighting == "uniform" or history == "participants"
    require(alike, "weighting", "'uniform' with history='all'", weighting)
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    nearby, rates = Hook(look=ascending(rho, alpha, normalised)), (("pull", strength),)
    phases = tuple(replace(pulled(p, strength, max_norm), rates=rates).hooked(nearby) for p in plain.phases)
    return replace(
        plain,
        phases=phases,
        server=plain.server if history == "participants" else with_history(plain.server),
        memory=history_memory(plain),
        uploads=Uploads(_with_history) if history == "participants" else Uploads(),
        serving=Serving(finetune_like=plain.phases[0]),
        owns=frozenset({HISTORY, POINT} if max_norm is None else {HISTORY, POINT, CENTRE}),
    )


def _with_history(received: Received, carry: Carry) -> Groups:
    """(y_K - x) + h_i, with h_i as it is after the round."""
    delta = subtract(carry.shared, received.shared)
    return {"delta": {**delta, **add(longer_history(received, carry), delta)}}
