"""Archives that are damaged or mean harm: a typed error, and not a byte outside the cache."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

from fedtempo.data.files.archives import read_npz, read_tar_gz, read_zip
from fedtempo.data.files.safe import read_npy
from fedtempo.errors import DataError
from tests import tiny_files as tiny
from tests.tiny_files import GOOD_IDX, HTML, npy, snapshot


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
    "content", [HTML, gzip.compress(HTML * 40), gzip.compress(b""), GOOD_IDX], ids=["html", "text", "empty", "idx"]
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
        zip_with("bomb", bytes(1 << 24)),
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
    monkeypatch.setattr("fedtempo.data.files.archives.MOST_MEMBERS", 10)
    path = tiny.put(tmp_path, "a.zip", tiny.make_zip({str(n): b"" for n in range(11)}))
    with pytest.raises(DataError, match="at most 10 members"):
        read_zip(path, lambda _: True)


def test_damaged_zip_member(tmp_path):
    content = bytearray(tiny.make_zip({"a": b"hello world" * 50}))
    content[40] ^= 0xFF
    with pytest.raises(DataError, match="damaged"):
        read_zip(tiny.put(tmp_path, "a.zip", bytes(content)), lambda _: True)


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


def test_an_npz_without_the_wanted_array(tmp_path):
    path = tiny.put(tmp_path, "a.npz", tiny.make_zip({"y.npy": npy(np.arange(3))}))
    with pytest.raises(DataError, match="must hold the array 'x'"):
        read_npz(path, {"x": "i"})
    with pytest.raises(DataError, match="must be of kind 'f'"):
        read_npz(path, {"y": "f"})
