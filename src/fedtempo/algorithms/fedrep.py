"""FedRep: a personal head trained first, then the shared body under it."""

from __future__ import annotations

from typing import Unpack

from fedtempo.algorithms.algorithm import Algorithm, Serving, Weighting
from fedtempo.algorithms.fedavg import momentum_transform
from fedtempo.algorithms.named import ClientSettings, named, restricted
from fedtempo.client.phase import Phase, length
from fedtempo.params import Selector, submodule
from fedtempo.schedules import Rate, checked_rate


@named
def fedrep(
    lr: Rate,
    head_steps: Rate | None = None,
    body_steps: Rate | None = None,
    *,
    head_epochs: Rate | None = None,
    body_epochs: Rate | None = None,
    head_lr: Rate | None = None,
    head: Selector = submodule("head"),
    momentum: float = 0.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """The head on the received body, then the body under the new head; bodies are averaged (Collins et al., 2021).

    The authors' code adds momentum 0.5 and 10 head epochs to 1 body epoch. `head_steps=0` is FedAvg on the body.
    A new client gets a fresh head and trains it alone.
    """
    rate = checked_rate(lr if head_lr is None else head_lr, "head_lr")
    direction = momentum_transform(momentum, clients)
    on_head, on_body = restricted(clients, head), restricted(clients, ~head)
    first = Phase(length(head_steps, head_epochs, minimum=0), rate, direction=direction, **on_head)
    then = Phase(length(body_steps, body_epochs), checked_rate(lr, "lr"), direction=direction, **on_body)
    return Algorithm((first, then), weighting=weighting, personal=head, serving=Serving(newcomer_phases=(first,)))
