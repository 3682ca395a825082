"""The cache of decoded arrays."""

import os

import numpy as np
import pytest

from fedtempo.data import load
from fedtempo.errors import DataError, OutputError
from tests import tiny_files as tiny
from tests.programs import Forked
from tests.tiny_files import snapshot
from tests.waiting import PATIENCE, until


def arrays_in(cache):
    return sorted(cache.rglob("*.npy"))


def test_the_second_load_maps_what_the_first_one_wrote(tmp_path, elsewhere, monkeypatch):
    tiny.mnist(tmp_path / "source")
    before = snapshot(tmp_path / "source")
    first = load("mnist", data_dir=tmp_path / "source", verify=False)
    monkeypatch.setattr("fedtempo.data.sets.mnist.read_images", lambda *_: pytest.fail("decoded again"))
    again = load("mnist", data_dir=tmp_path / "source", verify=False)
    assert isinstance(again.columns["x"], np.memmap)
    assert not again.columns["x"].flags.writeable
    np.testing.assert_array_equal(first.columns["x"], again.columns["x"])
    assert snapshot(tmp_path / "source") == before
    assert not [path for path in elsewhere.rglob("*") if path.name.startswith(".") and path.is_dir()]


def test_altered_sources_are_noticed(tmp_path, elsewhere):
    tiny.mnist(tmp_path)
    first = np.array(load("mnist", data_dir=tmp_path, verify=False).columns["y"])
    import gzip

    labels = (9 - np.arange(40) % 10).astype(np.uint8)
    tiny.mnist(tmp_path, writers=False)
    for name in ("qmnist-train-labels-idx2-int.gz", "qmnist-test-labels-idx2-int.gz"):
        (tmp_path / "mnist" / name).unlink()
    tiny.put(tmp_path / "mnist", "train-labels-idx1-ubyte.gz", gzip.compress(tiny.idx(labels)))
    second = load("mnist", data_dir=tmp_path, verify=False).columns["y"]
    assert not np.array_equal(first, second)


def test_altered_arrays_are_refused(tmp_path, elsewhere):
    tiny.mnist(tmp_path)
    load("mnist", data_dir=tmp_path, verify=False)
    path = next(path for path in arrays_in(elsewhere) if path.name == "x.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"cached array .* must have the SHA-256 [0-9a-f]{64}. Got [0-9a-f]{64}"):
        load("mnist", data_dir=tmp_path, verify=False)
    path.unlink()
    with pytest.raises(DataError, match="Got no file"):
        load("mnist", data_dir=tmp_path, verify=False)


def test_copied_arrays_are_hashed_and_accepted(tmp_path, elsewhere):
    tiny.mnist(tmp_path)
    before = load("mnist", data_dir=tmp_path, verify=False)
    for path in arrays_in(elsewhere):
        os.utime(path, (0, 0))
    after = load("mnist", data_dir=tmp_path, verify=False)
    assert all(np.array_equal(after.columns[name], column) for name, column in before.columns.items())


def test_an_interrupted_decoding_leaves_nothing_to_trip_over(tmp_path, elsewhere, monkeypatch):
    tiny.mnist(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("fedtempo.data.files.cache.np.save", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            load("mnist", data_dir=tmp_path, verify=False)
    assert not list(elsewhere.rglob("index.json"))
    lock = next((elsewhere / "arrays" / "mnist").glob(".*.lock"))
    stale = lock.with_suffix(".12345")  # what a killed process leaves
    stale.mkdir()
    assert len(load("mnist", data_dir=tmp_path, verify=False)) == 60
    assert not stale.exists()


def test_two_processes_decode_at_once(tmp_path, elsewhere):
    tiny.mnist(tmp_path)
    other = Forked(lambda: print(load("mnist", tmp_path, verify=False).columns["x"].sum()))
    assert until(lambda: other.poll() is not None or list(elsewhere.rglob("*.json")))
    here = load("mnist", tmp_path, verify=False).columns["x"].sum()
    assert other.communicate(timeout=PATIENCE)[0].strip() == str(here)
    assert len(list(elsewhere.rglob("index.json"))) == 1


@pytest.mark.skipif(os.name == "nt", reason="permissions")
def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDTEMPO_DATA", raising=False)
    tiny.mnist(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OutputError, match="cannot be written"):
        load("mnist", data_dir=tmp_path, cache_dir=blocked / "cache", verify=False)
