"""Files that are damaged or mean harm: a typed error, and not a byte outside the cache."""

import gzip
import io
import json
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import tiny_files as tiny
from conftest import snapshot

from fedtempo.data import load
from fedtempo.data.archives import read_tar_gz, read_zip
from fedtempo.data.idx import read_idx
from fedtempo.data.safefiles import gunzip, read_npy, read_npz
from fedtempo.errors import DataError

HTML = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
GOOD = gzip.compress(tiny.idx(np.arange(60, dtype=np.uint8).reshape(5, 3, 4)))


def header(*shape, code=0x08):
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HTML, "HTML page"),
        (b"", "begins with nothing"),
        (GOOD[:-12], "damaged|cut short"),
        (GOOD[:30], "damaged|cut short"),
        (GOOD[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(HTML), "must be an idx file"),
        (gzip.compress(header(5, 12) + bytes(60)), "must be an idx file of 3 dimensions"),
        (gzip.compress(header(5, 3, 4, code=0x99) + bytes(60)), "must be an idx file"),
        (gzip.compress(header(5, 3, 4) + bytes(59)), "cut short"),
        (gzip.compress(header(5, 3, 4) + bytes(61)), "is longer than the 60 bytes"),
        (gzip.compress(header(2**32 - 1, 2**32 - 1, 2**32 - 1)), "must unpack to at most"),
        (gzip.compress(header(1 << 12, 1 << 10, 1 << 6) + bytes(1 << 28)), "must unpack to at most"),
    ],
    ids=[
        "html",
        "empty",
        "truncated",
        "short",
        "crc",
        "magic",
        "dimensions",
        "type",
        "missing",
        "extra",
        "huge",
        "bomb",
    ],
)
def test_idx_files(content, message):
    with pytest.raises(DataError, match=message):
        read_idx(content, "x.gz", 3)


def test_a_good_idx_file_is_read():
    assert read_idx(GOOD, "x.gz", 3).shape == (5, 3, 4)


def test_a_gzip_bomb_stops_at_the_limit():
    bomb = gzip.compress(bytes(1 << 26))
    with pytest.raises(DataError, match="at most 200 times"):
        gunzip(bomb, "bomb.gz")


def linked(kind, name, target="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


TARS = {
    "parent": [("cifar-10-batches-bin/../../evil", b"x")],
    "absolute": [("/tmp/evil", b"x")],
    "backslash": [("..\\evil", b"x")],
    "drive": [("C:evil", b"x")],
    "symlink": [(linked(tarfile.SYMTYPE, "cifar-10-batches-bin"), b"")],
    "hardlink": [(linked(tarfile.LNKTYPE, "a"), b"")],
    "device": [(linked(tarfile.CHRTYPE, "a"), b"")],
    "fifo": [(linked(tarfile.FIFOTYPE, "a"), b"")],
    "twice": [("a", b"1"), ("a", b"2")],
    "long name": [("a" * 4096, b"1")],
    "bomb": [("cifar-10-batches-bin/data_batch_1.bin", bytes(1 << 26))],
}


@pytest.mark.parametrize("kind", TARS)
def test_hostile_tars_are_refused_before_a_member_is_read(tmp_path, kind):
    path = tiny.put(tmp_path, "a.tar.gz", tiny.make_tar(TARS[kind]))
    before = snapshot(tmp_path)
    read = []
    with pytest.raises(DataError):
        read_tar_gz(path, lambda name: read.append(name) or True)
    assert read == []
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "content", [HTML, gzip.compress(HTML * 40), gzip.compress(b""), GOOD], ids=["html", "text", "empty", "idx"]
)
def test_what_is_not_a_tar_is_refused(tmp_path, content):
    with pytest.raises(DataError):
        read_tar_gz(tiny.put(tmp_path, "a.tar.gz", content), lambda _: True)


def test_a_truncated_tar_is_refused(tmp_path):
    content = tiny.make_tar([("cifar-10-batches-bin/data_batch_1.bin", np.random.default_rng(0).bytes(100_000))])
    with pytest.raises(DataError, match="damaged"):
        read_tar_gz(tiny.put(tmp_path, "a.tar.gz", content[:-5000]), lambda _: True)


def test_a_tar_header_cannot_ask_for_more_memory_than_the_file_warrants(tmp_path):
    info = tarfile.TarInfo("././@PaxHeader")
    info.type = tarfile.XHDTYPE
    path = tiny.put(tmp_path, "a.tar.gz", tiny.make_tar([(info, b"30 path=" + b"a" * (1 << 26))]))
    with pytest.raises(DataError, match="at most 200 times"):
        read_tar_gz(path, lambda _: True)


def zip_with(name, content=b"x", mode=0o100644, twice=False):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for _ in range(1 + twice):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "content",
    [
        zip_with("../evil"),
        zip_with("/tmp/evil"),
        zip_with("a/../../evil"),
        zip_with("..\\evil"),
        zip_with("link", b"/etc/passwd", 0o120777),
        zip_with("n" * 4096),
        zip_with("bomb", bytes(1 << 26)),
        HTML,
        b"PK\x03\x04 not really",
        zip_with("a", b"hello" * 100)[:60],
    ],
    ids=["parent", "absolute", "inner", "backslash", "symlink", "long", "bomb", "html", "fake", "truncated"],
)
def test_hostile_zips_are_refused_before_a_member_is_read(tmp_path, content):
    path = tiny.put(tmp_path, "a.zip", content)
    before = snapshot(tmp_path)
    read = []
    with pytest.raises(DataError):
        read_zip(path, lambda name: read.append(name) or True)
    assert read == []
    assert snapshot(tmp_path) == before


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_in_a_zip_is_refused(tmp_path):
    with pytest.raises(DataError, match="twice"):
        read_zip(tiny.put(tmp_path, "a.zip", zip_with("a", twice=True)), lambda _: True)


def test_a_zip_of_too_many_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.data.archives.MOST_MEMBERS", 10)
    path = tiny.put(tmp_path, "a.zip", tiny.make_zip({str(n): b"" for n in range(11)}))
    with pytest.raises(DataError, match="at most 10 members"):
        read_zip(path, lambda _: True)


def test_damaged_zip_member(tmp_path):
    content = bytearray(tiny.make_zip({"a": b"hello world" * 50}))
    content[40] ^= 0xFF
    with pytest.raises(DataError, match="damaged"):
        read_zip(tiny.put(tmp_path, "a.zip", bytes(content)), lambda _: True)


def npy(array, allow=False):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow)
    return stream.getvalue()


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("was unpickled",))


def test_object_arrays_are_never_unpickled(tmp_path):
    content = npy(np.array([Bomb()], dtype=object), allow=True)
    with pytest.raises(DataError, match="not an array of numbers"):
        read_npy(content, "x")
    path = tiny.put(tmp_path, "a.npz", tiny.make_zip({"x.npy": content}))
    with pytest.raises(DataError, match="not an array of numbers"):
        read_npz(path, {"x": "O"})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        HTML,
        npy(np.arange(10))[:-8],
        npy(np.arange(10)) + b"more",
        npy(np.arange(10)).replace(b"(10,)", b"(9**99,)"[:5]),
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,)}".ljust(117)
        + b"\n",
        b"\x93NUMPY\x01\x00\x76\x00" + b"__import__('os').abort()".ljust(117) + b"\n",
    ],
    ids=["empty", "html", "truncated", "longer", "shape", "huge", "code"],
)
def test_damaged_arrays(content):
    with pytest.raises(DataError, match="not an array of numbers"):
        read_npy(content, "x")


def test_an_npz_without_the_wanted_array(tmp_path):
    path = tiny.put(tmp_path, "a.npz", tiny.make_zip({"y.npy": npy(np.arange(3))}))
    with pytest.raises(DataError, match="must hold the array 'x'"):
        read_npz(path, {"x": "i"})
    with pytest.raises(DataError, match="must be of kind 'f'"):
        read_npz(path, {"y": "f"})


def write_lines(folder, name, file, text):
    tiny.put(folder / name, file, gzip.compress(text))


HOSTILE_SETS = {
    "mnist": lambda f: (tiny.mnist(f), tiny.put(f / "mnist", "t10k-images-idx3-ubyte.gz", HTML)),
    "emnist": lambda f: tiny.put(f / "emnist", "gzip.zip", tiny.make_zip({"gzip/../../x": b""})),
    "cifar10": lambda f: tiny.put(f / "cifar10", "cifar-10-binary.tar.gz", tiny.make_tar([
        ("cifar-10-batches-bin/data_batch_1.bin", b"\x63" * 3073),
        ("cifar-10-batches-bin/test_batch.bin", b"1" * 3073)])),
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


def test_the_package_holds_none_of_the_forbidden_words():
    from pathlib import Path

    import fedtempo.data

    forbidden = ("import pickle", "torch.load", "extractall", "eval(", "exec(", "allow_pickle=True", "shell=True")
    for path in Path(fedtempo.data.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in forbidden if word in text], path.name
