"""Lazy columns: read when needed, kept up to a limit, the same training as from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.data.lazy import LazyColumn

ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)


def test_rows_by_number_slice_and_list() -> None:
    column = LazyColumn(lambda i: ROWS[i], 10)
    assert column.shape == (10, 4) and len(column) == 10 and column.dtype == np.float32
    assert np.array_equal(column[2:5], ROWS[2:5])
    assert np.array_equal(column[np.array([7, 1, 7])], ROWS[[7, 1, 7]])


def test_reading_all_rows_ends_though_the_reader_answers_for_every_number() -> None:
    column = LazyColumn(lambda i: ROWS[i % 10], 10)
    assert np.array_equal(list(column), ROWS)
    assert np.array_equal(np.asarray(column), ROWS)
    assert np.array_equal(column[-1], ROWS[9])
    with pytest.raises(IndexError):
        _ = column[10]


class Unlisted(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Items that answer for every number, and no list of labels."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.ones(2) * number, number % 2


def test_labels_that_nobody_lists_are_read_at_once() -> None:
    table = ft.data.from_torch(Unlisted(), lazy=True)
    assert table.labels.tolist() == [0, 1] * 10
    assert len(table.split(ft.data.dirichlet(2, 100.0))) == 2
    assert ft.data.describe(table.split(ft.data.iid(2)))["labels"] == [10, 10]
    ft.run(
        model=ft.models.mlp(2, [4], 2),
        data=table.split(ft.data.iid(2)),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
        rounds=1,
    )


def test_a_lazy_column_of_labels_in_a_table_of_ones_own_is_read() -> None:
    labels: Any = LazyColumn(lambda i: np.asarray(i % 2), 10, name="y")
    table = ft.data.Table("own", {"x": ROWS, "y": labels})
    assert table.labels.tolist() == [0, 1] * 5


def test_the_cache_has_a_limit_and_drops_what_was_used_longest_ago() -> None:
    reads: list[int] = []

    def read(number: int) -> np.ndarray:
        reads.append(number)
        return ROWS[number]

    column = LazyColumn(read, 10, cache_bytes=2 * ROWS[0].nbytes)
    reads.clear()
    _ = column[np.array([1, 2, 1, 3, 1, 2])]
    assert reads == [1, 2, 3, 2]
    assert column.cached_bytes == 2 * ROWS[0].nbytes


def test_a_row_of_another_shape_is_named() -> None:
    column = LazyColumn(lambda i: ROWS[i, : 4 - i], 3)
    with pytest.raises(ft.DataError, match="row 1 of column 'x' must be float32 of shape"):
        _ = column[0:2]


class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images decoded at every access, labels as an attribute."""

    def __init__(self) -> None:
        self.images = np.random.default_rng(0).integers(0, 255, (40, 1, 6, 6), dtype=np.uint8)
        self.targets = np.arange(40) % 3
        self.reads = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        self.reads += 1
        return self.images[number], int(self.targets[number])


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_a_lazy_data_set_trains_like_one_in_memory(backend: str) -> None:
    owner = np.arange(40) // 10
    digests = []
    for lazy in (False, True):
        items = Items()
        data = ft.data.from_torch(items, owner, lazy=lazy, cache_bytes=600).split(validation=0.0, test=0.2)
        assert (items.reads > 30) != lazy
        result = ft.run(
            model=ft.models.cnn((1, 6, 6), 3, channels=(2,), hidden=4),
            data=data,
            algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
            rounds=2,
            batch_size=4,
            backend=backend,
        )
        digests.append(result.digest())
    assert digests[0] == digests[1]


def test_a_folder_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    rng = np.random.default_rng(0)
    for client in ("ann", "bob"):
        for label in ("cat", "dog"):
            folder = tmp_path / client / label
            folder.mkdir(parents=True)
            for number in range(3):
                image.fromarray(rng.integers(0, 255, (5, 4, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    data = ft.data.from_images(tmp_path).split(validation=0.0, test=0.0)
    assert len(data) == 2 and data.name_of(1) == "1 (bob)"
    rows = data.client(0)
    assert rows["x"].shape == (6, 3, 5, 4) and float(rows["x"].max()) <= 1.0
    assert rows["y"].tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(ft.DataError, match="must hold images in folders"):
        ft.data.from_images(tmp_path / "ann", layout=("client", "label"))


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize(("kind", "ending"), [(np.uint16, "png"), (np.int32, "tiff"), (np.float32, "tiff")])
def test_images_of_more_than_a_byte_a_channel_are_refused(
    tmp_path: Path, kind: type, ending: str, colour: bool
) -> None:
    """Pillow would turn every number above 255 into 255."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "cat").mkdir()
    image.fromarray((np.arange(16).reshape(4, 4) * 4000).astype(kind)).save(tmp_path / "cat" / f"0.{ending}")
    with pytest.raises(ft.DataError, match=rf"0\.{ending} must have at most 8 bits a channel\. Got mode '[IF]"):
        ft.data.from_images(tmp_path, layout=("label",), colour=colour)


def test_a_file_that_is_no_image_or_half_of_one_is_named(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "cat").mkdir()
    place = tmp_path / "cat" / "0.png"
    place.write_bytes(b"garbage")
    with pytest.raises(ft.DataError, match=r"0\.png must be an image that Pillow reads\. Got other bytes"):
        ft.data.from_images(tmp_path, layout=("label",))
    image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)).save(place)
    place.write_bytes(place.read_bytes()[:400])
    with pytest.raises(ft.DataError, match=r"0\.png must be a whole image: "):
        ft.data.from_images(tmp_path, layout=("label",))


def test_a_first_row_that_cannot_be_read_is_named() -> None:
    def read(number: int) -> np.ndarray:
        raise RuntimeError("no such file")

    with pytest.raises(ft.DataError, match=r"row 0 of column 'x' cannot be read: no such file\."):
        LazyColumn(read, 3)


def test_an_empty_sequence_does_not_make_numbers_of_tokens() -> None:
    for sequences in ([[1, 2], []], [[], [1, 2]]):
        assert ft.data.pad_sequences(sequences)["x"].dtype == np.int64
    pairs = ft.data.pad_sequences([[], [[1, 2]]])
    assert pairs["x"].tolist() == [[[0, 0]], [[1, 2]]] and pairs["lengths"].tolist() == [0, 1]
