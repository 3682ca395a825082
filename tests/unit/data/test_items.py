"""Items of data sets: bytes of images, sequences of different length with a collate function, what is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import fedtempo as ft
from fedtempo.data.items import value_array

OWNER = [number % 3 for number in range(12)]


def png(number: int) -> bytes:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    file = io.BytesIO()
    image.fromarray(np.full((4, 5, 3), number, dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


class Encoded(Dataset[Any]):
    def __init__(self) -> None:
        self.files = [png(number) for number in range(12)]
        self.targets = [number % 2 for number in range(12)]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        return self.files[number], self.targets[number]


@pytest.mark.parametrize("lazy", [False, True])
def test_bytes_of_images_are_decoded(lazy: bool) -> None:
    table = ft.data.from_torch(Encoded(), OWNER, lazy=lazy)
    assert table.columns["x"].shape == (12, 3, 4, 5)
    rows = table.split(validation=0.0, test=0.0).client(1)
    assert torch.allclose(rows["x"][:, 0, 0, 0] * 255, torch.tensor([1.0, 4.0, 7.0, 10.0]))


def test_an_image_that_datasets_left_encoded() -> None:
    assert value_array({"bytes": png(7), "path": None}).shape == (3, 4, 5)


class Sentences(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.arange(1, 2 + number % 5), number % 3


def padded(items: list[tuple[torch.Tensor, int]]) -> dict[str, torch.Tensor]:
    x = torch.zeros(len(items), 5, dtype=torch.int64)
    for row, (words, _) in enumerate(items):
        x[row, : len(words)] = words
    return {"x": x, "lengths": torch.tensor([len(w) for w, _ in items]), "y": torch.tensor([y for _, y in items])}


@pytest.mark.parametrize("lazy", [False, True])
def test_a_collate_function_makes_columns_of_items_of_different_length(lazy: bool) -> None:
    table = ft.data.from_torch(Sentences(), OWNER, columns=("x", "lengths", "y"), collate=padded, lazy=lazy)
    expected = padded([Sentences()[number] for number in range(12)])
    for column, values in expected.items():
        assert np.array_equal(table.columns[column][np.arange(12)], values.numpy())


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({}, r"must have one shape. Got \(1,\) in row 0 and \(2,\) in row 1: pad them, or give `collate`"),
        (
            {"collate": lambda items: (torch.zeros(3, 2), torch.zeros(12))},
            r"one row for each of 12 items. Got .*\(3, 2\)",
        ),
        ({"collate": lambda items: (["a"] * 12, torch.zeros(12))}, "must make column 'x' .* numbers"),
        ({"owner": [None] * 12}, "owner must name a client for each row. Got None in row 0"),
        ({"owner": [1.0] * 11 + [float("nan")]}, "owner must name a client for each row. Got nan in row 11"),
    ],
)
def test_what_cannot_be_columns_is_named(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(ft.DataError, match=rule):
        ft.data.from_torch(Sentences() if "owner" not in settings else Encoded(), **{"owner": OWNER, **settings})


def test_lazy_items_must_hold_numbers() -> None:
    class Names(Sentences):
        def __getitem__(self, number: int) -> Any:
            return "a name", 0

    with pytest.raises(ft.DataError, match="column 'x' of torch data set must hold numbers of one shape"):
        ft.data.from_torch(Names(), OWNER, lazy=True)
