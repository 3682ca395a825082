"""A trial of what a model reads and writes: clients share the module, and differ in the tensors that go in and out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from fedtempo.client.draws import seeded_draws
from fedtempo.client.network import Network
from fedtempo.errors import FedTempoError, ModelError, first_line
from fedtempo.params import Params
from fedtempo.tasks import Batch

MASKS_TRIED = 4
"""Masks under which a model is compared; one may come out the same by chance."""


def check_purity(network: Network, originals: Sequence[object], params: Params, rows: Batch) -> None:
    """Outputs follow from the rows and the weights that come in; nothing but buffers is written.

    `originals` are the modules that the network's was copied from.
    """
    trained = [n for n in network.parameters if params[n].is_floating_point()]
    # Each in its own way: a copy of a layer, which training would follow, must not stay a copy.
    moved = {**params, **{n: params[n] * 1.01 + 0.01 / (place + 1) for place, n in enumerate(trained)}}
    for train in (True, False):
        _check_repeats(network, moved, rows, train)
    _check_weights_come_in(network, originals, moved, rows)


def _check_weights_come_in(network: Network, originals: Sequence[object], params: Params, rows: Batch) -> None:
    """Every weight that the model computes with is one that came in, and none that the module itself holds."""
    first, _ = _seeded(network, params, rows, False)
    # A closure may hold the user's module, a list the weights of our copy of it.
    modules = [m for m in (network.evaluating, *originals) if isinstance(m, nn.Module)]
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(_weights_set(module, params))
        second, _ = _seeded(network, params, rows, False)
    if not alike(first, second):
        rule = "compute with its registered parameters, as torch.func.functional_call needs it"
        raise ModelError(f"the model must {rule}. Got weights that it keeps elsewhere too, in a list or a function.")


def _check_repeats(network: Network, params: Params, rows: Batch, train: bool) -> None:
    """The same rows and weights give the same outputs again, and the weights are as they were."""
    first, after = _seeded(network, params, rows, train)
    second, _ = _seeded(network, params, rows, train)
    if not alike(first, second):
        rule = "compute the same from the same rows and weights; what it remembers between batches must be a buffer"
        raise ModelError(f"the model must {rule} (register_buffer). Got other outputs the second time.")
    for name in network.parameters:
        if not alike(params[name], after[name]):
            rule = "leave its parameters as they are in forward; tensors that it updates itself must be buffers"
            raise ModelError(f"the model must {rule} (register_buffer). Got changes in {name!r}.")


def is_head_of_body(network: Network, params: Params, rows: Batch, masks: bool) -> bool:
    """Whether the model is head(body(inputs)) and nothing else, so that features may be computed apart from the head.

    A model may have both parts and do more: an activation between them, a second way past the body, another scale.
    With `masks`, whose numbers may hide the difference, several are tried.
    """
    if not network.has_head:
        return False
    trained = [n for n in network.parameters if params[n].is_floating_point()]
    # A ReLU between the parts shows only where features are negative: with other signs, other features are.
    points = [{**params, **{n: sign * params[n] + 0.01 for n in trained}} for sign in (1, -1)]
    trainings = [(True, key) for key in range(MASKS_TRIED if masks else 1)]
    ways = [(point, train, key) for point in points for train, key in ((False, 0), *trainings)]
    try:
        return all(alike(*_whole_and_apart(network, rows, *way)) for way in ways)
    except Exception:  # the parts are the user's code, and a body may not run by itself
        return False


def _whole_and_apart(network: Network, rows: Batch, params: Params, train: bool, key: int) -> tuple[Tensor, Tensor]:
    """The model's outputs, and those of its head on the features of its body."""
    seed = torch.tensor(key, device=next(iter(rows.values())).device)
    with seeded_draws(seed):
        whole, _ = tried(network, params, rows, train)
    with seeded_draws(seed), torch.no_grad():
        features = network.features({n: t.clone() for n, t in params.items()}, rows, train)
        apart, _ = tried(network, params, {**rows, "_features": features}, train)
    return whole, apart


def gradients_are_independent(network: Network, params: Params, rows: Batch, more: Batch) -> bool:
    """Whether a row that does not count leaves the gradient as it is: hooks and own derivatives may see all rows."""
    names = [n for n in network.parameters if params[n].is_floating_point()]

    def gradient(batch: Batch) -> Tensor:
        free = {n: params[n].clone().requires_grad_() for n in names}
        with seeded_draws(torch.zeros((), dtype=torch.int64, device=next(iter(rows.values())).device)):
            outputs = network.forward({**params, **free}, batch, train=True)[: len(next(iter(rows.values())))]
        weights = torch.linspace(0.5, 1.5, outputs.numel(), dtype=outputs.dtype, device=outputs.device)
        found = torch.autograd.grad((outputs.flatten() * weights).sum(), list(free.values()), allow_unused=True)
        # One zero, so that a model without a gradient has a vector too.
        zero = torch.zeros(1, dtype=torch.float64, device=outputs.device)
        return torch.cat([zero, *(g.flatten().double() for g in found if g is not None)])

    alone, beside = gradient(rows), gradient(more)
    # More rows are added up in another order, which the last digits show.
    share = max(torch.finfo(params[names[0]].dtype).eps ** 0.5, 1e-5) if names else 0.0
    return not bool(((alone - beside).abs() > share * alone.abs().max()).any())


def tried(network: Network, params: Params, rows: Batch, train: bool) -> tuple[Tensor, Params]:
    """What the model returns, and the tensors that it was given as it left them."""
    given = {n: t.clone() for n, t in params.items()}
    with torch.no_grad():
        try:
            return network.forward_updating(given, rows, train), given
        except FedTempoError:
            raise
        except ValueError as error:
            raise ModelError(f"the model cannot be trained on a small batch: {first_line(error)}") from error


def _seeded(network: Network, params: Params, rows: Batch, train: bool) -> tuple[Tensor, Params]:
    with seeded_draws(torch.zeros((), dtype=torch.int64, device=next(iter(rows.values())).device)):
        return tried(network, params, rows, train)


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


@contextlib.contextmanager
def _weights_set(module: nn.Module, params: Params) -> Iterator[None]:
    """The module's own weights are these for a while; its memory is not written."""
    own = {n: (p, p.data) for n, p in module.named_parameters() if type(p) is nn.Parameter and n in params}
    try:
        for name, (parameter, data) in own.items():
            parameter.data = params[name].to(data)
        yield
    finally:
        for parameter, data in own.values():
            parameter.data = data
