"""Functions that remember calls are refused wherever a user's function may stand: the library calls as it likes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fedtempo as ft
from fedtempo.client.objectives import Value
from fedtempo.contracts import small_data
from fedtempo.params import Params

fl = ft.algorithms
PLAIN = fl.fedavg(lr=0.1, steps=2)


def prepared(algorithm: ft.Algorithm = PLAIN, **others: Any) -> None:
    settings = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "rounds": 2, "cohort": 3, "batch_size": 4}
    ft.train(algorithm=algorithm, **{**settings, **others}, progress=False)


def growing() -> Callable[[], float]:
    calls = itertools.count(1)
    return lambda: 0.1 * next(calls)


def times(tensors: Params, factor: float) -> Params:
    return {name: value * factor for name, value in tensors.items()}


def scaling() -> ft.Transform:
    factor = growing()
    return ft.Transform(lambda params: (), lambda g, state, params, now: (times(g, factor()), state))


def objective() -> Callable[..., Value]:
    factor = growing()

    def grows(loss: Any, params: Params, batch: Any, view: Any, now: ft.Now) -> Value:
        value, buffers = loss(params, batch)
        return Value(value * factor(), value, buffers)

    return grows


def sending() -> ft.Uploads:
    factor = growing()
    return ft.Uploads(
        lambda received, carry: {"delta": {n: (carry.shared[n] - x) * factor() for n, x in received.shared.items()}}
    )


def serving() -> ft.Server:
    factor, plain = growing(), PLAIN.server

    def step(shared: Params, state: Any, aggregate: Any, now: ft.Now) -> Any:
        moved, state = plain.step(shared, state, aggregate, now)
        return times(moved, factor()), state

    return plain._replace(step=step)


def keeping() -> ft.Memory:
    factor = growing()
    return ft.Memory(
        initial_state=lambda shared, trained: {"note": torch.zeros(())},
        final_state=lambda received, carry: {"note": torch.full((), factor())},
    )


def scaled(which: str) -> ft.Algorithm:
    factor = growing()
    functions = {"rate": lambda g, x, now: 1.0, "decay": lambda g, x, now: 0.1, which: lambda g, x, now: factor()}
    return fl.adaptive_decay(PLAIN, rate=functions["rate"], decay=functions["decay"])


def weighed() -> ft.Algorithm:
    factor = growing()
    return fl.loss_weighted(PLAIN, weigh=lambda loss: loss * factor())


def optimizing() -> ft.Algorithm:
    return fl.fedavg(lr=0.1, steps=2, optimizer=ft.optimizers.Optimizer(scaling(), name="mine"))


def with_phases(**changes: Any) -> ft.Algorithm:
    return PLAIN.with_phases(lambda phase: replace(phase, **changes))


def after() -> Callable[..., Any]:
    factor = growing()
    return lambda carry, moved, received, now: carry._replace(shared=times(carry.shared, factor()))


REMEMBERS: dict[str, tuple[Callable[[], ft.Algorithm], str]] = {
    "a direction": (lambda: with_phases(direction=scaling()), r"phases\[...\].direction, update"),
    "an optimizer": (optimizing, "optimizer 'mine', update"),
    "rate of adaptive_decay": (lambda: scaled("rate"), r"phases\[...\].direction, update"),
    "decay of adaptive_decay": (lambda: scaled("decay"), r"phases\[...\].direction, update"),
    "an objective": (lambda: with_phases(objective=objective()), "phases"),
    "what comes after a step": (lambda: with_phases(hooks=(ft.Hook(after=after()),)), "phases"),
    "an upload": (lambda: replace(PLAIN, uploads=sending()), "uploads.upload"),
    "weigh of loss_weighted": (weighed, "uploads.upload"),
    "what a client keeps": (lambda: replace(PLAIN, memory=keeping()), "memory.final_state"),
    "a server": (lambda: replace(PLAIN, server=serving()), "server.step"),
    "the optimizer of with_server": (lambda: fl.with_server(PLAIN, optimizer=scaling()), "server.step"),
}


@pytest.mark.parametrize("name", REMEMBERS)
def test_an_algorithm_of_functions_that_remember_is_refused(name: str) -> None:
    make, field = REMEMBERS[name]
    with pytest.raises(ft.ConfigError, match=f"{field} must be .* that remembers? nothing"):
        prepared(make())


def noting() -> ft.Transform:
    """A function may note what it saw: it returns the same all the same."""
    seen: list[int] = []

    def update(gradient: Params, state: Any, params: Params, now: ft.Now) -> tuple[Params, Any]:
        seen.append(now.step)
        return times(gradient, 0.5), state

    return ft.Transform(lambda params: (), update)


def test_functions_that_only_take_notes_are_left_alone() -> None:
    prepared(with_phases(direction=noting()))


class Augmenting:
    """Noise that grows with every batch."""

    def __init__(self) -> None:
        self.factor = growing()

    def __call__(self, batch: dict[str, Tensor], key: Tensor) -> dict[str, Tensor]:
        return {**batch, "x": batch["x"] * self.factor()}


def test_an_augmentation_that_remembers_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match="augment must be a function that remembers nothing"):
        prepared(augment=Augmenting())


def running_mean() -> Callable[[Tensor, Tensor], float]:
    """As metrics that are updated and computed: the mean over all users so far, the same for one user twice."""
    seen: list[float] = []

    def accuracy(outputs: Tensor, targets: Tensor) -> float:
        seen.append(float((outputs.argmax(-1) == targets).double().mean()))
        return sum(seen) / len(seen)

    return accuracy


def test_a_metric_that_adds_up_users_is_refused() -> None:
    metric = ft.Metric(running_mean(), higher_is_better=True, per="client", name="running")
    with pytest.raises(ft.ConfigError, match="metric 'running' must be the same for the same outputs and targets"):
        prepared(metric=metric)


def following() -> Callable[[Tensor, Tensor], Tensor]:
    """Outputs are to stay near those of the batch before."""
    last: list[Tensor] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        before = last[-1] if last and last[-1].shape == outputs.shape else outputs.detach()
        last[:] = [outputs.detach()]
        return F.cross_entropy(outputs, targets) + (outputs - before).square().mean()

    return loss


def warming() -> Callable[[Tensor, Tensor], Tensor]:
    calls = 0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return F.cross_entropy(outputs, targets) * (1.0 if calls < 1000 else 0.5)

    return loss


STEPS = {"taken": 0}


def counted(outputs: Tensor, targets: Tensor) -> Tensor:
    STEPS["taken"] += 1
    return F.cross_entropy(outputs, targets) * (1.0 if STEPS["taken"] < 1000 else 0.5)


@pytest.mark.parametrize("loss", [following(), warming(), counted])
def test_a_loss_that_remembers_in_a_variable_is_refused(loss: Any) -> None:
    """It acts on what it remembers later, or only where batches differ."""
    with pytest.raises(ft.ConfigError, match="the same for the same outputs and targets, always"):
        prepared(loss=loss)


WEIGHTS = torch.tensor([1.0, 2.0, 1.0, 1.0])
CACHE: dict[str, Tensor] = {}


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    """A cache that is filled once is no memory of calls."""
    weights = CACHE.setdefault(str(outputs.dtype), WEIGHTS.to(outputs.dtype))
    return F.cross_entropy(outputs, targets, weight=weights)


def test_a_loss_with_a_cache_is_taken() -> None:
    prepared(loss=weighted)


def test_a_decoder_that_remembers_is_refused() -> None:
    factor = growing()
    rule = ft.compress.Compressor(lambda v, key: {"v": v}, lambda parts, form, key: parts["v"] * factor())
    with pytest.raises(ft.ConfigError, match=r"compress\.decode must be a function that gives the same numbers"):
        prepared(fl.fedavg(lr=0.1, steps=2, compress=rule))


@pytest.mark.parametrize("drawn", [np.random.rand, growing()])
def test_devices_that_are_others_at_the_next_call_are_refused(drawn: Callable[[], float]) -> None:
    """A run that is resumed, or that another process repeats, would have other phones."""

    def phones(seed: int, clients: np.ndarray) -> dict[str, np.ndarray]:
        return {"seconds_per_step": np.full(len(clients), 0.1 + drawn())}

    rule = "devices '.*phones' must return the same for the same seed and clients"
    with pytest.raises(ft.ConfigError, match=rule):
        prepared(devices=phones)
