"""SCAFFOLD: control variates take the clients' drift out of local steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from fedtempo.algorithms.algorithm import Algorithm, Uploads, Weighting
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.algorithms.parts.control_server import with_control
from fedtempo.algorithms.parts.control_variates import OPTIONS, SHARE, add_rate_and_share, control_memory
from fedtempo.algorithms.parts.sum_of_rates import add_rate
from fedtempo.client.objectives import Received, Steady, control
from fedtempo.client.phase import Carry, Hook
from fedtempo.params import subtract
from fedtempo.schedules import Rate
from fedtempo.server.sums import Groups


@named
def scaffold(
    lr: Rate,
    steps: Rate | None = None,
    *,
    epochs: Rate | None = None,
    option: Literal["I", "II"] = "II",
    control_weights: Literal["uniform", "samples"] = "uniform",
    server_lr: Rate = 1.0,
    weighting: Weighting = "uniform",
    **clients: Unpack[ClientSettings],
) -> Algorithm:
    """Local steps along g = grad f_i(y) - c_i + c, then new control variates (Karimireddy et al., 2020).

    Option II: c_i <- c_i - c + (x - y_K) / sum_k l_k, which is the paper's K l for a constant rate. Option I:
    c_i <- grad f_i(x) on all local data. Server: x <- x + eta_g mean Delta_i, c <- c + (1/N) sum_{i in S} Delta c_i
    with N all clients. The c of a round is the one sent at its start. Weight decay and clipping enter c_i through
    the displacement, as in the FedNAR code. In that code c = sum_i (n_i / n) c_i over all clients, which is
    `control_weights="samples"`: c <- c + sum_{i in S} (n_i / n) Delta c_i. With clients of one size both are the same.
    """
    by_samples, variate = control_weights == "samples", OPTIONS[option]
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    note = add_rate_and_share if by_samples else add_rate
    hook = Hook(variate.enter, correction=Steady(control), after=note, reads_start=False)
    phases = tuple(p.hooked(hook) for p in plain.phases)

    def upload(received: Received, carry: Carry) -> Groups:
        delta = subtract(carry.shared, received.shared)
        change = variate.change(received, carry, delta)
        if by_samples:
            change = {n: t.mul_(carry.scratch[SHARE]) for n, t in change.items()}
        return {"delta": delta, "control": change}

    return replace(
        plain,
        phases=phases,
        server=with_control(plain.server, by_samples),
        memory=control_memory(plain, variate),
        uploads=Uploads(upload, unweighted=frozenset({"control"}), compresses=frozenset({"delta", "control"})),
    )
