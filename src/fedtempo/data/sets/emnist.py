"""EMNIST, from NIST's gzip.zip or from the idx files inside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.idx import read_images
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError, require

VARIANTS = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
_KINDS = ("images-idx3", "labels-idx1")


def emnist(sources: Sources, variant: str = "byclass") -> Table:
    """EMNIST as (1, 28, 28) bytes with the official parts; `byclass` has the 62 classes 0-9, A-Z, a-z.

    The official files hold every image transposed (NIST wrote them column by column). We transpose them back, so
    that they read like MNIST. The labels of `letters` run from 1 in the files and from 0 here.
    """
    require(variant in VARIANTS, "variant", f"one of {', '.join(VARIANTS)}", variant)
    arrays = cached(sources, {"variant": variant}, lambda: _decode(_files(sources, variant), variant))
    columns = {"x": arrays["x"], "y": arrays["y"]}
    return Table("emnist", columns, parts=arrays["part"], normalise={"x": (0.1736 * 255, 0.3317 * 255)})


def _names(variant: str) -> list[str]:
    return [f"emnist-{variant}-{part}-{kind}-ubyte.gz" for part in ("train", "test") for kind in _KINDS]


def _files(sources: Sources, variant: str) -> dict[str, Path | bytes]:
    wanted = _names(variant)
    if "gzip.zip" in sources:
        members = read_zip(sources["gzip.zip"], lambda name: name.rsplit("/", 1)[-1] in wanted)
        found: dict[str, Path | bytes] = {name.rsplit("/", 1)[-1]: content for name, content in members}
    else:
        found = {name: path for name, path in sources.paths.items() if name in wanted}
    if missing := [name for name in wanted if name not in found]:
        raise DataError(f"emnist ({variant}) needs {missing[0]}, which is not among the files found.")
    return found


def _decode(files: Mapping[str, Path | bytes], variant: str) -> dict[str, np.ndarray]:
    names = _names(variant)
    pieces = [read_images(files[names[i]], files[names[i + 1]], f"emnist {variant}") for i in (0, 2)]
    first_label = 1 if variant == "letters" else 0
    return {
        "x": np.concatenate([x.swapaxes(2, 3) for x, _ in pieces]),
        "y": np.concatenate([y for _, y in pieces]) - first_label,
        "part": np.repeat(np.array([TRAIN, TEST], dtype=np.int8), [len(y) for _, y in pieces]),
    }


_EMNIST_FILES = (
    File(
        "gzip.zip",
        ("fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",),
        561753746,
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    ),
)
EMNIST = DataSet(
    name="emnist",
    load=emnist,
    files=_EMNIST_FILES,
    ways=(("gzip.zip",), ("emnist-*-idx*-ubyte.gz",)),
    page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    licence="public domain (NIST)",
    citation="Cohen et al., EMNIST: Extending MNIST to handwritten letters (2017)",
    clients="none",
    about="28x28 handwritten characters; byclass: 814,255 images of 62 classes",
)
