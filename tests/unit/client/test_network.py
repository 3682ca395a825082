"""The model as a pure function."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client.network import Network
from tests.unit.client.test_gradients import Own


def test_code_of_the_users_own_is_known_from_ours() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    assert not Network(Own()).is_known()
    assert not Network(nn.Sequential(nn.Linear(2, 2), Own())).is_known()
    assert Network(nn.Linear(2, 2)).is_known() and not Network(nn.Linear(2, 2)).hooked()
    assert Network(hooked).hooked()


@pytest.mark.parametrize("index", [6, 20, -1])
def test_side_by_side_no_client_reads_the_embedding_of_another(index: int) -> None:
    """Torch has one long table of all clients' rows: index 6 of the first of two clients is row 0 of the second's."""
    network = Network(nn.Embedding(6, 2))
    tables, rows = torch.arange(24.0).reshape(2, 6, 2), torch.tensor([[0, 5], [5, 3]])
    look_up = torch.func.vmap(lambda table, x: network.forward({"weight": table}, {"x": x}))
    assert look_up(tables, rows).equal(torch.stack([tables[0][rows[0]], tables[1][rows[1]]]))
    rows[0, 1] = index
    for kind in (torch.int64, torch.int32):
        with pytest.raises(IndexError, match="out of range"):
            look_up(tables, rows.to(kind))


def test_both_copies_share_the_models_weights_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3), nn.Linear(3, 3, bias=False))
    model[0].requires_grad_(False)
    model[2].weight = model[0].weight  # tied
    model[1].weight.grad = torch.ones(3)
    network = Network(model)
    for copied in (network.training, network.evaluating):
        for name, own in model.named_parameters():
            assert copied.get_parameter(name).data_ptr() == own.data_ptr(), name
            assert not copied.get_parameter(name).requires_grad and copied.get_parameter(name).grad is None
        for name, own in model.named_buffers():
            assert copied.get_buffer(name).data_ptr() != own.data_ptr(), name
        assert copied[2].weight is copied[0].weight
    assert [p.requires_grad for p in model.parameters()] == [False, True, True]
    assert network.training is not network.evaluating and network.frozen == {"0.weight"}


def test_calls_and_training_leave_the_shared_weights_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    network, given = Network(model), {name: torch.ones_like(t) for name, t in before.items()}
    network.forward(given, {"x": torch.randn(4, 3)}, train=True)
    assert torch.equal(given["1.running_mean"], torch.ones(2)), "a forward pass alone writes nothing"
    network.forward_updating(given, {"x": torch.randn(4, 3)}, train=True)
    assert not torch.equal(given["1.running_mean"], torch.ones(2)), "buffers that were given are written"
    rows = np.random.default_rng(0).standard_normal((8, 3))
    data = ft.data.FederatedData.from_clients([(rows, np.arange(8) % 2)] * 2)
    ft.run(model=model, data=data, algorithm=ft.algorithms.fedavg(0.5, 3), rounds=2, progress=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Quantised(nn.Parameter):
    """A parameter that remembers more than a tensor."""


def test_a_parameter_of_another_kind_is_copied_as_it_copies_itself() -> None:
    model = nn.Linear(2, 2, bias=False)
    model.weight = Quantised(torch.ones(2, 2))
    copied = Network(model).training.weight
    assert type(copied) is Quantised and copied.data_ptr() != model.weight.data_ptr()


def test_layers_that_are_taken_one_by_one_are_in_the_order_of_the_model() -> None:
    """A ReLU may go behind the pooling that follows it, but not where somebody keeps what is between them."""

    class Tapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            taps = []
            for layer in self.features:
                x = layer(x)
                taps.append(x.flatten(1).sum(1))
            return torch.stack(taps, 1)

    torch.manual_seed(0)
    model, x = Tapped(), torch.randn(4, 1, 8, 8)
    network = Network(model)
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    for train in (True, False):
        assert torch.equal(network.forward(tensors, {"x": x}, train=train), model(x).detach())


def test_gradients_of_sparse_embeddings_are_dense_and_the_users_module_stays_sparse() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Linear(3, 2))
    network, weight = Network(model), model[0].weight
    params = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    rows = torch.tensor([1, 1, 8])
    (ours,) = torch.autograd.grad(network.forward(params, {"x": rows}, train=True).sum(), [params["0.weight"]])
    (theirs,) = torch.autograd.grad(model(rows).sum(), [weight])
    assert theirs.is_sparse and not ours.is_sparse and torch.equal(ours, theirs.to_dense())
