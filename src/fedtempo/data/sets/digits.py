"""scikit-learn's digits: 1,797 8x8 images of ten digits, part of the installation and so always there."""

from __future__ import annotations

import numpy as np

from fedtempo.data.table import Table


def digits() -> Table:
    """The embedded default data set; pixels run from 0 to 16 and are brought to [0, 1]."""
    from sklearn.datasets import load_digits  # takes a second, which only those who want digits should wait

    images, labels = load_digits(return_X_y=True)
    return Table(
        "digits",
        {"x": images.astype(np.uint8), "y": labels.astype(np.int64)},
        normalise={"x": (0.0, 16.0)},
        about={
            "licence": "BSD-3-Clause (scikit-learn)",
            "citation": "Alpaydin and Kaynak, UCI Optical Recognition (1998)",
        },
    )
