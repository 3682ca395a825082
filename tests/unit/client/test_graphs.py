"""Steps as CUDA graphs, with a stand-in for the capture: no machine here has a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fedtempo.client import gradients, graphs
from fedtempo.client.gradients import Replayed, by_autograd
from fedtempo.client.graphs import Graph, captured, may_capture
from fedtempo.client.objectives import Value
from fedtempo.client.recording import Recording, record
from fedtempo.params import Params
from fedtempo.tasks import Batch


def stand_in(step: Callable[[], list[Tensor]], device: torch.device) -> tuple[Callable[[], None], list[Tensor]]:
    """As on a device: a replay reads the memory of the captured inputs and writes that of the captured outputs."""
    outputs = step()

    def replay() -> None:
        for place, value in zip(outputs, step(), strict=True):
            place.copy_(value)

    return replay, outputs


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "may_capture", lambda inputs: True)
    monkeypatch.setattr(graphs, "capture", stand_in)


def recorded() -> Recording:
    found = record(lambda a, b: [a * b, a + 1], [torch.ones(3), torch.ones(3)])
    assert isinstance(found, Recording)
    return found


def test_a_graph_computes_what_the_recording_does(gpu: None) -> None:
    a, b = torch.arange(3.0), torch.tensor([2.0, 3.0, 4.0])
    graph = captured(recorded(), [torch.ones(3), torch.ones(3)])
    assert isinstance(graph, Graph)
    product, more = graph([a, b])
    later, _ = graph([b, b])
    assert product.tolist() == [0.0, 3.0, 8.0] and more.tolist() == [1.0, 2.0, 3.0]
    assert later.tolist() == [4.0, 9.0, 16.0]
    assert a.tolist() == [0.0, 1.0, 2.0] and b.tolist() == [2.0, 3.0, 4.0]


def test_on_a_processor_nothing_is_captured() -> None:
    recording = recorded()
    assert captured(recording, [torch.ones(3), torch.ones(3)]) is recording


def test_what_torch_does_not_capture_is_replayed(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(step: object, device: object) -> None:
        asked.append(device)
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "capture", refuse)
    recording = recorded()
    assert captured(recording, [torch.ones(3), torch.ones(3)]) is recording
    assert asked == [torch.device("cpu")]


def test_a_graph_with_other_numbers_is_not_used(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(step: Callable[[], list[Tensor]], device: torch.device) -> tuple[Callable[[], None], list[Tensor]]:
        outputs = [tensor + 1e-7 for tensor in step()]
        return lambda: None, outputs

    monkeypatch.setattr(graphs, "capture", stale)
    recording = recorded()
    assert captured(recording, [torch.ones(3), torch.ones(3)]) is recording


def test_torch_may_capture_tensors_of_one_cuda_device_that_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: busy)
    # Tensors without numbers that say they are on a CUDA device.
    with FakeTensorMode():
        first, second = torch.empty(2, 3, device="cuda:0"), torch.empty(3, device="cuda:1")
        assert may_capture([first, first.t()])
        assert not may_capture([first, second])
        assert not may_capture([first, torch.empty(3)])
        assert not may_capture([first, torch.empty(1, 3, device="cuda:0").expand(5, 3)])
        busy = True
        assert not may_capture([first])


def value_of(free: Params, fixed: Params, batch: Batch) -> Value:
    loss = nn.functional.mse_loss(batch["x"] @ free["w"] + free["b"], batch["y"])
    return Value(loss, loss, {})


def test_steps_by_graph_have_the_bits_of_the_tape(gpu: None) -> None:
    params = {"w": torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), "b": torch.zeros(2)}
    replayed, used = Replayed(by_autograd), []
    for step in range(6):
        draw = torch.Generator().manual_seed(step)
        batch = {"x": torch.randn(5, 4, generator=draw), "y": torch.randn(5, 2, generator=draw)}
        gradient, value = replayed(value_of, params, {}, batch)
        expected, whole = by_autograd(value_of, params, {}, batch)
        assert all(torch.equal(gradient[n], expected[n]) for n in params) and torch.equal(value.loss, whole.loss)
        used += [known.recording for known in replayed._remembered.values() if known]
        params = {n: p - 0.1 * gradient[n] for n, p in params.items()}
    assert used and all(isinstance(one, Graph) for one in used)


def test_only_so_many_shapes_become_graphs(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "MOST_GRAPHS", 2)
    replayed, params = Replayed(by_autograd), {"w": torch.ones(4, 2), "b": torch.zeros(2)}

    def kinds(sizes: Sequence[int]) -> list[type]:
        for rows in sizes:
            for _ in range(2):
                replayed(value_of, params, {}, {"x": torch.ones(rows, 4), "y": torch.ones(rows, 2)})
        return [type(known.recording) for known in replayed._remembered.values() if known]

    assert kinds([3, 4, 5]) == [Graph, Graph, Recording]
