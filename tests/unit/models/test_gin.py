"""The graph network against torch_geometric's layers, with and without padding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from fedtempo.client.network import Network, tensors_of
from fedtempo.errors import ConfigError
from fedtempo.models import gin
from fedtempo.models.gin import _received
from fedtempo.models.weights import build

IGNORED = -100


def graph(nodes: int, links: int, padded_nodes: int, padded_links: int, seed: int = 0) -> dict[str, Tensor]:
    """One client's batch in the convention of fedtempo.data.sets.planetoid."""
    draw = torch.Generator().manual_seed(seed)
    half = torch.randint(nodes, (links, 2), generator=draw)
    edges = torch.cat([half, half.flip(1), torch.full((padded_links, 2), nodes + padded_nodes - 1)])
    x = torch.randn(nodes, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(3, (nodes,), generator=draw)
    y[::3] = IGNORED
    return {
        "x": F.pad(x, (0, 0, 0, padded_nodes))[None],
        "edges": edges[None],
        "mask": (torch.arange(nodes + padded_nodes) < nodes)[None],
        "y": F.pad(y, (0, padded_nodes), value=IGNORED)[None],
    }


def inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in ("x", "edges", "mask")}


def test_parameters_are_as_counted_by_hand():
    first, middle, second = 500 * 64 + 64 + 2 * 64, 64 * 64 + 64, 64 * 64 + 64 + 2 * 64
    assert first + middle + second + 64 * 3 + 3 == 40_835
    assert sum(p.numel() for p in gin().parameters()) == 40_835


def test_outputs_are_the_head_of_the_body_and_the_seed_decides():
    batch = graph(10, 15, padded_nodes=1, padded_links=0)
    model = build(gin(6), 1)[0].double().eval()
    assert model(**inputs(batch)).shape == (1, 11, 3)
    assert torch.equal(model(**inputs(batch)), model.head(model.body(**inputs(batch))))
    first, again, other = (build(gin(6), seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_the_sums_are_right_on_a_path_of_three_nodes():
    model = gin(1, outputs=1, hidden=1, layers=1).double().eval()
    for name, value in model.named_parameters():
        value.data.fill_(0.0 if name.endswith("bias") else 1.0)
    model.body.first.norm.eps = 0.0
    edges = torch.tensor([[[0, 1], [1, 0], [1, 2], [2, 1], [3, 3]]])
    x = torch.tensor([[[1.0], [10.0], [100.0], [0.0]]], dtype=torch.float64)
    outputs = model(x, edges, torch.tensor([[True, True, True, False]]))
    assert outputs.flatten().tolist() == [11.0, 111.0, 110.0, 0.0]


def test_what_neighbours_send_and_its_gradient_are_those_of_the_adjacency_matrix_for_rows_and_lanes():
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, 7, 4, generator=draw, dtype=torch.float64)
    edges = torch.randint(7, (2, 3, 20, 2), generator=draw)
    adjacency = torch.zeros(2, 3, 7, 7, dtype=torch.float64)
    for lane, row, edge in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(20)):
        sender, receiver = edges[lane, row, edge]
        adjacency[lane, row, receiver, sender] += 1

    def loss(x: Tensor, edges: Tensor) -> Tensor:
        return _received(x, *edges.unbind(-1)).square().sum()

    def dense(x: Tensor, adjacency: Tensor) -> Tensor:
        return (adjacency @ x).square().sum()

    torch.testing.assert_close(vmap(grad(loss))(x, edges), vmap(grad(dense))(x, adjacency), rtol=0, atol=1e-12)
    together = vmap(grad(loss), in_dims=(0, None))(x, edges[0])
    torch.testing.assert_close(together, vmap(grad(dense), in_dims=(0, None))(x, adjacency[0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(grad(loss)(x[1], edges[1]), grad(dense)(x[1], adjacency[1]), rtol=0, atol=1e-12)


# torch_geometric calls typing's inner function as Python 3.12 had it
@pytest.mark.filterwarnings("ignore:Failing to pass a value to the 'type_params' parameter:DeprecationWarning")
@pytest.mark.parametrize("train", [True, False])
def test_it_is_torch_geometrics_gin(train):
    geometric = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    model = gin(6, dropout=0.0).double().train(train)
    body = model.body
    convolution = body.convolutions[0]
    reference = [
        geometric.GINConv(nn.Sequential(layer.linear, nn.BatchNorm1d(64).double().train(train), nn.ReLU(), last))
        for layer, last in ((body.first, body.linears[0]), (convolution, model.head))
    ]
    batch = graph(12, 20, padded_nodes=4, padded_links=5)
    found = model(**inputs(batch))[0, :12]
    x, edges = batch["x"][0, :12], batch["edges"][0, :40].T
    expected = reference[1](F.relu(reference[0](x, edges)), edges)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for ours, theirs in ((body.first, reference[0]), (convolution, reference[1])):
        for name, buffer in theirs.nn[1].named_buffers():
            torch.testing.assert_close(getattr(ours.norm, name), buffer, rtol=1e-12, atol=1e-12)


def test_padding_changes_neither_predictions_nor_statistics():
    tight, loose = graph(10, 15, 1, 0), graph(10, 15, 8, 20)
    first, second = (build(gin(6, dropout=0.0), 3)[0].double() for _ in range(2))
    outputs = first(**inputs(tight))[:, :10], second(**inputs(loose))[:, :10]
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dict(first.named_buffers()), dict(second.named_buffers()), rtol=1e-12, atol=1e-12)


def test_lanes_side_by_side_are_lanes_one_by_one():
    network = Network(gin(6))
    lanes = [tensors_of(build(gin(6), seed)[0], torch.float64, "cpu") for seed in range(2)]
    rows = [
        {**graph(10, 15, 3, 4, seed=1), "_key": torch.tensor(8)},
        {**graph(12, 16, 1, 2, seed=2), "_key": torch.tensor(9)},
    ]

    def step(params, batch):
        def loss(weights):
            buffers = {name: params[name].clone() for name in network.buffers}
            outputs = network.forward_updating({**weights, **buffers}, batch, train=True)
            return F.cross_entropy(outputs.flatten(0, 1), batch["y"].flatten(), ignore_index=IGNORED), buffers

        return grad(loss, has_aux=True)({name: params[name] for name in network.parameters})

    stacked = [{name: torch.stack([part[name] for part in parts]) for name in parts[0]} for parts in (lanes, rows)]
    together = vmap(step)(*stacked)
    evaluated = vmap(network.forward)(*stacked)
    for lane, (params, batch) in enumerate(zip(lanes, rows, strict=True)):
        alone = step(params, batch)
        mine = [{name: value[lane] for name, value in part.items()} for part in together]
        torch.testing.assert_close(mine, list(alone), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(evaluated[lane], network.forward(params, batch), rtol=1e-12, atol=1e-12)
        assert int(mine[1]["body.first.norm.num_batches_tracked"]) == 1


def test_a_size_outside_its_rule_is_named():
    with pytest.raises(ConfigError, match=r"layers must be an int >= 1\. Got 0\."):
        gin(layers=0)
