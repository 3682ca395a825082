"""Shakespeare and tiny Shakespeare: roles, parts and windows of text."""

import numpy as np
import pytest

from fedtempo.errors import ConfigError, DataError
from tests import tiny_files as tiny


def test_shakespeare_windows_stay_inside_their_part_and_role(tmp_path, tiny_load):
    from fedtempo.data.sets.characters import ALPHABET, CHARACTERS, encoded

    tiny.shakespeare(tmp_path)
    table = tiny_load("shakespeare", window=20)
    data = table.split()
    assert list(data.names) == ["hamlet/HAMLET", "macbeth/HAMLET"]
    x, y = np.asarray(table.columns["x"]), np.asarray(table.columns["y"])
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    spoken = "To be, or not to be: that is the question." * 10 + "\n" + "The end." * 5
    codes = encoded(spoken)
    border = len(codes) - round(len(codes) * 0.2)
    train = x[data.positions(0)]
    np.testing.assert_array_equal(train.reshape(-1), codes[: train.size])
    assert train.size + 1 <= border
    test = x[data.positions(0, "test")]
    np.testing.assert_array_equal(test.reshape(-1), codes[border : border + test.size])
    assert CHARACTERS == 77
    assert x.max() == len(ALPHABET)  # the accented letter is nobody's


def test_next_character_windows_overlap_and_predict_one(tmp_path, tiny_load):
    tiny.shakespeare(tmp_path)
    table = tiny_load("shakespeare", window=20, target="next", stride=1, validation=0.1)
    data = table.split()
    x, y = table.columns["x"], table.columns["y"]
    rows = data.positions(0)
    np.testing.assert_array_equal(x[rows[1:], -1], y[rows[:-1]])
    assert y.ndim == 1
    assert data.sizes("validation")[0] > 0
    with pytest.raises(ConfigError, match="target must be"):
        tiny_load("shakespeare", target="previous")
    with pytest.raises(DataError, match="window must be short enough"):
        tiny_load("shakespeare", window=5000)


def test_a_limit_crops_every_role(tmp_path, tiny_load):
    tiny.shakespeare(tmp_path)
    data = tiny_load("shakespeare", window=20, target="next", stride=1, limit=30).split()
    assert data.sizes("train").tolist() == [30, 30]
    assert data.sizes("test").tolist() == [6, 6]


def test_tinyshakespeare_roles(tmp_path, tiny_load):
    text = (
        "First Citizen:\n" + "Before we proceed any further, hear me speak.\n" * 5 + "\nAll:\n" + "Speak, speak.\n" * 20
    )
    tiny.put(tmp_path / "shakespeare", "input.txt", text.encode())
    assert list(tiny_load("tinyshakespeare", window=20).split().names) == ["First Citizen", "All"]
