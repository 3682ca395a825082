"""MNIST and Fashion-MNIST, on tiny files of the official layout."""

import gzip

import numpy as np
import pytest

from fedtempo.data import dirichlet, natural
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.errors import DataError
from tests import tiny_files as tiny
from tests.tiny_files import owned


def test_mnist_is_read_with_its_parts_and_writers(tmp_path, tiny_load):
    pixels = tiny.mnist(tmp_path)
    table = tiny_load("mnist")
    assert table.columns["x"].shape == (60, 1, 28, 28)
    assert table.columns["x"].dtype == np.uint8
    np.testing.assert_array_equal(table.columns["x"][:40, 0], pixels["train"])
    np.testing.assert_array_equal(table.columns["x"][40:, 0], pixels["t10k"])
    np.testing.assert_array_equal(table.parts, [TRAIN] * 40 + [TEST] * 20)
    data = table.split(natural(), test=0.2, validation=0.0)
    assert len(data) == 6
    assert len(owned(data)) == 60
    batch = data.client(0)["x"]
    assert batch.shape == (8, 1, 28, 28)
    np.testing.assert_allclose(
        batch.numpy(), (table.columns["x"][data.positions(0)] / 255 - 0.1307) / 0.3081, rtol=1e-4, atol=1e-5
    )


def test_mnist_without_writer_files_has_no_natural_clients(tmp_path, tiny_load):
    tiny.mnist(tmp_path, writers=False)
    table = tiny_load("mnist")
    assert table.keys is None
    with pytest.raises(DataError, match="no natural clients"):
        table.split()


def test_writers_of_other_digits_are_refused(tmp_path, tiny_load):
    tiny.mnist(tmp_path)
    wrong = np.zeros((40, 8), dtype=np.int32)
    tiny.put(tmp_path / "mnist", "qmnist-train-labels-idx2-int.gz", gzip.compress(tiny.idx(wrong)))
    with pytest.raises(DataError, match="must describe the digits"):
        tiny_load("mnist")


def test_fashion_mnist_has_the_same_layout(tmp_path, tiny_load):
    tiny.mnist(tmp_path, "fashion_mnist", writers=False)
    assert len(tiny_load("fashion_mnist").split(dirichlet(clients=3, alpha=5), min_samples=1)) == 3
