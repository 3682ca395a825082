"""CIFAR-10, on tiny files of the official layout."""

import numpy as np

from fedtempo.data.parts import TEST
from tests import tiny_files as tiny


def test_cifar10_reads_five_batches_in_order(tmp_path, tiny_load):
    tiny.cifar10(tmp_path)
    table = tiny_load("cifar10")
    assert table.columns["x"].shape == (110, 3, 32, 32)
    records = np.frombuffer(tiny.cifar_batch(20, 1), np.uint8).reshape(20, 3073)
    np.testing.assert_array_equal(table.columns["x"][20:40].reshape(20, -1), records[:, 1:])
    np.testing.assert_array_equal(table.columns["y"][20:40], records[:, 0])
    assert (np.asarray(table.parts) == TEST).sum() == 10
