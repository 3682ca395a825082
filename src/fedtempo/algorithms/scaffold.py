"""SCAFFOLD: control variates take the clients' drift out of local steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

import torch

from fedtempo.algorithms.algorithm import Algorithm, Memory, Serving, Uploads, Weighting, predict_shared
from fedtempo.algorithms.fedavg import fedavg
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.client.network import Network
from fedtempo.client.objectives import DRIFT, Received, Steady, control
from fedtempo.client.phase import Carry, StepInfo
from fedtempo.params import Params, add, is_plain, select, subtract, zeros_like
from fedtempo.schedules import Now, Position, Rate
from fedtempo.server.step import Server, core_of, fitting
from fedtempo.server.sums import Aggregate, Groups
from fedtempo.tasks import Batch, Task

TRAVELLED = "_travelled"
"""The scratch entry that holds sum_k l_k, the sum of the learning rates of the steps so far."""
SHARE = "_share"
"""The scratch entry that holds what a client's change of c_i counts in c: 1, or n_i / n."""


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
    by_samples = control_weights == "samples"
    plain = fedavg(lr, steps, epochs=epochs, server_lr=server_lr, weighting=weighting, **clients)
    phases = tuple(
        replace(
            p,
            correction=Steady(control),
            on="shared",
            after=_add_rate_and_share if by_samples else add_rate,
            after_reads_start=False,
            enter=_full_gradient if option == "I" else None,
        )
        for p in plain.phases
    )
    return replace(
        plain,
        phases=phases,
        server=with_control(plain.server, by_samples),
        memory=Memory(
            initial_state=lambda shared, trained: zeros_like(select(shared, trained)),
            begin=_begin_with_gradient if option == "I" else _begin,
            final_state=_own_gradient if option == "I" else _own_mean_direction,
        ),
        uploads=Uploads(
            lambda received, carry: _upload(received, carry, option, by_samples),
            unweighted=frozenset({"control"}),
            compresses=frozenset({"delta", "control"}),
        ),
        serving=Serving(predict_shared, finetune_on="shared"),
    )


def _begin(received: Received, personal: Params) -> tuple[Params, Params]:
    # c - c_i is constant during a round, so it is computed once and not at every step.
    device = next(iter(received.shared.values())).device
    drift = {DRIFT + n: c - personal[n] for n, c in received.extra.items() if n in personal}
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return personal, {TRAVELLED: zero, SHARE: torch.ones_like(zero), **drift}


def _begin_with_gradient(received: Received, personal: Params) -> tuple[Params, Params]:
    # `_full_gradient` replaces the zeros. They are there because `vmap` needs the same tensors before and after.
    _, scratch = _begin(received, personal)
    return personal, {**scratch, **zeros_like(personal)}


def add_rate(carry: Carry, moved: StepInfo, received: Received, now: Position) -> Carry:
    """Add the step's rate to the sum of rates."""
    return carry._replace(scratch={**carry.scratch, TRAVELLED: carry.scratch[TRAVELLED] + moved.rate})


def _add_rate_and_share(carry: Carry, moved: StepInfo, received: Received, now: Position) -> Carry:
    share = now.value(lambda here: here.samples / here.total_samples)
    carry = add_rate(carry, moved, received, now)
    return carry._replace(scratch={**carry.scratch, SHARE: share + 0 * carry.scratch[TRAVELLED]})


def _full_gradient(network: Network, task: Task, received: Received, carry: Carry, data: Batch) -> tuple[Carry, Batch]:
    """Option I's grad f_i(x), before the first step."""
    trained, others = select(carry.shared, carry.personal), dict(carry.shared)

    def loss(params: Params) -> torch.Tensor:
        return network.loss(task, {**others, **params}, data)

    return carry._replace(scratch={**carry.scratch, **torch.func.grad(loss)(trained)}), data


def _own_gradient(received: Received, carry: Carry) -> Params:
    """Option I's c_i+ = grad f_i(x)."""
    return {n: carry.scratch[n] for n in carry.personal}


def _own_mean_direction(received: Received, carry: Carry) -> Params:
    """Option II's c_i+ = (x - y_K) / sum_k l_k - (c - c_i)."""
    travelled = sum_of_rates(carry)
    # A tensor of one number per client does not raise the type of the others, so every step may overwrite the last.
    found = {
        n: (received.shared[n] - carry.shared[n]).div_(travelled).sub_(carry.scratch[DRIFT + n]) for n in carry.personal
    }
    return _if_moved(carry, found, carry.personal)


def _if_moved(carry: Carry, found: Params, otherwise: Params | None = None) -> Params:
    """What was found; where all rates were 0 the client has learnt nothing, and it is `otherwise`, or zeros."""
    moved = carry.scratch[TRAVELLED] > 0
    if is_plain(moved) and bool(moved):  # the usual case, without a pass over the tensors
        return found
    return {n: torch.where(moved, t, 0.0 if otherwise is None else otherwise[n]) for n, t in found.items()}


def sum_of_rates(carry: Carry) -> torch.Tensor:
    """The sum of the rates of the client's steps, to divide its displacement by."""
    # If all rates are 0 the displacement is 0 as well; the tiny floor makes 0 / 0 a 0.
    return carry.scratch[TRAVELLED].clamp(min=torch.finfo(torch.float64).tiny)


def _upload(received: Received, carry: Carry, option: str, by_samples: bool) -> Groups:
    """The displacement, and c_i+ - c_i: grad f_i(x) - c_i, or (x - y_K) / sum_k l_k - c."""
    delta = subtract(carry.shared, received.shared)
    if option == "I":
        change = {n: carry.scratch[n] - own for n, own in carry.personal.items()}
    else:
        travelled = -sum_of_rates(carry)
        change = {n: (delta[n] / travelled).to(delta[n].dtype).sub_(received.extra[n]) for n in carry.personal}
        change = _if_moved(carry, change)
    if by_samples:
        change = {n: t.mul_(carry.scratch[SHARE]) for n, t in change.items()}
    return {"delta": delta, "control": change}


def with_control(inner: Server, by_samples: bool = False) -> Server:
    """A server that also keeps c, sends it down, and moves it by (|S| / N) mean Delta c_i.

    `by_samples` says that clients have multiplied their changes by n_i / n; then the sum of the changes is added.
    """

    def step(shared: Params, state: Any, aggregate: Aggregate, now: Now) -> tuple[Params, Any]:
        shared, optimizer = inner.step(shared, state["optimizer"], aggregate, now)
        count = aggregate.clients / (1 if by_samples else now.clients)
        control = add(state["control"], aggregate.means["control"], count)
        return shared, {"optimizer": optimizer, "control": control}

    return inner._replace(
        init=lambda shared: {"optimizer": inner.init(shared), "control": zeros_like(shared)},
        step=step,
        extra=lambda state: {**inner.extra(state["optimizer"]), **state["control"]},
        model=lambda shared, state: inner.model(shared, state["optimizer"]),
        measurements=lambda state: inner.measurements(state["optimizer"]),
        rewrap=lambda other: with_control(inner.rewrap(other), by_samples),
        fitted=fitting(inner, lambda other: with_control(other, by_samples)),
        core=core_of(inner),
    )
