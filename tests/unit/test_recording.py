"""Recordings replay the same operations on other numbers, and refuse what would not be the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtempo.client.gradients import MOST_RECORDINGS, GradientOf, Replayed, by_autograd, by_transform_together
from fedtempo.client.network import Network, tensors_of
from fedtempo.client.recording import Recording, Refusal, record
from fedtempo.errors import TrainingError
from fedtempo.models import character_gru, character_transformer, gin, mlp, word_average
from fedtempo.models.weights import build
from fedtempo.objectives import Value
from fedtempo.params import Params
from fedtempo.tasks import TASKS, Batch, mean_loss

X, Y = torch.arange(6.0).reshape(2, 3), torch.tensor([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])


def views(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.cat([x.t().t(), y.t().detach().t()]).sum(1), x]


def in_place(x: Tensor, y: Tensor) -> list[Tensor]:
    copy = x.clone()
    copy[0].add_(y[0])
    return [copy, copy + y]


def several_results(x: Tensor, y: Tensor) -> list[Tensor]:
    low, _ = (x * y).sort(1)
    one, other = torch.stack([low, x]).unbind(0)
    return [one - other]


def derivatives(x: Tensor, y: Tensor) -> list[Tensor]:
    leaf = x.detach().requires_grad_()
    return list(torch.autograd.grad((leaf.sin() * y).sum(), [leaf]))


@pytest.mark.parametrize("function", [views, in_place, several_results, derivatives])
def test_a_recording_computes_what_the_function_computes(function: Callable[..., list[Tensor]]) -> None:
    recording = record(function, [X, Y])
    assert isinstance(recording, Recording)
    for x, y in ((X, Y), (Y, X), (-3 * X, Y.square())):
        assert all(torch.equal(a, b) for a, b in zip(recording([x, y]), function(x, y), strict=True))


ELSEWHERE = torch.ones(3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: [x * x.sum().item()],
        lambda x, y: [x + 1] if bool((x > 1).any()) else [x],
        lambda x, y: [x[x > 0]],
        lambda x, y: [x + torch.rand(3)],
        lambda x, y: [x + ELSEWHERE],
        lambda x, y: [torch.add(input=x, other=y, out=ELSEWHERE.repeat(2, 1))],
        lambda x, y: [ELSEWHERE],
    ],
)
def test_what_cannot_be_repeated_is_refused(function: Callable[..., list[Tensor]]) -> None:
    assert isinstance(record(function, [X, Y]), Refusal)


def test_one_tensor_for_two_inputs_is_refused() -> None:
    assert isinstance(record(views, [X, X]), Refusal)


def test_memory_of_what_is_not_needed_any_more_is_freed() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        for _ in range(50):
            x = x + x
        return [x]

    recording = record(chain, [X])
    assert isinstance(recording, Recording) and len(recording._registers) < 10


def value_of(network: Network, task: str) -> Callable[[Params, Params, Batch], Value]:
    def value(params: Params, frozen: Params, batch: Batch) -> Value:
        after = {n: p.clone() for n, p in frozen.items() if n in network.buffers}
        loss = mean_loss(TASKS[task], network.forward({**frozen, **params, **after}, batch, train=True), batch, None)
        return Value(loss, loss, after)

    return value


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3)),
    "ours": lambda: mlp(inputs=64, hidden=[5], outputs=3),
    "pooled": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)),
    "batch norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)),
    "group norm": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, 3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_replayed_gradients_have_the_bits_of_the_tape(name: str) -> None:
    network = Network(MODELS[name]())
    assert network.is_known() and not network.hooked()
    tensors = tensors_of(build(MODELS[name], 3), torch.float32, "cpu")
    params = {n: tensors[n] for n in network.parameters}
    frozen = {n: tensors[n] for n in network.buffers}
    replayed, value = Replayed(by_autograd), value_of(network, "classification")
    for step in range(6):
        draw = torch.Generator().manual_seed(step)
        batch = {
            "x": torch.randn(4 + step % 2, 1, 8, 8, generator=draw),
            "y": torch.randint(3, (4 + step % 2,), generator=draw),
            **({"_key": torch.tensor(1000 + step)} if network.dropout else {}),
        }
        mine, got = replayed(value, params, frozen, batch)
        theirs, expected = by_autograd(value, params, frozen, batch)
        assert all(torch.equal(mine[n], theirs[n]) for n in params)
        assert torch.equal(got.loss, expected.loss) and torch.equal(got.total, expected.total)
        assert all(torch.equal(got.buffers[n], b) for n, b in expected.buffers.items())
        params = {n: p - 0.1 * mine[n] for n, p in params.items()}
        frozen = got.buffers or frozen
    assert len(replayed._remembered) == 2
    assert all(kept is not None and isinstance(kept.recording, Recording) for kept in replayed._remembered.values())


def test_a_graph_network_is_replayed_too() -> None:
    network = Network(gin(6, dropout=0.0))
    tensors = tensors_of(build(gin(6, dropout=0.0), 3), torch.float32, "cpu")
    params, frozen = ({n: tensors[n] for n in names} for names in (network.parameters, network.buffers))
    replayed, value = Replayed(by_autograd), value_of(network, "language")
    for step in range(4):
        draw = torch.Generator().manual_seed(step)
        batch = {
            "x": torch.randn(1, 9, 6, generator=draw),
            "edges": torch.randint(9, (1, 20, 2), generator=draw),
            "mask": torch.ones(1, 9, dtype=torch.bool),
            "y": torch.randint(3, (1, 9), generator=draw),
        }
        mine, _ = replayed(value, params, frozen, batch)
        theirs, _ = by_autograd(value, params, frozen, batch)
        assert all(torch.equal(mine[n], theirs[n]) for n in params)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


def test_code_of_the_users_own_is_known_from_ours() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    assert not Network(Own()).is_known()
    assert not Network(nn.Sequential(nn.Linear(2, 2), Own())).is_known()
    assert Network(nn.Linear(2, 2)).is_known() and not Network(nn.Linear(2, 2)).hooked()
    assert Network(hooked).hooked()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, y: [x * x.tolist()[0][0]], "reads numbers out of a tensor (tolist)"),
        (lambda x, y: [x * float(x.numpy()[0, 0])], "reads numbers out of a tensor (numpy)"),
        (lambda x, y: [x * random.random()], "draws from Python's or numpy's random generator"),
        (lambda x, y: [x * float(np.random.rand())], "draws from Python's or numpy's random generator"),
        (lambda x, y: [x + torch.rand(3)], "draws random numbers"),
        (lambda x, y: [x[x > 0]], "makes a tensor whose shape depends on numbers"),
    ],
)
def test_the_reason_can_be_read(function: Callable[..., list[Tensor]], reason: str) -> None:
    refused = record(function, [X, Y])
    assert isinstance(refused, Refusal) and refused.reason.startswith(reason)


class Counting(nn.Module):
    """It remembers in Python how often it was called, and from some call on it does something else."""

    def __init__(self, changes_at: int, counts: bool = True) -> None:
        super().__init__()
        self.inside = nn.Linear(2, 2)
        self.calls = 0
        self._calls, self._counts, self._changes_at = [0], counts, changes_at

    def forward(self, x: Tensor) -> Tensor:
        self._calls[0] += 1
        if self._counts:
            self.calls += 1
        output: Tensor = self.inside(x)
        return output * 2 if self._calls[0] > self._changes_at else output


def replays(module: nn.Module, steps: int) -> Replayed:
    network = Network(module)
    before = network.python_state()
    replayed = Replayed(by_autograd, lambda: network.python_state() == before)
    params = tensors_of(module, torch.float32, "cpu")
    for step in range(steps):
        batch = {"x": torch.full((3, 2), float(step)), "y": torch.zeros(3, dtype=torch.int64)}
        replayed(value_of(network, "classification"), params, {}, batch)
    return replayed


def test_a_users_module_is_replayed_once_it_has_proved_itself() -> None:
    replayed = replays(Own(), 20)
    assert replayed.refusals == []
    assert all(kept is not None and isinstance(kept.recording, Recording) for kept in replayed._remembered.values())


def test_a_model_that_counts_its_calls_is_not_replayed() -> None:
    assert replays(Counting(changes_at=99), 10).refusals == ["changes attributes of the model while it runs"]


def test_a_model_that_soon_computes_something_else_is_not_replayed() -> None:
    assert replays(Counting(changes_at=4, counts=False), 10).refusals == ["computes other operations for other numbers"]


def test_a_model_that_later_computes_something_else_stops_the_run() -> None:
    with pytest.raises(TrainingError, match="the model computes something else for the same shapes"):
        replays(Counting(changes_at=8, counts=False), 40)


def test_ever_new_shapes_do_not_fill_the_memory() -> None:
    network = Network(nn.Linear(2, 2))
    replayed, value = Replayed(by_autograd), value_of(network, "classification")
    params = tensors_of(nn.Linear(2, 2), torch.float32, "cpu")
    for rows in range(1, MOST_RECORDINGS + 20):
        batch = {"x": torch.ones(rows, 2), "y": torch.zeros(rows, dtype=torch.int64)}
        replayed(value, params, {}, batch)
    assert len(replayed._remembered) == MOST_RECORDINGS


OURS: dict[str, tuple[Callable[[], nn.Module], int, str]] = {
    "gru": (lambda: character_gru(20, embedding=4, hidden=6, layers=2), 20, "language"),
    "transformer": (lambda: character_transformer(20, width=8, heads=2, feedforward=8, layers=1), 20, "language"),
    "word average": (lambda: word_average(width=4, hidden=4), 2, "classification"),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("lanes", [0, 3])
def test_models_of_text_are_replayed_alone_and_side_by_side(name: str, lanes: int) -> None:
    make, outputs, task = OURS[name]
    network = Network(make())
    way: GradientOf = by_transform_together if lanes else by_autograd
    replayed, value = Replayed(way), value_of(network, task)
    tensors = tensors_of(build(make, 3), torch.float64, "cpu")
    params = {n: torch.stack([tensors[n]] * lanes) if lanes else tensors[n] for n in network.parameters}
    frozen = {n: torch.stack([tensors[n]] * lanes) if lanes else tensors[n] for n in network.buffers}
    leading = (lanes, 2) if lanes else (2,)
    for step in range(4):
        draw = torch.Generator().manual_seed(step)
        batch = {
            "x": torch.randint(1, 20, (*leading, 5), generator=draw),
            "y": torch.randint(outputs, leading if outputs == 2 else (*leading, 5), generator=draw),
            **({"_key": torch.arange(lanes) + step if lanes else torch.tensor(step)} if network.dropout else {}),
        }
        mine, got = replayed(value, params, frozen, batch)
        theirs, expected = way(value, params, frozen, batch)
        assert all(torch.equal(mine[n], theirs[n]) for n in params) and torch.equal(got.loss, expected.loss)
        params = {n: p - 0.1 * mine[n] for n, p in params.items()}
    assert [kept is not None and isinstance(kept.recording, Recording) for kept in replayed._remembered.values()] == [
        True
    ]
