"""A recorded step as a CUDA graph: the device replays all of its operations at one call.

A recording contains no decision of Python, so its operations can be captured once and launched together. The graph
reads and writes memory of its own: inputs are copied in, outputs are copied out. Where torch refuses to capture, or the
graph's numbers differ from the recording's, the recording is replayed operation by operation instead.

None of our machines has a GPU. The tests put a stand-in in the place of `capture`; `fedtempo doctor` tries the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedtempo.client.recording import same

Function = Callable[[Sequence[Tensor]], list[Tensor]]
"""From input tensors to output tensors, the same operations at every call."""
WARM_UP = 3
"""Calls before the capture. In the first ones libraries choose and prepare kernels, which must not be captured."""


class Graph:
    """A function of tensors that the device replays as a whole."""

    def __init__(self, function: Function, inputs: Sequence[Tensor]) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        self._replay, self._outputs = capture(lambda: function(self._inputs), inputs[0].device)

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the function would have returned."""
        torch._foreach_copy_(self._inputs, list(inputs))
        self._replay()
        # The next replay overwrites the graph's own memory, and a step keeps its gradients for longer than that.
        return [tensor.clone() for tensor in self._outputs]


def capture(step: Callable[[], list[Tensor]], device: torch.device) -> tuple[Callable[[], None], list[Tensor]]:
    """A call that repeats `step` on the device, and the tensors in which it leaves its results."""
    with torch.cuda.device(device):
        # Torch wants the calls before the capture on another stream than the default one.
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = step()
    return graph.replay, outputs


def may_capture(inputs: Sequence[Tensor]) -> bool:
    """Whether torch may capture operations on these tensors: all on one CUDA device, none captured already."""
    devices = {tensor.device for tensor in inputs}
    if len(devices) != 1 or next(iter(devices)).type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    # A copy of a tensor that repeats its numbers in memory has other strides, for which torch may pick other kernels.
    return all(tensor.clone().stride() == tensor.stride() for tensor in inputs)


def captured(recording: Function, inputs: Sequence[Tensor]) -> Function:
    """The recording as a graph where torch may capture it and the numbers are the same, else the recording itself."""
    if not may_capture(inputs):
        return recording
    try:
        graph = Graph(recording, inputs)
        return graph if same(recording(inputs), graph(inputs)) else recording
    except RuntimeError:  # what cannot be captured, and what does not fit into memory twice
        return recording
