"""FedDyn: each client remembers its displacements and is pulled against them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Serving
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.displacement_history import history_memory, pulled, two_displacements
from fedtempo.algorithms.parts.history_server import with_history
from fedtempo.algorithms.parts.rate_rules import CENTRE, HISTORY
from fedtempo.errors import require
from fedtempo.schedules import Now, Rate, as_schedule, checked_rate


@named
def feddyn(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    alpha: Rate = 0.01,
    alpha_by_samples: bool = False,
    max_norm: Rate | None = None,
    server_lr: Rate = 1.0,
    serves: Literal["model", "mean", "clients"] = "model",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """y <- y - l (grad f_i(y) + alpha (s_i + y - x)), s_i <- s_i + (y_K - x); x <- mean_S y_i + (1/N) sum_all s_i.

    Acar et al. (2021) with g_i = -alpha s_i and h = -alpha mean s_i; clients count equally. The authors' code takes
    alpha mean(n) / n_i (`alpha_by_samples=True`), and clips grad f_i(y) + alpha (s_i - x) at `max_norm=10`, to
    which it adds alpha y as a weight decay: far from x the clipped part is not the gradient. x runs ahead of the
    clients: `serves="mean"` evaluates the mean of the participants' models instead, `serves="clients"` that of all
    clients' last models, which the authors plot. For the latter a client keeps its last model and uploads twice as
    much. A new user gets the model, fine-tuned without the pull.
    """
    strength = checked_rate(alpha, "alpha", positive=True)
    if alpha_by_samples:
        strength = strength * as_schedule(_mean_share)
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, **clients)
    phases = tuple(replace(pulled(p, strength, max_norm), rates=(("alpha", strength),)) for p in plain.phases)
    return replace(
        plain,
        phases=phases,
        server=with_history(plain.server, serves),
        memory=history_memory(plain, with_model=serves == "clients"),
        uploads=two_displacements(plain.uploads) if serves == "clients" else plain.uploads,
        serving=Serving(finetune_like=plain.phases[0]),
        owns=frozenset({HISTORY} if max_norm is None else {HISTORY, CENTRE}),
    )


def _mean_share(now: Now) -> float:
    require(now.samples > 0, "samples", "a number > 0", now.samples)
    return now.total_samples / now.clients / now.samples
