"""Sums of uploads: means by hand, the same bits in any grouping, and numbers that are left out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from fedtempo.server.sums import BlockSum, Failure, mean, total

WEIGHTS = [1.0, 2.0, 5.0]
DELTAS = [torch.tensor([4.0, 0.0]), torch.tensor([-1.0, 1.0]), torch.tensor([0.4, -0.2])]
NORMS = [torch.tensor(16.0), torch.tensor(2.0), torch.tensor(0.2)]


def block(*lanes: int, factor: float = 1.0) -> BlockSum:
    """The sum over some of the three clients, with weights times a factor."""
    result = BlockSum()
    for lane in lanes:
        weight = factor * WEIGHTS[lane]
        result.add_clients(np.array([weight]), np.array([1.0 + lane]), {"clipped_steps": np.array([lane * 2.0])})
        result.add_upload({"delta": {"w": DELTAS[lane]}, "norms": {"n": NORMS[lane]}}, weight, unweighted={"norms"})
    return result


def test_means_by_hand() -> None:
    """(1 * 4 + 2 * -1 + 5 * 0.4) / 8 and (2 * 1 - 5 * 0.2) / 8; an unweighted group is divided by three clients."""
    result = mean(block(0, 1, 2), {"norms"}, torch.float64)
    assert result.means["delta"]["w"].tolist() == pytest.approx([0.5, 0.125])
    assert float(result.means["norms"]["n"]) == pytest.approx(18.2 / 3)
    assert (result.weight, result.clients) == (8.0, 3)


def test_losses_and_measurements_by_hand() -> None:
    result = block(0, 1, 2)
    assert result.loss.value / result.loss_weight == pytest.approx((1 * 1 + 2 * 2 + 5 * 3) / 8)
    assert result.measurements["clipped_steps"].value == 6.0


def test_any_grouping_has_the_same_bits() -> None:
    whole = mean(block(0, 1, 2), {"norms"}, torch.float32)
    for order in itertools.permutations(range(3)):
        for cut in range(4):
            parts = total([block(*order[:cut]), block(*order[cut:])])
            again = mean(parts, {"norms"}, torch.float32)
            assert torch.equal(again.means["delta"]["w"], whole.means["delta"]["w"])
            assert torch.equal(again.means["norms"]["n"], whole.means["norms"]["n"])
            assert parts.loss.value == block(0, 1, 2).loss.value


@pytest.mark.parametrize("factor", [2.0, 0.25])
def test_weights_count_by_their_ratio_alone(factor: float) -> None:
    one, other = (mean(block(0, 1, 2, factor=f), {"norms"}, torch.float32) for f in (1.0, factor))
    assert torch.equal(one.means["delta"]["w"], other.means["delta"]["w"])
    assert torch.equal(one.means["norms"]["n"], other.means["norms"]["n"])
    assert other.weight == factor * one.weight


def test_a_loss_that_is_not_finite_is_left_out_and_counted() -> None:
    result = BlockSum()
    losses, lengths = np.array([1.0, math.nan, 3.0]), np.array([1.0, 2.0, math.inf])
    result.add_clients(np.array([1.0, 7.0, 3.0]), losses, {"length": lengths})
    assert (result.weight, result.clients) == (11.0, 3)
    assert result.loss.value / result.loss_weight == (1 * 1 + 3 * 3) / 4
    assert result.measurements["losses_left_out"].value == 1.0
    assert result.measurements["length"].value == 3.0


def test_blocks_keep_what_clients_leave_in_order() -> None:
    parts = []
    for client in (4, 2, 7):
        part = BlockSum(failures=[Failure(client, "late")], norms=[float(client)])
        part.personal[client] = {"head": torch.tensor([float(client)])}
        part.each.append((1.0, {"w": torch.tensor([float(client)])}))
        parts.append(part)
    result = total(parts)
    assert [failure.client for failure in result.failures] == result.norms == [4, 2, 7]
    assert {client: float(own["head"]) for client, own in result.personal.items()} == {4: 4.0, 2: 2.0, 7: 7.0}
    assert [float(upload["w"]) for _, upload in result.each] == [4.0, 2.0, 7.0]


def test_uploads_that_weigh_nothing_move_nothing() -> None:
    """`weighting="processed"` gives a client that was stopped before it touched shared tensors the weight 0."""
    block = BlockSum()
    block.add_clients(np.zeros(2), np.ones(2), {})
    block.add_upload({"delta": {"w": torch.ones(1)}}, 0.0)
    assert mean(block, (), torch.float32).means["delta"]["w"].tolist() == [0.0]
