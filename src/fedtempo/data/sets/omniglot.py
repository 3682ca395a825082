"""Omniglot, from the official zips: 50 alphabets, one per client."""

from __future__ import annotations

import io
import itertools

import numpy as np

from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.rotation import rotated
from fedtempo.data.table import Table
from fedtempo.errors import DataError, is_count, require
from fedtempo.support.extras import library

_DRAWN = (105, 105)
_SIDE = 28
_DRAWERS = 20


def omniglot(sources: Sources, labels: str = "global", test_drawings: int = 5, rotations: bool = False) -> Table:
    """All drawings as (1, 28, 28) bytes, ink bright on black; the natural clients are the alphabets.

    As in MAML and PFLEGO's code, 105x105 pixels are resized to 28x28 (Lanczos) and inverted. Of the 20 drawings of
    each character the last `test_drawings` are the test part (5: PFLEGO's 75/25 for each class). `labels` are
    "global" (0 to 1,622; `split(relabel=True)` numbers them inside each client) or "alphabet" (inside each alphabet,
    0 to 54). `rotations=True` adds copies turned by 90, 180 and 270 degrees after the rows have their parts, so that
    no turned copy of a test drawing is trained on; PFLEGO's released code rotates first and has that leak.
    """
    require(labels in ("global", "alphabet"), "labels", "'global' or 'alphabet'", labels)
    require(
        is_count(test_drawings, 0) and test_drawings < _DRAWERS, "test_drawings", "an int in [0, 19]", test_drawings
    )
    arrays = cached(sources, {}, lambda: _decode(sources))
    parts = np.where(arrays["drawer"] > _DRAWERS - test_drawings, TEST, TRAIN).astype(np.int8)
    return Table(
        "omniglot",
        {"x": arrays["x"], "y": arrays["character" if labels == "global" else "letter"]},
        keys=arrays["alphabet"],
        parts=parts,
        normalise={"x": (0.0, 255.0)},
        key_names=arrays["names"].tolist(),
        after=rotated if rotations else None,
    )


def _decode(sources: Sources) -> dict[str, np.ndarray]:
    members = list(itertools.chain.from_iterable(_drawings(sources, name) for name in sorted(sources.paths)))
    alphabets = [alphabet for alphabet, _, _, _ in members]
    names, alphabet = np.unique(alphabets, return_inverse=True)
    characters = np.array(
        [f"{number:03}/{character}" for number, (_, character, _, _) in zip(alphabet, members, strict=True)]
    )
    known, character = np.unique(characters, return_inverse=True)
    first = np.searchsorted([name[:3] for name in known], [f"{number:03}" for number in alphabet])
    return {
        "x": np.stack([pixels for _, _, _, pixels in members])[:, None],
        "character": character.astype(np.int64),
        "letter": (character - first).astype(np.int64),
        "alphabet": alphabet.astype(np.int64),
        "drawer": np.array([drawer for _, _, drawer, _ in members], dtype=np.int64),
        "names": names.astype(np.str_),
    }


def _drawings(sources: Sources, archive: str) -> list[tuple[str, str, int, np.ndarray]]:
    """Alphabet, character, drawer and pixels of every image of a zip."""
    found = []
    for name, content in read_zip(sources[archive], lambda member: member.endswith(".png")):
        path = name.split("/")
        drawer = path[-1].removesuffix(".png").rpartition("_")[2]
        if len(path) != 4 or not (drawer.isascii() and drawer.isdigit()):
            raise DataError(f"{archive} must hold FOLDER/ALPHABET/CHARACTER/NUMBER_DRAWER.png. Got {name!r}.")
        found.append((path[1], path[2], int(drawer), _pixels(content, f"{archive}: {name}")))
    return found


def _pixels(content: bytes, name: str) -> np.ndarray:
    images = library("PIL.Image", "data", "data set 'omniglot'", DataError)
    try:
        with images.open(io.BytesIO(content), formats=("PNG",)) as image:
            if image.size != _DRAWN:
                raise DataError(f"{name} must be 105x105 pixels. Got {image.size[0]}x{image.size[1]}.")
            small = image.convert("L").resize((_SIDE, _SIDE), images.Resampling.LANCZOS)
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{name} is not a readable PNG image: {error}.") from None
    return 255 - np.asarray(small, dtype=np.uint8)


_URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
_OMNIGLOT_FILES = (
    File(
        "images_background.zip",
        (
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            "8e569bd8878efa365e2418d51cf9b080951424f998453216e805c1f47d88f80d",
        ),
        9464212,
        _URL + "images_background.zip",
    ),
    File(
        "images_evaluation.zip",
        (
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            "1125ecdd71b1b9f77bfe32c057642e3fab37ce830c7f3238d2ab4ed3a418a58b",
        ),
        6462886,
        _URL + "images_evaluation.zip",
    ),
)
OMNIGLOT = DataSet(
    name="omniglot",
    load=omniglot,
    files=_OMNIGLOT_FILES,
    ways=(tuple(file.name for file in _OMNIGLOT_FILES),),
    page="https://github.com/brendenlake/omniglot",
    licence="MIT",
    citation="Lake, Salakhutdinov, Tenenbaum, Human-level concept learning (2015)",
    clients="50 alphabets",
    about="32,460 drawings of 1,623 characters, read as 28x28",
)
