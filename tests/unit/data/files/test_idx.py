"""IDX files, good and damaged."""

import gzip
import struct

import pytest

from fedtempo.data.files.idx import read_idx
from fedtempo.errors import DataError
from tests.tiny_files import GOOD_IDX, HTML


def header(*shape, code=0x08):
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HTML, "HTML page"),
        (b"", "begins with nothing"),
        (GOOD_IDX[:-12], "damaged|cut short"),
        (GOOD_IDX[:30], "damaged|cut short"),
        (GOOD_IDX[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(HTML), "must be an idx file"),
        (gzip.compress(header(5, 12) + bytes(60)), "must be an idx file of 3 dimensions"),
        (gzip.compress(header(5, 3, 4, code=0x99) + bytes(60)), "must be an idx file"),
        (gzip.compress(header(5, 3, 4) + bytes(59)), "cut short"),
        (gzip.compress(header(5, 3, 4) + bytes(61)), "is longer than the 60 bytes"),
        (gzip.compress(header(2**32 - 1, 2**32 - 1, 2**32 - 1)), "must unpack to at most"),
        (
            gzip.compress(header(1 << 12, 1 << 10, 1 << 6)) + 256 * gzip.compress(bytes(1 << 20)),
            "must unpack to at most",
        ),
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
    assert read_idx(GOOD_IDX, "x.gz", 3).shape == (5, 3, 4)
