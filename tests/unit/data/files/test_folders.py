"""Where files are found, and how their fingerprints are taken."""

import os
import time

import pytest

from fedtempo.data import load
from fedtempo.errors import DataError
from tests import tiny_files as tiny


def test_a_missing_file_is_named_with_address_and_folder(tmp_path, elsewhere):
    with pytest.raises(DataError) as caught:
        load("mnist", data_dir=tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    for part in (
        "train-images-idx3-ubyte.gz",
        "https://ossci-datasets",
        str(tmp_path / "mnist"),
        "fedtempo data get mnist",
    ):
        assert part in text
    tiny.mnist(tmp_path, writers=False)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"needs t10k-labels-idx1-ubyte\.gz"):
        load("mnist", data_dir=tmp_path)
    with pytest.raises(DataError, match=r"Get it from https://github.com/TalwalkarLab/leaf"):
        load("femnist", data_dir=tmp_path)


def test_files_are_found_by_the_variable_and_below_the_folder_itself(tmp_path, elsewhere, monkeypatch):
    tiny.mnist(tmp_path)
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path))
    assert len(load("mnist", verify=False)) == 60
    assert len(load("mnist", data_dir=tmp_path / "mnist", verify=False)) == 60


def test_a_fingerprint_is_taken_again_when_the_file_changes(tmp_path):
    from fedtempo.data.files.folders import fingerprint_of

    path = tiny.put(tmp_path, "a", b"one")
    first = fingerprint_of(path, tmp_path / "cache")
    assert fingerprint_of(path, tmp_path / "cache") == first
    path.write_bytes(b"two")
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 10**9))
    assert fingerprint_of(path, tmp_path / "cache") != first
