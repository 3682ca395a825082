"""PFLEGO: personal heads, and exact SGD on the joint loss of the body and all heads."""

from __future__ import annotations

from typing import Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads
from fedtempo.algorithms.fedrecon import server_transform
from fedtempo.algorithms.named import ClientSettings, gradient_only, named, restricted
from fedtempo.algorithms.parts.last_step import begin_with_zeros, note_direction, upload_note
from fedtempo.client.phase import Hook, Length, Phase, length
from fedtempo.params import Selector, submodule
from fedtempo.schedules import Now, Rate, checked_rate, constant, data_share, inverse_participation
from fedtempo.server.step import descend, descend_scaled
from fedtempo.server.sums import Aggregate


@named
def pflego(
    head_lr: Rate,
    server_lr: Rate,
    steps: Rate = 50,
    *,
    head: Selector = submodule("head"),
    alpha_in_head_step: bool = False,
    alpha_over: Literal["all", "sampled"] = "all",
    server_optimizer: Literal["sgd", "adam"] = "sgd",
    full_batch: bool = True,
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """tau - 1 steps on the head alone, then one joint gradient: the head moves, the body's gradient is sent.

    PFLEGO, eqs. 3 and 4, with tau = `steps`, beta = `head_lr`, rho_t = `server_lr`, I clients of which r take part:
    W <- W - beta grad_W l_i (tau - 1 times); W <- W - rho_t (I/r) grad_W l_i;
    theta <- theta - rho_t (I/r) sum_{i in S} alpha_i grad_theta l_i, alpha_i = n_i / sum_all n_j.

    Both last gradients are taken at the same point. While the body is fixed its features are computed once, so a round
    costs two passes through the body whatever tau is. The paper contradicts itself: only with alpha_i in the head's
    last step too (eq. 5; `alpha_in_head_step=True`) is a round an unbiased SGD step on the joint loss. The authors'
    code normalises alpha over the sampled clients (`alpha_over="sampled"`) and uses Adam (`server_optimizer="adam"`,
    torch's). r is the expected cohort, I rho for Bernoulli participation. A new client gets a fresh head and takes
    tau head-only steps. An `optimizer` is for the head-only steps; the joint gradient stays as it is.
    """
    rho = checked_rate(server_lr, "server_lr")
    last_rate = rho * inverse_participation() * (data_share() if alpha_in_head_step else constant(1.0))
    on_head = restricted(clients, head)
    inner = Phase(length(steps, offset=-1), checked_rate(head_lr, "head_lr"), full_batch=full_batch, **on_head)
    exact = gradient_only(clients)
    joint = Phase(
        Length(constant(1)),
        last_rate,
        full_batch=full_batch,
        hooks=(Hook(after=note_direction, prescribed_rate=True),),
        **exact,
    )
    newcomer = Phase(length(steps), checked_rate(head_lr, "head_lr"), full_batch=full_batch, **on_head)

    # The mean upload is sum_S n_i g_i / sum_S n_i. Times sum_S n_i / sum_all n_j it becomes sum_S alpha_i g_i, and I /
    # r makes that an unbiased estimate of the sum over all clients.
    def unbiased(aggregate: Aggregate, now: Now) -> float:
        share = aggregate.weight / now.total_samples if alpha_over == "all" else 1.0
        return share * now.clients / now.cohort

    return Algorithm(
        (inner, joint),
        server=descend_scaled(descend(server_transform(server_optimizer, rho)), unbiased),
        weighting="samples",
        personal=head,
        memory=Memory(begin=begin_with_zeros),
        uploads=Uploads(upload_note),
        serving=Serving(newcomer_phases=(newcomer,)),
    )
