"""Named tensors: arithmetic, norms, selectors."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import nn

from fedtempo.params import (
    Selector,
    add,
    all_finite,
    combine,
    everything,
    matching,
    norm,
    nothing,
    of_type,
    partition,
    plain_norm,
    scaled,
    size_in_bytes,
    squared_norm,
    submodule,
    subtract,
    tree_map,
    without_prefix,
    zeros_like,
)


def test_a_sum_that_overflows_is_still_finite() -> None:
    assert all_finite([torch.full((4,), 3e38)])
    assert all_finite([torch.full((4,), 1e308, dtype=torch.float64), torch.arange(3)])
    assert not all_finite([torch.zeros(3), torch.tensor([1.0, float("inf"), float("-inf")])])
    assert not all_finite([torch.tensor([float("nan")])])


PARAMS = {"body.w": torch.tensor([3.0, 0.0]), "body.n": torch.tensor([0.0]), "head.w": torch.tensor([[4.0]])}


def test_partition_and_combine_are_inverse() -> None:
    for names in ({"head.w"}, {"body.w", "head.w"}, set(), set(PARAMS)):
        named, others = partition(PARAMS, names)
        assert set(named) == names and not set(named) & set(others)
        assert combine(others, named) == PARAMS
    assert combine({"a": torch.tensor(1.0)}, {"a": torch.tensor(2.0)})["a"] == 2.0


def test_arithmetic_by_hand() -> None:
    twice = add(PARAMS, PARAMS)
    assert twice["body.w"].tolist() == [6.0, 0.0]
    for half in (0.5, torch.tensor(0.5)):
        assert add(PARAMS, twice, half)["head.w"].tolist() == [[8.0]]
        assert scaled(twice, half)["head.w"].tolist() == [[4.0]]
    assert float(norm(PARAMS)) == 5.0
    assert plain_norm(PARAMS) == 5.0
    assert float(squared_norm(PARAMS)) == 25.0
    assert float(squared_norm({})) == 0.0
    assert float(norm(subtract(twice, PARAMS))) == 5.0
    assert not any(t.any() for t in zeros_like(PARAMS).values())
    assert size_in_bytes({**PARAMS, "mask": torch.zeros(3, dtype=torch.bool)}) == 4 * 4 + 3


class Pair(NamedTuple):
    first: torch.Tensor
    rest: tuple[dict[str, torch.Tensor], ...]


def test_a_norm_under_vmap_is_no_number() -> None:
    found = []
    torch.func.vmap(lambda w: found.append(plain_norm({"w": w})) or w)(torch.ones(2, 3))
    assert found == [None]


def test_tree_map_keeps_the_form_of_the_tree() -> None:
    one = Pair(torch.tensor(1.0), ({"a": torch.tensor(2.0)}, {}))
    added = tree_map(lambda a, b: a + b, one, one)
    assert isinstance(added, Pair)
    assert (float(added.first), float(added.rest[0]["a"]), added.rest[1]) == (2.0, 4.0, {})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.head = nn.Linear(3, 1, bias=False)
        self.heading = nn.Linear(1, 1)


BATCH_NORM = {f"body.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}


def test_selectors_by_hand() -> None:
    net = Net()
    assert submodule("head").names(net) == {"head.weight"}  # and not `heading`
    assert of_type(nn.BatchNorm1d).names(net) == BATCH_NORM
    assert matching("*.bias").names(net) == {"body.0.bias", "body.1.bias", "heading.bias"}
    assert (~submodule("body")).names(net) == {"head.weight", "heading.weight", "heading.bias"}
    assert everything.names(net) == set(net.state_dict())
    assert not nothing.names(net)
    assert repr(~submodule("body")) == "not submodule 'body'"


LAYERS = nn.ModuleDict(
    {
        "body": nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)),
        "head": nn.Linear(3, 1),
    }
)
TENSORS = everything.names(LAYERS)


def chosen(selector: Selector) -> frozenset[str]:
    return selector.names(LAYERS)


PAIRS = [
    (submodule("head"), matching("*.bias")),
    (of_type(nn.BatchNorm1d), submodule("body.*")),
    (matching("body.0.*", "head.*"), nothing),
    (everything, submodule("body.1")),
]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_selectors_are_sets(a: Selector, b: Selector) -> None:
    assert chosen(a | b) == chosen(a) | chosen(b)
    assert chosen(a & b) == chosen(a) & chosen(b)
    assert chosen(~a) == TENSORS - chosen(a)
    assert chosen(~(a | b)) == chosen(~a & ~b)


def test_patterns() -> None:
    assert chosen(submodule("body.*")) == {n for n in TENSORS if n.startswith("body.")}
    assert chosen(matching("*.0.*", "head.bias")) == {"body.0.weight", "body.0.bias", "head.bias"}


def test_they_print_as_they_compose() -> None:
    assert repr(~submodule("head") & matching("*.bias")) == "(not submodule 'head' and names like '*.bias')"


def test_tensors_under_a_prefix_lose_it() -> None:
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    assert without_prefix({"last/w": one, "w": two}, "last/") == {"w": one}
