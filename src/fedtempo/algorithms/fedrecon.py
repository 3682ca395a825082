"""FedRecon: heads are fitted again to the client's data in every round; clients keep no state."""

from __future__ import annotations

from typing import Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads, Weighting
from fedtempo.algorithms.named import ClientSettings, gradient_only, named, restricted
from fedtempo.algorithms.parts.last_step import begin_with_zeros, note_direction, upload_note
from fedtempo.client.phase import Hook, Length, Phase, Rows, length
from fedtempo.client.transforms import Transform, chain, identity, scale_by_adam, sgd
from fedtempo.params import Selector, submodule
from fedtempo.schedules import Rate, Schedule, checked_rate, constant
from fedtempo.server.step import descend


@named
def fedrecon(
    lr: Rate,
    head_lr: Rate,
    head_steps: Rate,
    body_steps: Rate = 1,
    *,
    head: Selector = submodule("head"),
    same_data: bool = False,
    server_lr: Rate = 1.0,
    server_optimizer: Literal["sgd", "adam"] = "sgd",
    weighting: Weighting = "processed",
    full_batch: bool = False,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """A fresh head is fitted on the support half, then the body moves on the query half (Singhal et al., 2021).

    Weights are the numbers of samples seen in the body's phase. The support half is the first half of the client's
    training rows; `same_data=True` uses all rows for both. A fresh head is the client's derived first head, the same
    each round. A new client rebuilds its head on its support half.
    """
    support: Rows = "train" if same_data else "support"
    query: Rows = "train" if same_data else "query"
    on_head, on_body = restricted(clients, head), restricted(clients, ~head)
    rebuild = Phase(
        length(head_steps), checked_rate(head_lr, "head_lr"), part=support, full_batch=full_batch, **on_head
    )
    improve = Phase(length(body_steps), checked_rate(lr, "lr"), part=query, full_batch=full_batch, **on_body)
    return Algorithm(
        (rebuild, improve),
        descend(server_transform(server_optimizer, checked_rate(server_lr, "server_lr"))),
        weighting,
        personal=head,
        memory=Memory(stateless=True),
        serving=Serving(newcomer_phases=(rebuild,)),
    )


@named
def fedrecon_stateful(
    head_lr: Rate,
    server_lr: Rate,
    head_steps: Rate = 50,
    *,
    head: Selector = submodule("head"),
    server_optimizer: Literal["sgd", "adam"] = "sgd",
    weighting: Weighting = "samples",
    full_batch: bool = True,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """FedRecon as PFLEGO's code has it: heads are kept, and one body gradient at the new head is sent.

    tau head steps on all data, then theta <- theta - lr sum_{i in S} (n_i / n_S) grad_theta l_i. The authors' code
    uses Adam at the server by default; the gradient is taken *after* all head steps, PFLEGO's is not.
    """
    on_head, exact = restricted(clients, head), gradient_only(restricted(clients, ~head))
    fit = Phase(length(head_steps), checked_rate(head_lr, "head_lr"), full_batch=full_batch, **on_head)
    # The step of this phase is thrown away; only its direction, the body's gradient, is sent.
    once = Length(constant(1))
    note = Hook(after=note_direction, prescribed_rate=True)
    look = Phase(once, constant(1.0), full_batch=full_batch, hooks=(note,), **exact)
    return Algorithm(
        (fit, look),
        descend(server_transform(server_optimizer, checked_rate(server_lr, "server_lr"))),
        weighting,
        personal=head,
        memory=Memory(begin=begin_with_zeros),
        uploads=Uploads(upload_note),
        serving=Serving(newcomer_phases=(fit,)),
    )


def server_transform(optimizer: str, server_lr: Schedule) -> Transform:
    """SGD, or Adam as torch has it, with this learning rate."""
    adam = scale_by_adam(0.9, 0.999, 1e-8, corrects="moments")
    return chain(adam if optimizer == "adam" else identity, sgd(server_lr))
