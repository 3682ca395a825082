"""EMNIST, on tiny files of the official layout."""

import numpy as np
import pytest

from fedtempo.errors import ConfigError, DataError
from tests import tiny_files as tiny


@pytest.mark.parametrize("zipped", [True, False])
def test_emnist_images_are_transposed_back(tmp_path, tiny_load, zipped):
    pixels = tiny.emnist(tmp_path, zipped=zipped)
    table = tiny_load("emnist")
    np.testing.assert_array_equal(table.columns["x"][:70, 0], pixels["train"].swapaxes(1, 2))
    assert set(table.columns["y"].tolist()) == set(range(62))


def test_emnist_letters_count_from_zero(tmp_path, tiny_load):
    tiny.emnist(tmp_path, "letters", first=1)
    assert tiny_load("emnist", variant="letters").columns["y"].min() == 0
    with pytest.raises(DataError, match="emnist-digits-train-images"):
        tiny_load("emnist", variant="digits")
    with pytest.raises(ConfigError, match="variant must be one of"):
        tiny_load("emnist", variant="klingon")
