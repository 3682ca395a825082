"""A federation: which tensors travel, what each client starts from, and how much it counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.parametrizations import weight_norm

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.client.objectives import Received
from fedtempo.federation.federation import Federation
from fedtempo.models.split import resize_head
from fedtempo.training.prepare import prepare
from tests import zoo

BODY, HEAD = {"body.1.weight", "body.1.bias"}, {"head.weight", "head.bias"}


def federation(algorithm: ft.Algorithm, kind: str = "mlp", **settings: Any) -> Federation:
    return prepare(
        model=zoo.model(kind), data=zoo.data(kind), algorithm=algorithm, rounds=1, evaluation=None, **settings
    ).federation


def sent(bound: Federation) -> dict[str, set[str]]:
    """The names that a client sends which has not moved, by group."""
    shared = bound.first_shared()
    extra = bound.algorithm.server.extra(bound.algorithm.server.init(ft.params.select(shared, bound.trained_names)))
    received = Received(shared, extra)
    carry = bound.program.init(received, bound.first_personal(0, shared))
    groups, _, _ = bound.program.finish(received, carry)
    return {group: set(tensors) for group, tensors in groups.items()}


def test_everything_trained_and_shared_is_sent() -> None:
    assert sent(federation(a.fedavg(lr=0.1, steps=1))) == {"delta": BODY | HEAD}
    assert sent(federation(a.fedper(lr=0.1, steps=1))) == {"delta": BODY}
    assert sent(federation(a.local_only(lr=0.1, steps=1))) == {}
    assert sent(federation(a.fedexp(lr=0.1, steps=1))) == {"delta": BODY | HEAD, "squared_norm": {"delta"}}


def test_statistics_of_batch_norm_travel_unless_they_are_personal() -> None:
    statistics = {"body.1.running_mean", "body.1.running_var"}
    assert sent(federation(a.fedavg(lr=0.1, steps=1), "batchnorm"))["buffers"] == statistics
    assert "buffers" not in sent(federation(a.fedbn(lr=0.1, steps=1), "batchnorm"))


def test_what_an_upload_must_look_like_is_what_is_sent() -> None:
    bound = federation(a.scaffold(lr=0.1, steps=1))
    assert {group: set(tensors) for group, tensors in bound.expected.items()} == sent(bound)
    assert bound.expected["delta"]["head.weight"] == (torch.Size([4, 8]), torch.float32)


def test_weights_by_hand() -> None:
    """Client 3 has 20 training rows and, say, has processed 60."""
    by = {w: federation(a.fedavg(lr=0.1, steps=1, weighting=w)) for w in ("uniform", "samples", "processed")}
    assert {kind: bound.weight(3, 60) for kind, bound in by.items()} == {
        "uniform": 1.0,
        "samples": 20.0,
        "processed": 60.0,
    }


def test_a_first_head_depends_on_seed_and_client_alone() -> None:
    one, again = federation(a.fedper(lr=0.1, steps=1)), federation(a.fedper(lr=0.5, steps=9), batch_size=2)
    other = federation(a.fedper(lr=0.1, steps=1), seed=1)
    shared = one.first_shared()
    assert set(one.first_personal(2, shared)) == HEAD
    assert torch.equal(one.first_personal(2, shared)["head.weight"], again.first_personal(2, shared)["head.weight"])
    for different in (one.first_personal(3, shared), other.first_personal(2, shared)):
        assert not torch.equal(one.first_personal(2, shared)["head.weight"], different["head.weight"])


def test_given_tensors_are_where_clients_start() -> None:
    head = {"head.weight": torch.ones(4, 8), "head.bias": torch.zeros(4)}
    common = federation(a.fedper(lr=0.1, steps=1), init={**head, "body.1.bias": torch.full((8,), 3.0)})
    assert all(torch.equal(common.first_personal(c, {})["head.weight"], head["head.weight"]) for c in (0, 5))
    own = federation(a.fedper(lr=0.1, steps=1), init_clients={5: head})
    assert torch.equal(own.first_personal(5, {})["head.weight"], head["head.weight"])
    assert not torch.equal(own.first_personal(0, {})["head.weight"], head["head.weight"])
    with pytest.raises(ft.ConfigError, match=r"init_clients\[5\] must .* personal tensors .*Got 'body.1.bias'"):
        federation(a.fedper(lr=0.1, steps=1), init_clients={5: {"body.1.bias": torch.zeros(8)}})


def test_the_shared_model_never_holds_personal_tensors() -> None:
    bound = federation(a.fedper(lr=0.1, steps=1))
    assert set(bound.first_shared()) == BODY
    with pytest.raises(ft.ModelError, match=r"init\['body.1.bias'\] must have shape \(8,\). Got \(7,\)"):
        bound.first_shared({"body.1.bias": torch.zeros(7)})
    with pytest.raises(ft.ModelError, match=r"init must have the model's tensor names. Got 'nose'"):
        bound.first_shared({"nose": torch.zeros(7)})


def test_who_keeps_anything() -> None:
    keeps = {name: not federation(zoo.ALGORITHMS[name]).keeps_nothing({}) for name in ("fedavg", "fedper")}
    assert keeps == {"fedavg": False, "fedper": True}
    stateful = federation(zoo.ALGORITHMS["scaffold"])
    assert not stateful.keeps_nothing(stateful.first_shared())


def test_rows_are_the_clients_own() -> None:
    bound = federation(a.fedavg(lr=0.1, steps=1))
    picked = bound.problem.rows(np.array([1, 4]), np.array([[0, 3], [9, 9]]))
    for lane, (client, rows) in enumerate([(1, [0, 3]), (4, [9, 9])]):
        assert torch.equal(picked["x"][lane], bound.problem.client_rows(client)["x"][rows])
    held = bound.problem.rows(np.array([2]), np.array([[0, 1, 2]]), part="test")
    assert torch.equal(held["y"][0], bound.problem.client_rows(2, "test")["y"])


def test_heads_are_resized_to_a_clients_classes() -> None:
    model = ft.models.mlp(6, [8], 4)
    resize_head(model, 2)
    assert model.head.weight.shape == (2, 8)
    assert model.head.bias.shape == (2,)
    with pytest.raises(ft.ModelError, match="need a linear layer"):
        resize_head(torch.nn.Sequential(torch.nn.ReLU()), 2)
    with pytest.raises(ft.ModelError, match=r"need a plain linear layer.*whose weight is computed"):
        resize_head(torch.nn.Sequential(weight_norm(torch.nn.Linear(2, 4))), 2)


@pytest.mark.parametrize(
    ("selector", "message"),
    [(ft.params.submodule("nose"), "match some tensors"), (ft.params.everything, "leave something to share")],
)
def test_a_personal_part_is_some_of_the_model(selector: ft.params.Selector, message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        federation(a.fedper(lr=0.1, steps=1, head=selector))


class Attends(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(6, 4)
        self.head = torch.nn.Sequential(weight_norm(torch.nn.Linear(4, 4)), torch.nn.MultiheadAttention(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, attention = self.head
        hidden = first(self.body(x)).unsqueeze(0)
        return attention(hidden, hidden, hidden, need_weights=False)[0].squeeze(0)


def test_every_weight_of_a_personal_head_is_drawn_for_its_client() -> None:
    bound = prepare(
        model=Attends, data=zoo.data("mlp"), algorithm=a.fedper(lr=0.1, steps=1), rounds=1, evaluation=None
    ).federation
    shared = bound.first_shared()
    one, other, again = (bound.first_personal(client, shared) for client in (0, 1, 0))
    for name, value in one.items():
        assert torch.equal(value, again[name])
        # Attention starts with biases of zero.
        assert not torch.equal(value, other[name]) or name in ("head.1.in_proj_bias", "head.1.out_proj.bias"), name
        assert value.any() or name.startswith("head.1."), name
