"""FEMNIST, from LEAF's JSON folders or from the sample npz; the writers are clients."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.data.files.archives import read_npz
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.safe import read_text
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.table import Table
from fedtempo.errors import DataError, require

CLASSES = 62
_SAMPLE = "femnist_leaf_sample.npz"
_KINDS = {
    "x_train": "u",
    "y_train": "u",
    "w_train": "iu",
    "x_test": "u",
    "y_test": "u",
    "w_test": "iu",
    "writer_ids": "U",
}
_SIDE = 28


def femnist(sources: Sources, writers: str = "trained") -> Table:
    """Characters as (1, 28, 28) bytes, dark ink on white as LEAF ships them; classes 0-9, A-Z, a-z; LEAF's parts.

    `writers="trained"` keeps the writers that have training rows; "all" also has those with test rows only: part
    them inside each writer with `split(natural(), validation=0.2, test=0.2, new_clients=0.2)`. Pixels are
    normalised with mean 0.9637 and deviation 0.1597, as FederatedScope (FedDecay's code) does.
    """
    require(writers in ("trained", "all"), "writers", "'trained' or 'all'", writers)
    decode = _decode_sample if _SAMPLE in sources else _decode_leaf
    arrays = cached(sources, {"writers": writers}, lambda: _chosen(decode(sources), writers))
    return Table(
        "femnist",
        {"x": arrays["x"], "y": arrays["y"]},
        keys=arrays["writer"],
        parts=arrays["part"],
        normalise={"x": (0.9637 * 255, 0.1597 * 255)},
        key_names=arrays["names"].tolist(),
    )


def _chosen(arrays: dict[str, np.ndarray], writers: str) -> dict[str, np.ndarray]:
    if arrays["y"].min() < 0 or arrays["y"].max() >= CLASSES:
        raise DataError(
            f"femnist must have labels in [0, {CLASSES - 1}]. Got {arrays['y'].min()} to {arrays['y'].max()}."
        )
    if writers == "all":
        return arrays
    trained = np.unique(arrays["writer"][arrays["part"] == TRAIN])
    keep = np.isin(arrays["writer"], trained)
    return {name: values if name == "names" else values[keep] for name, values in arrays.items()}


def _decode_sample(sources: Sources) -> dict[str, np.ndarray]:
    found = read_npz(sources[_SAMPLE], _KINDS)
    parts = [len(found["y_train"]), len(found["y_test"])]
    x = np.concatenate([found["x_train"], found["x_test"]])
    y = np.concatenate([found["y_train"], found["y_test"]]).astype(np.int64)
    writer = np.concatenate([found["w_train"], found["w_test"]]).astype(np.int64)
    if x.shape[1:] != (_SIDE, _SIDE) or not len(x) == len(y) == len(writer) or writer.max() >= len(found["writer_ids"]):
        raise DataError(f"{_SAMPLE} must hold 28x28 images with a label and a writer each. Got other shapes.")
    part = np.repeat(np.array([TRAIN, TEST], dtype=np.int8), parts)
    return {"x": x[:, None], "y": y, "writer": writer, "part": part, "names": found["writer_ids"]}


def _decode_leaf(sources: Sources) -> dict[str, np.ndarray]:
    pieces = [
        _leaf_file(path, TEST if name.startswith("test/") else TRAIN) for name, path in sorted(sources.paths.items())
    ]
    rows = list(itertools.chain.from_iterable(pieces))
    names, writer = np.unique([name for name, _, _, _ in rows], return_inverse=True)
    counts = [len(labels) for _, _, labels, _ in rows]
    return {
        "x": np.concatenate([pixels for _, pixels, _, _ in rows]),
        "y": np.concatenate([labels for _, _, labels, _ in rows]),
        "writer": np.repeat(writer.astype(np.int64), counts),
        "part": np.repeat(np.array([part for _, _, _, part in rows], dtype=np.int8), counts),
        "names": names.astype(np.str_),
    }


def _leaf_file(path: Path, part: int) -> list[tuple[str, np.ndarray, np.ndarray, int]]:
    """Each writer of one LEAF file with its images and labels; LEAF's pixels run from 0 (ink) to 1 (paper)."""
    try:
        content: dict[str, Any] = json.loads(read_text(path.read_bytes(), path.name))
        found = []
        for name, counted in zip(content["users"], content["num_samples"], strict=True):
            pixels = np.asarray(content["user_data"][name]["x"], dtype=np.float64).reshape(-1, 1, _SIDE, _SIDE)
            labels = np.asarray(content["user_data"][name]["y"], dtype=np.int64)
            if not len(pixels) == len(labels) == counted or not ((pixels >= 0) & (pixels <= 1)).all():
                raise ValueError(f"writer {name!r} must have {counted} images in [0, 1] and as many labels")
            found.append((str(name), np.round(pixels * 255).astype(np.uint8), labels, part))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path.name} is not a LEAF file: {error}.") from None
    return found


_FEMNIST_FILES = (
    File("femnist_leaf_sample.npz", ("8c510f83356edd405adb20f1c95e114be2c7d67b3aa215fb58f1146ffc50fb22",), 2119351),
)
FEMNIST = DataSet(
    name="femnist",
    load=femnist,
    files=_FEMNIST_FILES,
    ways=(("train/*.json", "test/*.json"), ("femnist_leaf_sample.npz",)),
    page="https://github.com/TalwalkarLab/leaf",
    licence="public domain (NIST SD19); BSD-2-Clause (LEAF)",
    citation="Caldas et al., LEAF: A Benchmark for Federated Settings (2018)",
    clients="writers (sample: 105 with training data, 79 with test data only)",
    about="28x28 handwritten characters of 62 classes (the sample: 18,796 images)",
)
