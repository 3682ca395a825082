"""Digits of the UCI repository: 1,797 8x8 images of ten digits, part of the installation and so always there."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from fedtempo.data.files.published import DataSet
from fedtempo.data.table import Table


def digits() -> Table:
    """The embedded default data set; pixels run from 0 to 16 and are brought to [0, 1].

    The rows and their order are those of scikit-learn's `load_digits`: the test part of UCI's Optical Recognition of
    Handwritten Digits.
    """
    with (files("fedtempo.data.sets") / "digits.npz").open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
        return Table("digits", {"x": kept["x"], "y": kept["y"].astype(np.int64)}, normalise={"x": (0.0, 16.0)})


DIGITS = DataSet(
    name="digits",
    load=digits,
    page="https://archive.ics.uci.edu/dataset/80",
    licence="CC BY 4.0 (UCI Machine Learning Repository)",
    citation="Alpaydin and Kaynak, UCI Optical Recognition of Handwritten Digits (1998)",
    clients="none",
    about="1,797 8x8 images of 10 digits, part of the installation",
)
