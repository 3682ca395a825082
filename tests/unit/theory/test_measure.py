"""Which clients and rows are measured."""

import numpy as np
import torch

from fedtempo.data import FederatedData
from fedtempo.theory.measure import sample_clients


def test_sampling_is_seeded_and_bounded():
    data = FederatedData.from_clients([(np.random.rand(9, 2), np.arange(9) % 2) for _ in range(6)], new_clients=2)
    first, again, other = (sample_clients(data, clients=3, rows=5, seed=s) for s in (0, 0, 1))
    assert len(first) == 3
    assert all(len(batch["y"]) == 5 for batch in first)
    assert first[0]["x"].dtype == torch.float64
    assert all(torch.equal(a["x"], b["x"]) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a["x"], b["x"]) for a, b in zip(first, other, strict=True))
    assert len(sample_clients(data, clients=100)) == 4
