"""Data sets of torch, Hugging Face and Flower as tables, against the real libraries where they are installed."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import fedtempo as ft
from fedtempo.data.adapters import from_flower_partitioner, from_hugging_face, from_torch
from fedtempo.data.splits import iid
from fedtempo.errors import ConfigError, DataError
from fedtempo.support.identity import identity_of

XY = {"x": "features", "y": "label"}


class Rows(Dataset):
    """A map-style data set that, like many, answers for every number."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number % len(self.items)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.tensor([1.0, 2.0]), 0), (torch.tensor([3.0, 4.0]), 1)])


def tensors(rows: int = 6) -> TensorDataset:
    return TensorDataset(torch.arange(rows * 2.0).reshape(rows, 2), torch.arange(rows) % 2)


@pytest.mark.slow("the test of what the public names load does this with all libraries every time")
def test_importing_the_adapters_imports_none_of_the_libraries():
    code = "import sys, fedtempo.data.adapters; print({'datasets', 'flwr_datasets'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("library", "function", "extra"),
    [
        ("datasets", from_hugging_face, r"'\.\[datasets\]'"),
        ("flwr_datasets.partitioner", from_flower_partitioner, "flwr-datasets"),
    ],
)
def test_a_missing_library_is_one_line_that_names_the_extra(monkeypatch, library, function, extra):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, library.split(".", maxsplit=1)[0], None)
    with pytest.raises(DataError, match=f"pip install {extra}") as caught:
        function(None, XY)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(6)), lambda d: Rows([d[i] for i in range(6)])])
def test_torch_rows_keep_their_order_and_types(wrap):
    table = from_torch(wrap(tensors()))
    assert table.columns["x"].dtype == np.float32
    assert table.columns["y"].dtype == np.int64
    np.testing.assert_array_equal(table.columns["x"], np.arange(12.0).reshape(6, 2))
    assert len(table.split(iid(2))) == 2


def test_torch_owners_become_clients():
    data = from_torch(tensors(), owner=["b", "a", "b", "a", "a", "b"]).split(validation=0.0, test=0.0)
    assert data.names == ["a", "b"]
    np.testing.assert_array_equal(data.client(0)["x"][:, 0], [2.0, 6.0, 8.0])
    np.testing.assert_array_equal(data.client(1)["x"][:, 0], [0.0, 4.0, 10.0])


def test_torch_parts_are_kept():
    parts = {"train": tensors(6), "test": tensors(4)}
    owner = {"train": [0, 0, 0, 1, 1, 1], "test": [0, 1, 0, 1]}
    for owners in (owner, [0, 0, 0, 1, 1, 1, 0, 1, 0, 1]):
        data = from_torch(parts, owner=owners).split()
        assert data.sizes("train").tolist() == [3, 3]
        assert data.sizes("test").tolist() == [2, 2]
        np.testing.assert_array_equal(data.client(1, "test")["x"][:, 0], [2.0, 6.0])


def test_a_fraction_takes_nothing_from_a_test_part():
    data = from_torch({"train": tensors(6), "test": tensors(4)}).split(iid(1), validation=0.5)
    assert [data.sizes(part).tolist() for part in ("train", "validation", "test")] == [[3], [3], [4]]


def test_torch_streams_dicts_and_single_tensors():
    assert from_torch(Stream()).columns["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    dicts = Rows([{"tokens": [1, 2], "y": 0, "id": "p"}, {"tokens": [3, 4], "y": 1, "id": "q"}])
    assert from_torch(dicts, columns=("tokens", "y")).columns["tokens"].tolist() == [[1, 2], [3, 4]]
    assert list(from_torch(Rows([torch.zeros(3)] * 2), columns=("x",)).columns) == ["x"]


def test_bytes_with_two_axes_are_images_and_become_zero_to_one():
    images = TensorDataset(torch.full((4, 2, 2), 255, dtype=torch.uint8), torch.arange(4))
    assert from_torch(images).split(iid(1)).client(0)["x"].unique().tolist() == [1.0]
    own = from_torch(images, normalise={"x": (255.0, 1.0)}).split(iid(1))
    assert own.client(0)["x"].unique().tolist() == [0.0]
    characters = TensorDataset(torch.zeros(4, 5, dtype=torch.uint8), torch.arange(4))
    assert from_torch(characters).split(iid(1)).client(0)["x"].dtype == torch.int64


def test_a_target_of_bytes_is_a_map_of_classes_and_no_image():
    masks = TensorDataset(torch.zeros(4, 2), torch.full((4, 2, 2), 7, dtype=torch.uint8))
    for lazy in (False, True):
        assert from_torch(masks, lazy=lazy).split(iid(1)).client(0)["y"].unique().tolist() == [7]


class Changed(Rows):
    """Stores labels and changes them on the way to the item, in one of torchvision's two ways."""

    def __init__(self, **changes):
        super().__init__([(torch.ones(2) * number, number) for number in range(6)])
        self.targets = list(range(6))
        self.__dict__.update(changes)

    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        if hasattr(self, "transforms"):
            return self.transforms(x, y)
        return x, self.target_transform(y) if hasattr(self, "target_transform") else y * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"target_transform": lambda y: y if y in (0, 3, 5) else 9},
        {"transforms": lambda x, y: (x, y if y in (0, 3, 5) else 9)},
        {},
    ],
)
def test_labels_of_a_lazy_data_set_are_those_of_its_items(changes):
    """The list of stored labels is not what the items have, though the first, middle and last may be the same."""
    read = from_torch(Changed(**changes)).columns["y"]
    assert read.tolist() in ([0, 9, 9, 3, 9, 5], [0, 2, 4, 6, 8, 10])
    lazy = from_torch(Changed(**changes), lazy=True).columns["y"]
    assert isinstance(lazy, np.ndarray) and lazy.dtype == read.dtype
    np.testing.assert_array_equal(lazy, read)


@pytest.mark.parametrize("targets", [["a", "b", "a"], [0, 1], [[0], [0, 1], [1]]])
def test_targets_that_are_no_labels_are_refused(targets):
    with pytest.raises(DataError, match=r"targets must be numbers with one entry per item, 3\. Got"):
        from_torch(Rows([(torch.zeros(2), 0)] * 3), lazy=True, targets=targets)


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(4))])
def test_bfloat16_which_numpy_has_not_is_read_as_float32(wrap):
    rows = TensorDataset(torch.full((4, 2), 1.5, dtype=torch.bfloat16), torch.arange(4))
    x = from_torch(wrap(rows)).columns["x"]
    assert x.dtype == np.float32 and x.tolist() == [[1.5, 1.5]] * 4


@pytest.mark.parametrize(("mode", "shape"), [("L", (1, 2, 3)), ("1", (1, 2, 3)), ("RGB", (3, 2, 3)), ("P", (3, 2, 3))])
def test_pil_images_become_channels_first_bytes(mode, shape):
    pillow = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    image = pillow.fromarray(pixels).convert(mode)
    table = from_torch(Rows([(image, 0), (image, 1)]))
    assert table.columns["x"].shape == (2, *shape)
    assert table.columns["x"].dtype == np.uint8
    assert table.normalise == {"x": (0.0, 255.0)}
    if mode == "RGB":
        np.testing.assert_array_equal(table.columns["x"][0], pixels.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: from_torch(tensors(), owner=[0, 1]), "owner must name a client for each of the 6 rows. Got (2,)."),
        (lambda: from_torch(tensors(), columns=("x",)), "columns must name the 2 values of each item. Got ['x']."),
        (lambda: from_torch(Rows([])), "torch data set has no rows."),
        (lambda: from_torch(3), "dataset must be a torch Dataset with a length, or iterable. Got int."),
        (
            lambda: from_torch(Rows([([1, 2], 0), ([1], 0)])),
            "column 'x' of torch data set must have one shape. Got (2,) in row 0 and (1,) in row 1: "
            "pad them, or give `collate` to from_torch.",
        ),
        (
            lambda: from_torch(Rows([("some text", 0)])),
            "column 'x' of torch data set must hold numbers of one shape (tokenise and pad text). Got str in row 0.",
        ),
        (
            lambda: from_torch(Rows([([[1], [1, 2]], 0)])),
            "column 'x' of torch data set must hold numbers of one shape (tokenise and pad text). Got list in row 0.",
        ),
        (
            lambda: from_torch({"train": tensors(), "holdout": tensors()}),
            "dataset must be a data set, or a mapping from train, validation, test; choose from it what belongs to "
            "these parts. Got ['holdout', 'train'].",
        ),
        (
            lambda: from_torch({"train": tensors(), "test": tensors(4)}, owner={"train": range(6)}),
            "owner must name a client for each of the 4 rows of part 'test'. Got (0,).",
        ),
    ],
)
def test_what_cannot_be_a_table_is_named(call, sentence):
    with pytest.raises(DataError) as caught:
        call()
    assert str(caught.value) == sentence


def test_a_misspelt_column_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="Did you mean 'tokens'"):
        from_torch(Rows([{"tokens": [1], "y": 0}]), columns=("token", "y"))
    with pytest.raises(ConfigError, match="normalise column 'z' is not known"):
        from_torch(tensors(), normalise={"z": (0.0, 1.0)})


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets", reason="the datasets extra is not installed")


def hugging_face(datasets, rows: int = 12):
    features = np.arange(rows * 3.0).reshape(rows, 3) / 7
    label = [number % 2 for number in range(rows)]
    who = ["ann", "bob", "cem"] * (rows // 3)
    text = [["a", "b c"][number % 2] for number in range(rows)]
    return datasets.Dataset.from_dict({"features": features.tolist(), "label": label, "who": who, "text": text})


def test_a_hugging_face_data_set_with_a_client_column(datasets):
    table = from_hugging_face(hugging_face(datasets), XY, client="who")
    assert table.columns["x"].dtype == np.float64
    np.testing.assert_array_equal(table.columns["x"], np.arange(36.0).reshape(12, 3) / 7)
    data = table.split(validation=0.0, test=0.0)
    assert data.names == ["ann", "bob", "cem"]
    np.testing.assert_array_equal(data.client(1)["y"], [1, 0, 1, 0])


def test_a_hugging_face_dict_keeps_its_parts(datasets):
    both = datasets.DatasetDict({"train": hugging_face(datasets, 12), "test": hugging_face(datasets, 6)})
    data = from_hugging_face(both, XY, client="who").split()
    assert data.sizes("train").tolist() == [4, 4, 4]
    assert data.sizes("test").tolist() == [2, 2, 2]


def test_hugging_face_formats_and_transforms_are_respected(datasets):
    rows = hugging_face(datasets)
    assert from_hugging_face(rows.with_format("torch"), XY).columns["x"].dtype == np.float32
    tokenised = rows.with_transform(
        lambda batch: {"ids": [[len(text), 0] for text in batch["text"]], "label": batch["label"]}
    )
    assert from_hugging_face(tokenised, {"x": "ids", "y": "label"}).columns["x"][:2].tolist() == [[1, 0], [3, 0]]


def test_hugging_face_images(datasets):
    pillow = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    images = [pillow.fromarray(np.full((2, 3), 51 * number, dtype=np.uint8)) for number in range(3)]
    rows = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 0]})
    table = from_hugging_face(rows, {"x": "image", "y": "label"})
    assert table.columns["x"].shape == (3, 1, 2, 3)
    batch = table.split(iid(1), validation=0.0, test=0.0).client(0)
    np.testing.assert_allclose(batch["x"][:, 0, 0, 0], [0.0, 0.2, 0.4], rtol=1e-6)


@pytest.fixture(scope="module")
def pictures(datasets, tmp_path_factory):
    """Images in Arrow files on disk, in two parts with a client column."""
    pillow = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    rng, parts = np.random.default_rng(0), {}
    for part, rows in (("train", 18), ("test", 6)):
        images = [pillow.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)) for _ in range(rows)]
        columns = {"image": images, "label": [n % 3 for n in range(rows)], "who": ["ann", "bob", "cem"] * (rows // 3)}
        parts[part] = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    folder = tmp_path_factory.mktemp("pictures")
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    return datasets.load_from_disk(str(folder))


def test_a_lazy_hugging_face_data_set_is_read_when_a_batch_needs_it(datasets, pictures, monkeypatch):
    decoded: list[int] = []
    plain = datasets.Image.decode_example
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *a, **k: decoded.append(1) or plain(*a, **k))
    table = from_hugging_face(pictures, {"x": "image", "y": "label"}, client="who", lazy=True, cache_bytes=3 * 108)
    column = table.columns["x"]
    assert len(decoded) == 1, "one row, for its shape"
    assert column.shape == (24, 3, 6, 6) and column.dtype == np.uint8
    assert isinstance(table.columns["y"], np.ndarray)
    read = from_hugging_face(pictures, {"x": "image", "y": "label"}, client="who")
    decoded.clear()
    np.testing.assert_array_equal(column[np.array([23, 0, 18])], read.columns["x"][[23, 0, 18]])
    assert len(decoded) <= 3 and column.cached_bytes <= 3 * 108
    data = table.split()
    assert data.sizes("train").tolist() == [6, 6, 6] and data.sizes("test").tolist() == [2, 2, 2]
    assert data.names == ["ann", "bob", "cem"]


@pytest.mark.parametrize("how", [{"backend": "serial"}, {"backend": "vectorised"}, {"workers": 2, "block": 1}])
def test_a_lazy_hugging_face_data_set_trains_to_the_same_bits(pictures, how):
    digests = []
    for lazy in (False, True):
        table = from_hugging_face(pictures, {"x": "image", "y": "label"}, client="who", lazy=lazy, cache_bytes=500)
        model, algorithm = ft.models.cnn((3, 6, 6), 3, channels=(2,), hidden=4), ft.algorithms.fedavg(0.1, 2)
        run = ft.run(model=model, data=table.split(), algorithm=algorithm, rounds=2, batch_size=4, **how)
        digests.append(run.digest())
    assert digests[0] == digests[1]


def test_lazy_hugging_face_rows_can_be_sent_and_are_known_again(pictures):
    def column():
        return from_hugging_face(pictures, {"x": "image", "y": "label"}, lazy=True).columns["x"]

    sent = pickle.loads(pickle.dumps(column()))
    np.testing.assert_array_equal(sent[5], column()[5])
    assert identity_of(column()) == identity_of(column())
    fewer = from_hugging_face(pictures["train"].select(range(9)), {"x": "image", "y": "label"}, lazy=True)
    assert identity_of(fewer.columns["x"]) != identity_of(column())


def test_lazy_hugging_face_mistakes_are_named(datasets):
    rows = hugging_face(datasets)
    with pytest.raises(ConfigError, match=r"column 'featurs' is not known\. Did you mean 'features'"):
        from_hugging_face(rows, {"x": "featurs", "y": "label"}, lazy=True)
    with pytest.raises(DataError, match="column 'x' of Hugging Face data set must hold numbers"):
        from_hugging_face(rows, {"x": "text", "y": "label"}, lazy=True)
    ragged = datasets.Dataset.from_dict({"features": [[1.0, 2.0], [1.0]], "label": [0, 1]})
    table = from_hugging_face(ragged, XY, lazy=True)
    with pytest.raises(DataError, match="row 1 of column 'x' must be float64 of shape"):
        table.columns["x"][:]
    with pytest.raises(DataError, match="has no rows"):
        from_hugging_face(rows.select([]), XY, lazy=True)


def test_hugging_face_mistakes_are_named(datasets):
    rows = hugging_face(datasets)
    with pytest.raises(ConfigError, match=r"column 'labels' is not known\. Did you mean 'label'"):
        from_hugging_face(rows, {"x": "features", "y": "labels"})
    with pytest.raises(DataError, match="column 'x' of Hugging Face data set must hold numbers"):
        from_hugging_face(rows, {"x": "text", "y": "label"})
    with pytest.raises(DataError, match=r"dataset must be a datasets.Dataset or a DatasetDict\. Got list\."):
        from_hugging_face([1], XY)
    with pytest.raises(DataError, match="Got IterableDataset"):
        from_hugging_face(rows.to_iterable_dataset(), XY)


@pytest.fixture(scope="module")
def partitioners():
    return pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is not installed")


def test_flower_partitions_are_clients(datasets, partitioners):
    partitioner = partitioners.IidPartitioner(num_partitions=4)
    with pytest.raises(DataError, match="must have its data set"):
        from_flower_partitioner(partitioner, XY)
    partitioner.dataset = hugging_face(datasets)
    data = from_flower_partitioner(partitioner, XY).split(validation=0.0, test=0.0)
    assert data.sizes("train").tolist() == [3, 3, 3, 3]
    for number in range(4):
        expected = partitioner.load_partition(number).with_format("numpy")["features"][:]
        np.testing.assert_allclose(np.sort(data.client(number)["x"], axis=0), np.sort(expected, axis=0), rtol=1e-6)


def test_flower_label_skew_and_parts(datasets, partitioners):
    parts = {}
    for part, rows in (("train", 60), ("test", 30)):
        parts[part] = partitioners.DirichletPartitioner(
            num_partitions=3, partition_by="label", alpha=1.0, min_partition_size=2, seed=1
        )
        parts[part].dataset = hugging_face(datasets, rows)
    data = from_flower_partitioner(parts, XY).split()
    for part, partitioner in parts.items():
        sizes = [len(partitioner.load_partition(number)) for number in range(3)]
        assert data.sizes(part).tolist() == sizes
    parts["test"] = partitioners.IidPartitioner(num_partitions=2)
    parts["test"].dataset = hugging_face(datasets)
    with pytest.raises(DataError, match=r"same number of partitions\. Got \{'train': 3, 'test': 2\}"):
        from_flower_partitioner(parts, XY)
    with pytest.raises(DataError, match=r"must be a flwr_datasets Partitioner\. Got int"):
        from_flower_partitioner(3, XY)


def test_flower_natural_ids_and_an_empty_partition(datasets, partitioners):
    natural = partitioners.NaturalIdPartitioner(partition_by="who")
    natural.dataset = hugging_face(datasets)
    assert from_flower_partitioner(natural, XY).split(validation=0.0, test=0.0).sizes().tolist() == [4, 4, 4]
    too_many = partitioners.IidPartitioner(num_partitions=13)
    too_many.dataset = hugging_face(datasets)
    with pytest.raises(DataError, match="partition 12 of Flower partitions cannot be made: Index 12 out of range"):
        from_flower_partitioner(too_many, XY)
    natural.load_partition = lambda number: natural.dataset.select([0] if number else [])
    with pytest.raises(DataError, match="partition 0 of Flower partitions has no rows"):
        from_flower_partitioner(natural, XY)


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_that_are_drawn_at_random_are_refused(lazy: bool) -> None:
    """Random crops inside a data set: two runs of one seed differed, and test rows were cropped as well."""

    class Jittered(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
            return torch.ones(2) + torch.randn(2), number % 2

    with pytest.raises(DataError, match=r"same row every time; random transforms belong in augment=.*draws"):
        from_torch(Jittered(), owner=[0, 0, 1, 1], lazy=lazy)


def test_a_transform_that_draws_is_refused_too(datasets):
    rows = datasets.Dataset.from_dict({"x": [[1.0], [2.0]], "y": [0, 1]})
    rows.set_transform(lambda batch: {**batch, "x": [[v[0] + np.random.rand()] for v in batch["x"]]})
    with pytest.raises(DataError, match="draws random numbers when a row is read"):
        from_hugging_face(rows, {"x": "x", "y": "y"}, lazy=True)
