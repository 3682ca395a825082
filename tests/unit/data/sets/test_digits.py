"""The embedded digits are scikit-learn's, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo.data import load


def test_digits_are_those_of_scikit_learn() -> None:
    theirs = pytest.importorskip("sklearn.datasets", reason="scikit-learn comes with the dev extra")
    images, labels = theirs.load_digits(return_X_y=True)
    table = load("digits")
    assert np.array_equal(table.columns["x"], images) and np.array_equal(table.columns["y"], labels)
    assert (table.columns["x"].dtype, table.columns["y"].dtype) == (np.uint8, np.int64)
    assert table.about["licence"].startswith("CC BY 4.0")
