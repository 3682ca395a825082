"""CIFAR-100, on tiny files of both official layouts."""

import numpy as np
import pytest

from fedtempo.data.parts import TEST
from fedtempo.errors import ConfigError, DataError
from tests import tiny_files as tiny


@pytest.mark.parametrize("form", ["binary", "python"])
def test_both_archives_hold_the_same_rows(tmp_path, tiny_load, form):
    tiny.cifar100(tmp_path, form)
    table = tiny_load("cifar100")
    records = np.concatenate([tiny.cifar100_rows(40, 0), tiny.cifar100_rows(20, 1)])
    assert table.columns["x"].shape == (60, 3, 32, 32) and table.columns["x"].dtype == np.uint8
    np.testing.assert_array_equal(table.columns["x"].reshape(60, -1), records[:, 2:])
    np.testing.assert_array_equal(table.columns["y"], records[:, 1])
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(table.parts) == TEST), np.arange(40, 60))
    coarse = tiny_load("cifar100", labels="coarse")
    np.testing.assert_array_equal(coarse.columns["y"], records[:, 0])
    assert coarse.columns["y"].max() == 19
    with pytest.raises(ConfigError, match=r"labels must be 'fine' or 'coarse'\. Got 'both'"):
        tiny_load("cifar100", labels="both")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda rows: rows[:, :-1], "records of 3074 bytes"),
        (lambda rows: np.where(np.arange(3074) == 0, np.uint8(20), rows), r"coarse labels in \[0, 19\]. Got 20"),
        (lambda rows: np.where(np.arange(3074) == 1, np.uint8(100), rows), r"fine labels in \[0, 99\]. Got 100"),
    ],
)
def test_a_binary_file_of_another_layout_is_refused(tmp_path, tiny_load, change, match):
    rows = change(tiny.cifar100_rows(3, 0)).tobytes()
    members = [(f"cifar-100-binary/{name}.bin", rows) for name in ("train", "test")]
    tiny.put(tmp_path / "cifar100", "cifar-100-binary.tar.gz", tiny.make_tar(members))
    with pytest.raises(DataError, match=match):
        tiny_load("cifar100")


def test_a_described_file_must_hold_what_is_expected(tmp_path, tiny_load):
    rows = tiny.cifar100_rows(3, 0)
    good, coarse = tiny.cifar100_described(rows), tiny.old_text(b"coarse_labels")
    wrong = {
        "two labels for each image": good.replace(b"e" + coarse, b"K\x01e" + coarse),
        "is not one of CIFAR-100's files": good.replace(b"fine_labels", b"find_labels"),
        "rows of 3072 bytes expected": tiny.cifar100_described(rows[:, :-1]),
        "labels must be a list": good.replace(b"](K" + bytes([rows[0, 1]]), b"](N", 1),
    }  # fmt: skip
    for match, content in wrong.items():
        assert content != good
        members = [("cifar-100-python/train", content), ("cifar-100-python/test", good)]
        tiny.put(tmp_path / "cifar100", "cifar-100-python.tar.gz", tiny.make_tar(members))
        with pytest.raises(DataError, match=match):
            tiny_load("cifar100")
    tiny.put(tmp_path / "cifar100", "cifar-100-python.tar.gz", tiny.make_tar(members[1:]))
    with pytest.raises(DataError, match="must hold cifar-100-python/train"):
        tiny_load("cifar100")
