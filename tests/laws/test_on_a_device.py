"""A run on a device is the run on the processor: every algorithm, on every kind of model, on both backends.

The device is that of `tests/twin.py`. It refuses what an accelerator refuses, and computes with the processor's
kernels. So it has the processor's bits, except in recurrent layers, norms and adaptive steps, for which torch and the
library have kernels that run on the processor only, and in the methods that `BITS` names.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fedtempo as ft
from tests import zoo
from tests.twin import on_twin

KINDS = (*zoo.SHAPES, *zoo.LORA_SHAPE)
BITS = {*zoo.MECHANISMS} - {"four at once"} - {"pflego", "fedrep", "fedem"}
"""Algorithms without norms and adaptive steps, for which the processor has kernels of its own. PFLEGO, FedRep and FedEM
differ in their last bits (2e-7 at most); it is not known yet which operation rounds otherwise."""
PAIRS = [*((kind, name) for name in zoo.ALGORITHMS for kind in zoo.SHAPES), *(("lora", name) for name in zoo.LORA)]


def run(kind: str, name: str, backend: str, device: str, rounds: int) -> ft.Result:
    return ft.run(
        model=zoo.model(kind),
        data=zoo.data(kind),
        algorithm=zoo.EVERYTHING[name],
        rounds=rounds,
        cohort=4,
        batch_size=4,
        seed=1,
        backend=backend,
        device=device,
        evaluation=ft.Evaluation(every=rounds),
        progress=False,
    )


def distance(here: ft.Result, there: ft.Result) -> float:
    """The largest difference of a number of the shared model, over the tensor's largest number."""
    assert all(tensor.device.type == "twin" for tensor in there.last.shared.values()), "the run was on the device"
    pairs = ((tensor, there.last.shared[name].cpu()) for name, tensor in here.last.shared.items())
    return max(float((one - other).abs().max() / (1e-6 + one.abs().max())) for one, other in pairs)


def differing(pairs: list[tuple[str, str]], backend: str, rounds: int) -> list[str]:
    """The runs that are not the same on the device."""
    found = []
    for kind, name in pairs:
        here = run(kind, name, backend, "cpu", rounds)
        try:
            there = run(kind, name, backend, "twin", rounds)
        except ft.FedTempoError as error:
            found.append(f"{name} on {kind}: {error}")
            continue
        if distance(here, there) > 1e-6:
            found.append(f"{name} on {kind}: {distance(here, there):.1e} apart")
        elif name in BITS and kind != "gru" and here.digest() != there.digest():
            found.append(f"{name} on {kind}: other bits")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_third_of_the_zoo_is_the_same_on_a_device(kind: str) -> None:
    assert not on_twin(differing, [pair for pair in PAIRS[::3] if pair[0] == kind], "serial", 1)


@pytest.mark.slow("a third of it runs every time, one by one")
@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_zoo_is_the_same_on_a_device(kind: str, backend: str) -> None:
    assert not on_twin(differing, [pair for pair in PAIRS if pair[0] == kind], backend, 2, timeout=1800.0)


class Forgetful(nn.Module):
    """Keeps a tensor in a plain attribute, which `.to(device)` does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.body = zoo.model("mlp")
        self.scale = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.body(x)
        return outputs * self.scale


def refusal_of(model: type[nn.Module]) -> str:
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=2)
    try:
        ft.run(model=model(), data=zoo.data("mlp"), algorithm=algorithm, rounds=1, device="twin", progress=False)
    except ft.FedTempoError as error:
        return str(error)
    return ""


def test_a_tensor_that_was_left_behind_is_named() -> None:
    assert "found at least two devices" in on_twin(refusal_of, Forgetful)
