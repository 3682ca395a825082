"""MNIST and Fashion-MNIST, from the official idx files; MNIST's writers from QMNIST's label files."""

from __future__ import annotations

import numpy as np

from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.idx import read_idx, read_images
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError

_WRITER = 2
"""The column of QMNIST's label files with the NIST writer id; column 0 is the class."""
_QMNIST = {"train": "qmnist-train-labels-idx2-int.gz", "t10k": "qmnist-test-labels-idx2-int.gz"}


def mnist(sources: Sources) -> Table:
    """MNIST as (1, 28, 28) bytes with the official parts; natural clients are the writers.

    No writer is in both official parts, so `split(natural(), test=0.2)` (fractions inside each writer) is the
    way to clients that have both; with the official parts, use a split by label. Pixels are normalised with
    the usual mean 0.1307 and deviation 0.3081 (of the training images, as fractions of 255).
    """
    arrays = cached(sources, {}, lambda: _decode(sources))
    return Table(
        "mnist",
        {"x": arrays["x"], "y": arrays["y"]},
        keys=arrays.get("writer"),
        parts=arrays["part"],
        normalise={"x": (0.1307 * 255, 0.3081 * 255)},
    )


def fashion_mnist(sources: Sources) -> Table:
    """Fashion-MNIST as (1, 28, 28) bytes with the official parts, normalised with mean 0.2860 and deviation 0.3530."""
    arrays = cached(sources, {}, lambda: _decode(sources))
    columns = {"x": arrays["x"], "y": arrays["y"]}
    return Table("fashion_mnist", columns, parts=arrays["part"], normalise={"x": (0.2860 * 255, 0.3530 * 255)})


def _decode(sources: Sources) -> dict[str, np.ndarray]:
    pieces = [_part(sources, prefix, part) for prefix, part in (("train", TRAIN), ("t10k", TEST))]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _part(sources: Sources, prefix: str, part: int) -> dict[str, np.ndarray]:
    images, labels = f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz"
    x, y = read_images(sources[images], sources[labels], f"{sources.name} {prefix}")
    columns = {"x": x, "y": y, "part": np.full(len(y), part, dtype=np.int8)}
    if _QMNIST[prefix] in sources:
        # The test file goes on with QMNIST's 50,000 rediscovered digits after MNIST's 10,000.
        rows = read_idx(sources[_QMNIST[prefix]], _QMNIST[prefix], 2)[: len(y)]
        if len(rows) != len(y) or rows.shape[1] <= _WRITER or (rows[:, 0] != y).any():
            raise DataError(f"{_QMNIST[prefix]} must describe the digits of {labels}. Got other classes or fewer rows.")
        columns["writer"] = rows[:, _WRITER].astype(np.int64)
    return columns


_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MNIST_FILES = (
    File(
        "train-images-idx3-ubyte.gz",
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",),
        9912422,
        _MNIST_URL + "train-images-idx3-ubyte.gz",
    ),
    File(
        "train-labels-idx1-ubyte.gz",
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",),
        28881,
        _MNIST_URL + "train-labels-idx1-ubyte.gz",
    ),
    File(
        "t10k-images-idx3-ubyte.gz",
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",),
        1648877,
        _MNIST_URL + "t10k-images-idx3-ubyte.gz",
    ),
    File(
        "t10k-labels-idx1-ubyte.gz",
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",),
        4542,
        _MNIST_URL + "t10k-labels-idx1-ubyte.gz",
    ),
    File(
        "qmnist-train-labels-idx2-int.gz",
        ("2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",),
        463024,
        _QMNIST_URL + "qmnist-train-labels-idx2-int.gz",
    ),
    File(
        "qmnist-test-labels-idx2-int.gz",
        ("9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",),
        526800,
        _QMNIST_URL + "qmnist-test-labels-idx2-int.gz",
    ),
)
_FASHION_MNIST_FILES = (
    File(
        "train-images-idx3-ubyte.gz",
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",),
        26421880,
        _FASHION_URL + "train-images-idx3-ubyte.gz",
    ),
    File(
        "train-labels-idx1-ubyte.gz",
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",),
        29515,
        _FASHION_URL + "train-labels-idx1-ubyte.gz",
    ),
    File(
        "t10k-images-idx3-ubyte.gz",
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",),
        4422102,
        _FASHION_URL + "t10k-images-idx3-ubyte.gz",
    ),
    File(
        "t10k-labels-idx1-ubyte.gz",
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",),
        5148,
        _FASHION_URL + "t10k-labels-idx1-ubyte.gz",
    ),
)
_IDX_NAMES = tuple(file.name for file in _FASHION_MNIST_FILES)
MNIST = DataSet(
    name="mnist",
    load=mnist,
    files=_MNIST_FILES,
    ways=(tuple(file.name for file in _MNIST_FILES), _IDX_NAMES),
    page="http://yann.lecun.com/exdb/mnist/",
    licence="CC BY-SA 3.0 as commonly given (MNIST); BSD-style (QMNIST labels)",
    citation="LeCun, Cortes, Burges, MNIST (1998); Yadav and Bottou, Cold Case: the Lost MNIST Digits (2019)",
    clients="writers (QMNIST): 539 in train, 297 in test",
    about="60,000 / 10,000 28x28 images of 10 digits",
)
FASHION_MNIST = DataSet(
    name="fashion_mnist",
    load=fashion_mnist,
    files=_FASHION_MNIST_FILES,
    ways=(_IDX_NAMES,),
    page="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT (Zalando SE)",
    citation="Xiao, Rasul, Vollgraf, Fashion-MNIST (2017)",
    clients="none",
    about="60,000 / 10,000 28x28 images of 10 kinds of clothing",
)
