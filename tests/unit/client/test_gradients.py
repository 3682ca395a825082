"""Ways to a gradient: by hand, and replayed recordings that have the bits of the tape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedtempo.client.gradients import (
    MOST_RECORDINGS,
    GradientOf,
    Replayed,
    by_autograd,
    by_transform,
    by_transform_together,
)
from fedtempo.client.network import Network, tensors_of
from fedtempo.client.objectives import Value
from fedtempo.client.recording import Recording
from fedtempo.errors import TrainingError
from fedtempo.models import character_gru, character_transformer, gin, mlp, word_average
from fedtempo.models.weights import build
from fedtempo.params import Params
from fedtempo.tasks import TASKS, Batch, mean_loss


def value_of(network: Network, task: str) -> Callable[[Params, Params, Batch], Value]:
    def value(params: Params, frozen: Params, batch: Batch) -> Value:
        after = {n: p.clone() for n, p in frozen.items() if n in network.buffers}
        loss = mean_loss(TASKS[task], network.forward_updating({**frozen, **params, **after}, batch, True), batch, None)
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
    tensors = tensors_of(build(MODELS[name], 3)[0], torch.float32, "cpu")
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
    tensors = tensors_of(build(gin(6, dropout=0.0), 3)[0], torch.float32, "cpu")
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
    tensors = tensors_of(build(make, 3)[0], torch.float64, "cpu")
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


def cubic(params: Params, frozen: Params, batch: Batch) -> Value:
    """a w^3 + b w, of which only a w^3 is reported; the gradient is 3 a w^2 + b."""
    loss = (batch["a"] * params["w"] ** 3).sum()
    return Value(loss + (frozen["b"] * params["w"]).sum(), loss, {"n": frozen["b"] + 1})


def test_every_way_to_the_gradient_by_hand() -> None:
    """At w = 2 and w = -1 with a = 5, b = 7: 3 * 5 * 4 + 7 and 3 * 5 * 1 + 7."""
    params, frozen, batch = (
        {"w": torch.tensor([2.0, -1.0])},
        {"b": torch.tensor([7.0, 7.0])},
        {"a": torch.tensor([5.0, 5.0])},
    )
    for way in (by_autograd, by_transform, Replayed(by_autograd)):
        gradient, value = way(cubic, params, frozen, batch)
        assert gradient["w"].tolist() == [67.0, 22.0]
        assert (float(value.total), float(value.loss)) == (5 * 8 + 14 - 5 - 7, 35.0)
        assert value.buffers["n"].tolist() == [8.0, 8.0]
        assert not value.total.requires_grad
    assert not params["w"].requires_grad


def test_lanes_together_have_the_gradients_of_each() -> None:
    params = {"w": torch.tensor([[2.0], [-1.0], [0.5]])}
    frozen, batch = {"b": torch.tensor([[7.0], [1.0], [0.0]])}, {"a": torch.tensor([[5.0], [2.0], [4.0]])}
    gradient, value = by_transform_together(cubic, params, frozen, batch)
    assert gradient["w"].tolist() == [[67.0], [7.0], [3.0]]
    assert value.loss.tolist() == [40.0, -2.0, 0.5]


def test_a_parameter_that_the_objective_ignores_has_a_gradient_of_zero() -> None:
    def ignores(params: Params, frozen: Params, batch: Batch) -> Value:
        loss = params["used"].sum()
        return Value(loss, loss, {})

    params = {"used": torch.ones(2), "unused": torch.ones(3)}
    for way in (by_autograd, by_transform):
        gradient, _ = way(ignores, params, {}, {})
        assert gradient["used"].tolist() == [1.0, 1.0]
        assert gradient["unused"].tolist() == [0.0, 0.0, 0.0]
