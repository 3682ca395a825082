"""The reader of Planetoid's files: it reads data, and whatever else a file asks for is not done."""

import contextlib
import os
import pickle

import numpy as np
import pytest

from fedtempo.data.files.serialised import array_of, links_of, read_serialised, rows_of
from fedtempo.errors import DataError


def text(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value


def array(values: np.ndarray, kind: bytes) -> bytes:
    """What Python 2 wrote for an array: a call of a name, then version, shape, type, order and bytes as its state."""
    shape = b"(" + b"".join(b"K" + bytes([n]) for n in values.shape) + b"t"
    dtype = (
        b"cnumpy\ndtype\n"
        + text(kind)
        + b"K\x00K\x01\x87Rq\x05(K\x03"
        + text(b"<")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    made = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    return made + b"(K\x01" + shape + dtype + b"\x89" + text(values.tobytes()) + b"tb"


def test_an_array():
    values = np.arange(6, dtype="<i4").reshape(2, 3)
    found = read_serialised(b"\x80\x02" + array(values, b"i4") + b".", "y", array_of)
    np.testing.assert_array_equal(found, values)


def test_a_matrix_of_compressed_rows():
    parts = {b"data": (np.array([5, 7], "<f4"), b"f4"), b"indices": (np.array([2, 0], "<i4"), b"i4"),
             b"indptr": (np.array([0, 1, 1, 2], "<i4"), b"i4")}  # fmt: skip
    items = b"".join(text(name) + array(*given) for name, given in parts.items())
    program = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81}(" + text(b"_shape") + b"K\x03K\x04\x86" + items + b"ub."
    dense = read_serialised(program, "x", rows_of)
    np.testing.assert_array_equal(dense, [[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]])


def test_links_are_taken_once_without_self_loops():
    lists = b"K\x00](K\x01K\x00K\x02e" + b"K\x01]K\x00a" + b"K\x02](K\x00K\x00e"
    program = b"\x80\x02ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(" + lists + b"u."
    assert read_serialised(program, "graph", links_of).tolist() == [[0, 1], [0, 2]]


class Command:
    def __reduce__(self):
        return (os.mkdir, (os.environ["WITNESS"],))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_code_in_a_file_is_not_run(tmp_path, monkeypatch, protocol):
    monkeypatch.setenv("WITNESS", str(tmp_path / "ran"))
    program = pickle.dumps(Command(), protocol=protocol)
    for take in (array_of, rows_of, links_of, lambda value: array_of(value.items)):
        with pytest.raises(DataError, match="is not one of Planetoid's files"):
            read_serialised(program, "evil", take)
    assert not (tmp_path / "ran").exists()


def test_mutated_files_are_read_or_refused():
    rng = np.random.default_rng(0)
    program = b"\x80\x02" + array(np.arange(6, dtype="<i4").reshape(2, 3), b"i4") + b"."
    for _ in range(3000):
        changed = bytearray(program)
        for place in rng.integers(0, len(program), rng.integers(1, 4)):
            changed[place] = rng.integers(0, 256)
        changed = changed[: rng.integers(1, len(program) + 1)] if rng.random() < 0.3 else changed
        with contextlib.suppress(DataError):
            assert isinstance(read_serialised(bytes(changed), "y", array_of), np.ndarray)
