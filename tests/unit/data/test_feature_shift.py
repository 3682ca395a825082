"""Each client's images through a lens of its own; labels and parts stay."""

from __future__ import annotations

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.errors import ConfigError, DataError


def images(kind: str = "uint8", channels: int = 1) -> ft.data.FederatedData:
    rng = np.random.default_rng(0)
    x = [(rng.random((6, channels, 3, 3)) * 200).astype(kind) for _ in range(4)]
    return ft.data.FederatedData.from_clients([(each, np.arange(6) % 2) for each in x], validation=0.2, test=0.2)


def seen(data: ft.data.FederatedData, client: int, part: str = "train") -> np.ndarray:
    return data.columns["x"][data.positions(client, part)]


def test_every_client_has_one_angle_in_all_of_its_parts():
    plain = images()
    shifted = ft.data.feature_shift(plain)
    for client in range(4):
        for part in ("train", "validation", "test"):
            np.testing.assert_array_equal(
                seen(shifted, client, part), np.rot90(seen(plain, client, part), client, (-2, -1))
            )
    np.testing.assert_array_equal(shifted.columns["y"], plain.columns["y"])


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_inversion_and_blur(kind):
    plain = images(kind)
    shifted = ft.data.feature_shift(plain, ["invert", "blur"])
    if kind == "uint8":
        np.testing.assert_array_equal(seen(shifted, 0), 255 - seen(plain, 0))
    mean = seen(plain, 1).astype(float).mean((-2, -1))
    np.testing.assert_allclose(seen(shifted, 1)[:, :, 1, 1], np.round(mean) if kind == "uint8" else mean, rtol=1e-5)
    assert seen(shifted, 1).dtype == np.dtype(kind)


def test_a_lens_of_ones_own_and_colours():
    plain = images(channels=3)
    shifted = ft.data.feature_shift(plain, ["swap_colours", lambda x: x // 2])
    np.testing.assert_array_equal(seen(shifted, 2)[:, 0], seen(plain, 2)[:, 2])
    np.testing.assert_array_equal(seen(shifted, 3), seen(plain, 3) // 2)


@pytest.mark.parametrize(
    ("data", "lenses", "said"),
    [
        (images, ["sepia"], "lenses must be none, rotate_90"),
        (images, [], "lenses must be a list of one or more lenses. Got []."),
        (images, ["swap_colours"], "lenses must leave out swap_colours for images of one channel"),
        (images, [lambda x: x[:1]], "lenses must be functions to images of the same shape and type"),
        (
            lambda: ft.data.load("digits").split(ft.data.iid(4)),
            ["blur"],
            "x must hold images of shape (channels, height, width). Got rows of shape (64,).",
        ),
    ],
)
def test_what_has_no_lens_is_refused(data, lenses, said):
    with pytest.raises((ConfigError, DataError)) as error:
        ft.data.feature_shift(data(), lenses)
    assert said in str(error.value)
