"""Every loader on files of its layout that are damaged, altered or mean harm."""

import gzip
import io
import json

import numpy as np
import pytest

from fedtempo.data import load
from fedtempo.data.files.archives import read_zip
from fedtempo.errors import DataError
from tests import tiny_files as tiny
from tests.tiny_files import snapshot

HTML = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"


def write_lines(folder, name, file, text):
    tiny.put(folder / name, file, gzip.compress(text))


HOSTILE_SETS = {
    "mnist": lambda f: (tiny.mnist(f), tiny.put(f / "mnist", "t10k-images-idx3-ubyte.gz", HTML)),
    "emnist": lambda f: tiny.put(f / "emnist", "gzip.zip", tiny.make_zip({"gzip/../../x": b""})),
    "cifar10": lambda f: tiny.put(f / "cifar10", "cifar-10-binary.tar.gz", tiny.make_tar([
        ("cifar-10-batches-bin/data_batch_1.bin", b"\x63" * 3073),
        ("cifar-10-batches-bin/test_batch.bin", b"1" * 3073)])),
    "cifar100": lambda f: tiny.put(f / "cifar100", "cifar-100-python.tar.gz", tiny.make_tar([
        ("cifar-100-python/train", b"\x80\x02cos\nsystem\nU\x04true\x85R."),
        ("cifar-100-python/test", b"\x80\x02N.")])),
    "sentiment140": lambda f: tiny.sentiment140(f, b'"2","3","d","q","u","neutral"\n'),
    "omniglot": lambda f: (tiny.omniglot(f), tiny.put(f / "omniglot", "images_evaluation.zip", tiny.make_zip(
        {"images_evaluation/A/character01/0001_01.png": b"\x89PNG\r\n\x1a\n"}))),
    "femnist": lambda f: (tiny.femnist_json(f), tiny.put(f / "femnist/test", "z.json", b'{"users": ["a"], "num')),
    "shakespeare": lambda f: write_lines(f, "shakespeare", "shakespeare_speeches.jsonl.gz", b'{"play": 3}'),
    "tinyshakespeare": lambda f: tiny.put(f / "shakespeare", "input.txt", HTML),
    "stackoverflow": lambda f: write_lines(f, "stackoverflow", "so_questions_title_tags_users.jsonl.gz", b"[" * 10_000),
    "sst2": lambda f: (tiny.sst2(f), write_lines(f, "sst2", "train.tsv.gz", b"sentence\tlabel\nno label here\n")),
    "cora": lambda f: tiny.planetoid(f, edges=np.array([[0, 99]], dtype=np.int32)),
    "citeseer": lambda f: tiny.planetoid(f, "citeseer", feat_indices=np.full(12, 77, dtype=np.int16)),
    "pubmed": lambda f: tiny.planetoid(f, "pubmed", feat_shape=np.array([2**30, 2**30], dtype=np.int32)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_SETS)
def test_every_loader_refuses_a_damaged_file_with_a_typed_error(tmp_path, elsewhere, name):
    source = tmp_path / "source"
    HOSTILE_SETS[name](source)
    before = snapshot(source)
    with pytest.raises(DataError):
        load(name, data_dir=source, verify=False)
    assert snapshot(source) == before
    written = [path for path in tmp_path.rglob("*") if path.is_file() and source not in path.parents]
    assert all(elsewhere in path.parents for path in written)
    assert not list(elsewhere.rglob("*.npy"))


@pytest.mark.parametrize("name", HOSTILE_SETS)
def test_every_loader_refuses_files_that_are_not_the_published_ones(tmp_path, elsewhere, name):
    if name == "femnist":
        pytest.skip("LEAF's folders are made by its script and have no published sum")
    HOSTILE_SETS[name](tmp_path / "source")
    with pytest.raises(DataError, match=r"must have the SHA-256 [0-9a-f]{64}.* Got [0-9a-f]{64}"):
        load(name, data_dir=tmp_path / "source")


def test_a_leaf_file_with_a_wrong_count_is_refused(tmp_path, elsewhere):
    tiny.femnist_json(tmp_path)
    path = tmp_path / "femnist/train/all_data_0.json"
    content = json.loads(path.read_text())
    content["num_samples"] = [99]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="must have 99 images"):
        load("femnist", data_dir=tmp_path)


def batch(records=1, label=0):
    return (bytes([label]) + bytes(3072)) * records


def gray(side):
    from PIL import Image

    stream = io.BytesIO()
    Image.new("L", (side, side)).save(stream, "PNG")
    return stream.getvalue()


CIFAR, TEST_BATCH = "cifar-10-batches-bin/data_batch_1.bin", "cifar-10-batches-bin/test_batch.bin"
TAR, ZIP, SPEECHES = "cifar-10-binary.tar.gz", "images_background.zip", "shakespeare_speeches.jsonl.gz"
ONE_WRITER = b'{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[2]], "y": [1]}}}'
THREE_LABELS = gzip.compress(tiny.idx(np.zeros(3, np.uint8)))
BROKEN_RULES = [
    ("cifar10", "cifar10", TAR, tiny.make_tar([(CIFAR, batch())]), "must hold .*test_batch.bin"),
    ("cifar10", "cifar10", TAR, tiny.make_tar([(CIFAR, b"x" * 99), (TEST_BATCH, batch())]), "records of 3073"),
    ("omniglot", "omniglot", ZIP, tiny.make_zip({"a/b/c/1_1.png": gray(28)}), "must be 105x105"),
    ("omniglot", "omniglot", ZIP, tiny.make_zip({"a/b/c/d/1_x.png": gray(105)}), "NUMBER_DRAWER"),
    ("mnist", "mnist", "train-labels-idx1-ubyte.gz", THREE_LABELS, "a label for every image"),
    ("femnist", "femnist/train", "z.json", ONE_WRITER, "is not a LEAF file"),
    ("shakespeare", "shakespeare", SPEECHES, gzip.compress(b"\xff\xfe"), "must be UTF-8"),
    ("shakespeare", "shakespeare", SPEECHES, gzip.compress(b'{"play": 1, "role": 2, "text": 3}'), "must be text"),
    ("sst2", "bert_tiny", "vocab.txt", b"a\nb\n", r"must hold \[PAD\]"),
    ("sst2", "sst2", "SST-2.zip", tiny.make_zip({"SST-2/other.tsv": b""}), "must hold SST-2/train.tsv"),
]


@pytest.mark.parametrize(
    ("name", "folder", "file", "content", "message"), BROKEN_RULES, ids=[f"{r[0]}: {r[4]}" for r in BROKEN_RULES]
)
def test_each_layout_has_rules(tmp_path, elsewhere, name, folder, file, content, message):
    make = {"femnist": tiny.femnist_json}.get(name) or getattr(tiny, name)
    make(tmp_path)
    tiny.put(tmp_path / folder, file, content)
    with pytest.raises(DataError, match=message):
        load(name, data_dir=tmp_path, verify=False)


def test_femnist_labels_and_shapes(tmp_path, elsewhere):
    rows = {
        "x_train": np.zeros((2, 28, 28), np.uint8),
        "y_train": np.array([1, 99], np.uint8),
        "w_train": np.zeros(2, np.int16),
    }
    rows |= {name.replace("train", "test"): values for name, values in rows.items()}
    (tmp_path / "femnist").mkdir()
    path = tmp_path / "femnist/femnist_leaf_sample.npz"
    np.savez(path, **rows, writer_ids=np.array(["f1"]))
    with pytest.raises(DataError, match=r"labels in \[0, 61\]"):
        load("femnist", data_dir=tmp_path, verify=False)
    np.savez(path, **{**rows, "y_train": np.zeros(3, np.uint8)}, writer_ids=np.array(["f1"]))
    with pytest.raises(DataError, match="a label and a writer each"):
        load("femnist", data_dir=tmp_path, verify=False)


def test_an_encrypted_zip_is_refused(tmp_path):
    content = bytearray(tiny.make_zip({"a": b"hello"}))
    place = content.index(b"PK\x01\x02")
    content[place + 8] |= 1
    with pytest.raises(DataError, match="encrypted"):
        read_zip(tiny.put(tmp_path, "a.zip", bytes(content)), lambda _: True)
