"""Why SecAgg+ is not used (docs/secure-aggregation.md): what was found must hold in the Flower that is here.

If one of these fails, Flower has changed. Measure again, and look again whether it can be used.
"""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from benchmarks import secure_aggregation as measured
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fedtempo.server.exact_sums import empty_sum


def test_exact_sums_go_through_as_digits_bit_for_bit() -> None:
    nodes = measured.problem(4, 300)
    total = empty_sum(torch.zeros(300))
    for node in nodes.values():
        total.add(torch.from_numpy(node.vectors[0]), node.weight)
    uploads = {number: measured.exact_of(node.vectors[0], node.weight) for number, node in nodes.items()}
    sent = {number: measured.Node(measured.encoded(upload), 1000) for number, upload in uploads.items()}
    limits = {"clipping_range": 2.0**19, "quantization_range": 1 << 20, "max_weight": 1000.0}
    mean, grid, _ = measured.run(sent, **limits)
    high, low = measured.decoded(mean, 4)
    assert np.array_equal(high, total.high.numpy())
    assert np.array_equal(low, total.low.numpy())
    assert grid.exchanges == 4


def test_a_mask_has_32_bits_whatever_its_key() -> None:
    key = secrets.token_bytes(32)
    short = measured.folded(key).to_bytes(4, "little")
    (long_mask,), (short_mask,) = (pseudo_rand_gen(each, 1 << 32, [(50,)]) for each in (key, short))
    assert np.array_equal(long_mask, short_mask)
    seeds = np.array([measured.folded(key)], dtype=np.uint32)
    assert measured.outputs(seeds, 5)[:, 0].tolist() == long_mask[:5].tolist()


def test_a_node_that_leaves_before_it_has_uploaded_costs_the_round() -> None:
    nodes = measured.problem(6, 20)
    result, grid, _ = measured.run(nodes, {next(iter(nodes)): "share_keys"})
    assert result is None
    assert len(grid.errors) == 5


def test_weights_are_in_the_clear_and_lists_are_not_compared() -> None:
    nodes = measured.problem(3, 20)
    _, grid, _ = measured.run(nodes)
    assert all(node.weight in grid.in_the_clear[number] for number, node in nodes.items())
    assert measured.both_lists()
