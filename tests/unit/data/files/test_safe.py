"""Reading bytes that may mean harm."""

import gzip

import numpy as np
import pytest

from fedtempo.data.files.safe import gunzip, read_npy
from fedtempo.errors import DataError
from tests.tiny_files import HTML, npy


def test_a_gzip_bomb_stops_at_the_limit():
    bomb = gzip.compress(bytes(1 << 26))
    with pytest.raises(DataError, match="at most 200 times"):
        gunzip(bomb, "bomb.gz")


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
