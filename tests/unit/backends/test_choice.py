"""Which code trains a model, and how many clients at once."""

from __future__ import annotations

from torch import nn

import fedtempo as ft
from fedtempo.backends import block_size, choose, serial, vectorised


def test_blocks_depend_on_the_model_alone() -> None:
    assert block_size(610, vectorised) == 512
    assert block_size(159_010, vectorised) == 12
    assert block_size(159_010, serial) == block_size(10_000_000, serial) == 1
    assert block_size(610, serial) == 64


def test_auto_looks_at_the_model_and_leaves_workers_to_calibration() -> None:
    small, large, images = nn.Linear(60, 10), nn.Linear(2000, 500), ft.models.cnn((1, 28, 28), 10)
    assert choose("auto", None, None, small, cohort=10.0) == (vectorised, 1, 512, False)
    assert choose("auto", None, None, images, cohort=2.0).backend is serial
    long = choose("auto", None, None, large, cohort=10.0)
    assert (long.backend, long.block) == (serial, 1) and long.calibrates == (long.workers > 1)
    assert choose("auto", 1, None, large, cohort=10.0) == (serial, 1, 1, False)
    assert choose("serial", None, None, large, cohort=10.0) == (serial, 1, 1, False)
    assert choose("vectorised", 3, 7, large, cohort=1.0) == (vectorised, 3, 7, False)
    assert str(choose("vectorised", 3, 7, large, 1.0)) == "vectorised code in 3 processes, 7 clients to a block"
