"""Rotated copies stay with their client and part."""

from __future__ import annotations

import numpy as np

from fedtempo.data import FederatedData
from fedtempo.data.rotation import rotated

IMAGES = np.arange(12).reshape(3, 1, 2, 2)


def test_every_image_four_times_in_its_own_part() -> None:
    """Client 0 trains on image 0 and tests on image 1; client 1 trains on image 2."""
    plain = FederatedData({"x": IMAGES, "y": np.array([7, 8, 9])}, np.array([[0, 1, 1, 2], [2, 3, 3, 3]]))
    turned = rotated(plain)
    assert turned.sizes("train").tolist() == [4, 4] and turned.sizes("test").tolist() == [4, 0]
    for client, part, image, label in ((0, "train", 0, 7), (0, "test", 1, 8), (1, "train", 2, 9)):
        rows = turned.client(client, part)
        assert rows["y"].tolist() == [label] * 4
        expected = [np.rot90(IMAGES[image, 0], turn).tolist() for turn in range(4)]
        assert rows["x"][:, 0].tolist() == expected
