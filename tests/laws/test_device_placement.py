"""Every tensor of a run is where the model is, on a device without numbers: no machine here has an accelerator.

Torch's `meta` device knows shapes and places and computes nothing. A dispatch mode looks at every operation of a whole
run (checks, training, sums, the server's step, scoring) and notes the ones that mix devices, which a real accelerator
refuses. Where the library reads numbers, the mode answers in the device's place.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fedtempo as ft
from fedtempo.federation import device_rows
from fedtempo.training import prepare
from tests import zoo
from tests.slow import slow_but

ATEN = torch.ops.aten
READS = {ATEN._local_scalar_dense.default, ATEN.item.default, ATEN.is_nonzero.default}
EQUAL = {ATEN.equal.default, ATEN.allclose.default}
MOVES = {ATEN._to_copy.default, ATEN.copy_.default}


class Placement(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations on the device, and notes those that mix it with the processor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.there = 0
        self.sent = 0
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        tensors = [t for t in tree_leaves((args, named)) if isinstance(t, Tensor)]
        if any(t.is_meta for t in tensors):
            self.there += 1
            if func in EQUAL:
                return True
            if func in READS:
                return True if args[0].dtype == torch.bool else 0.5 if args[0].is_floating_point() else 0
            if func is ATEN._to_copy.default and torch.device(named.get("device") or "meta").type == "cpu":
                return torch.ones(args[0].shape, dtype=named.get("dtype") or args[0].dtype)
        if func is ATEN._to_copy.default and named.get("device") == torch.device("meta") and args[0].dim() > 1:
            self.sent += args[0].numel() if args[0].device.type == "cpu" and args[0].is_floating_point() else 0
        # A tensor without dimensions is a number, which any device takes.
        if func not in MOVES and len({t.device.type for t in tensors if t.dim()}) > 1:
            self.mixed.append(f"{func}: {[(t.device.type, tuple(t.shape)) for t in tensors]}")
        return func(*args, **named)


def run(
    backend: str, algorithm: ft.Algorithm, model: nn.Module, monkeypatch: pytest.MonkeyPatch, rounds: int = 2
) -> Placement:
    monkeypatch.setattr(prepare, "check_device", lambda device: None)  # `meta` is refused: it cannot train
    settings: dict[str, Any] = {"rounds": rounds, "cohort": 3, "batch_size": 4, "progress": False, "device": "meta"}
    with Placement() as placement:
        result = ft.run(
            model=model,
            data=zoo.data("mlp"),
            algorithm=algorithm,
            backend=backend,
            evaluation=ft.Evaluation(every=1),
            **settings,
        )
    assert all(t.is_meta for t in result.last.shared.values())
    return placement


SLOW = pytest.mark.slow("an algorithm with a state of each kind runs every time")


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize(
    "name",
    [
        "scaffold",
        *(pytest.param(n, marks=SLOW) for n in ("fedavg", "fedadam", "ditto", "pflego", "fedrep", "fednar", "pfedme")),
        *(pytest.param(n, marks=SLOW) for n in ("fedavg with top-k", "feddyn", "fedcm", "fedsam", "fedadamw", "apfl")),
    ],
)
def test_no_operation_mixes_devices(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    placement = run(backend, zoo.ALGORITHMS[name], zoo.model("mlp"), monkeypatch)
    assert placement.there > 1000, "the run was on the device"
    assert not placement.mixed


def test_a_tensor_that_was_left_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(nn.Module):
        """Keeps a tensor in a plain attribute, which `.to(device)` does not move."""

        def __init__(self) -> None:
            super().__init__()
            self.body = zoo.model("mlp")
            self.scale = torch.ones(4)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.body(x)
            return outputs * self.scale

    with pytest.raises((ft.FedTempoError, RuntimeError), match="device"):
        run("serial", ft.algorithms.fedavg(lr=0.1, steps=2), Forgetful(), monkeypatch)


@pytest.mark.parametrize("backend", slow_but(["vectorised"], ["serial", "vectorised"], "the same store of rows"))
def test_rows_that_fit_are_sent_once_for_all_rounds(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(rounds: int) -> int:
        return run(backend, ft.algorithms.fedavg(lr=0.1, steps=2), zoo.model("mlp"), monkeypatch, rounds).sent

    assert sent(2) > sent(1)
    monkeypatch.setattr(device_rows, "free_memory", lambda device: 2**30)
    assert sent(2) == sent(1) > 0
