"""Every loader on tiny files of the official layout."""

import gzip

import numpy as np
import pytest

from fedtempo.data import dirichlet, natural
from fedtempo.data.parts import TEST, TRAIN, VALIDATION
from fedtempo.errors import ConfigError, DataError
from tests import tiny_files as tiny


def owned(data):
    """Every row with its owner and part, checked to have one of each."""
    rows = [data.positions(client, part) for client in range(len(data)) for part in ("train", "validation", "test")]
    everything = np.concatenate(rows)
    assert len(np.unique(everything)) == len(everything)
    return everything


def test_mnist_is_read_with_its_parts_and_writers(tmp_path, tiny_load):
    pixels = tiny.mnist(tmp_path)
    table = tiny_load("mnist")
    assert table.columns["x"].shape == (60, 1, 28, 28)
    assert table.columns["x"].dtype == np.uint8
    np.testing.assert_array_equal(table.columns["x"][:40, 0], pixels["train"])
    np.testing.assert_array_equal(table.columns["x"][40:, 0], pixels["t10k"])
    np.testing.assert_array_equal(table.parts, [TRAIN] * 40 + [TEST] * 20)
    data = table.split(natural(), test=0.2, validation=0.0)
    assert len(data) == 6
    assert len(owned(data)) == 60
    batch = data.client(0)["x"]
    assert batch.shape == (8, 1, 28, 28)
    np.testing.assert_allclose(
        batch.numpy(), (table.columns["x"][data.positions(0)] / 255 - 0.1307) / 0.3081, rtol=1e-4, atol=1e-5
    )


def test_mnist_without_writer_files_has_no_natural_clients(tmp_path, tiny_load):
    tiny.mnist(tmp_path, writers=False)
    table = tiny_load("mnist")
    assert table.keys is None
    with pytest.raises(DataError, match="no natural clients"):
        table.split()


def test_writers_of_other_digits_are_refused(tmp_path, tiny_load):
    tiny.mnist(tmp_path)
    wrong = np.zeros((40, 8), dtype=np.int32)
    tiny.put(tmp_path / "mnist", "qmnist-train-labels-idx2-int.gz", gzip.compress(tiny.idx(wrong)))
    with pytest.raises(DataError, match="must describe the digits"):
        tiny_load("mnist")


def test_fashion_mnist_has_the_same_layout(tmp_path, tiny_load):
    tiny.mnist(tmp_path, "fashion_mnist", writers=False)
    assert len(tiny_load("fashion_mnist").split(dirichlet(clients=3, alpha=5), min_samples=1)) == 3


@pytest.mark.parametrize("zipped", [True, False])
def test_emnist_images_are_transposed_back(tmp_path, tiny_load, zipped):
    pixels = tiny.emnist(tmp_path, zipped=zipped)
    table = tiny_load("emnist")
    np.testing.assert_array_equal(table.columns["x"][:70, 0], pixels["train"].swapaxes(1, 2))
    assert set(table.columns["y"].tolist()) == set(range(62))


def test_emnist_letters_count_from_zero(tmp_path, tiny_load):
    tiny.emnist(tmp_path, "letters", first=1)
    assert tiny_load("emnist", variant="letters").columns["y"].min() == 0
    with pytest.raises(DataError, match="emnist-digits-train-images"):
        tiny_load("emnist", variant="digits")
    with pytest.raises(ConfigError, match="variant must be one of"):
        tiny_load("emnist", variant="klingon")


def test_cifar10_reads_five_batches_in_order(tmp_path, tiny_load):
    tiny.cifar10(tmp_path)
    table = tiny_load("cifar10")
    assert table.columns["x"].shape == (110, 3, 32, 32)
    records = np.frombuffer(tiny.cifar_batch(20, 1), np.uint8).reshape(20, 3073)
    np.testing.assert_array_equal(table.columns["x"][20:40].reshape(20, -1), records[:, 1:])
    np.testing.assert_array_equal(table.columns["y"][20:40], records[:, 0])
    assert (np.asarray(table.parts) == TEST).sum() == 10


def test_omniglot_is_inverted_and_keyed_by_alphabet(tmp_path, tiny_load):
    tiny.omniglot(tmp_path)
    table = tiny_load("omniglot")
    assert table.columns["x"].shape == (180, 1, 28, 28)
    assert np.median(table.columns["x"]) == 0
    assert table.columns["x"].max() > 200
    data = table.split(relabel=True)
    assert list(data.names) == ["Alpha", "Beta", "Gamma"]
    assert data.outputs.tolist() == [2, 3, 4]
    assert data.sizes("train").tolist() == [30, 45, 60]
    assert data.sizes("test").tolist() == [10, 15, 20]
    inside = tiny_load("omniglot", labels="alphabet")
    assert [int(inside.columns["y"][inside.keys == a].max()) for a in range(3)] == [1, 2, 3]
    np.testing.assert_array_equal(np.bincount(table.columns["y"]), 20)


@pytest.mark.parametrize("fractions", [{}, {"test": 0.3, "validation": 0.2}])
def test_no_rotated_copy_of_a_test_image_is_trained_on(tmp_path, tiny_load, fractions):
    tiny.omniglot(tmp_path)
    plain = tiny_load("omniglot").split(**fractions)
    data = tiny_load("omniglot", rotations=True).split(**fractions)
    np.testing.assert_array_equal(data.bounds, plain.bounds * 4)
    assert len(owned(data)) == 4 * 180
    for client in range(3):
        for part in ("train", "validation", "test"):
            x = np.asarray(plain.columns["x"])[plain.positions(client, part)]
            wanted = np.concatenate([np.rot90(x, turn, axes=(2, 3)) for turn in range(4)])
            rows = data.positions(client, part)
            np.testing.assert_array_equal(data.columns["x"][rows], wanted)
            np.testing.assert_array_equal(data.columns["y"][rows], np.tile(plain.columns["y"][rows[: len(x)]], 4))


def test_femnist_from_leaf_folders(tmp_path, tiny_load):
    tiny.femnist_json(tmp_path)
    table = tiny_load("femnist")
    data = table.split()
    assert list(data.names) == ["a", "b"]
    assert data.sizes("train").tolist() == [6, 4]
    assert data.sizes("test").tolist() == [2, 1]
    everybody = tiny_load("femnist", writers="all").split(natural(), validation=0.2, test=0.2, new_clients=1)
    assert len(everybody) == 3
    assert len(everybody.held_out) == 1


def test_leaf_pixels_come_back_exactly(tmp_path, tiny_load):
    tiny.femnist_json(tmp_path)
    expected = np.random.default_rng(0).integers(0, 256, (6, 784))
    np.testing.assert_array_equal(tiny_load("femnist").columns["x"][:0].shape, (0, 1, 28, 28))
    rows = tiny_load("femnist").split()
    np.testing.assert_array_equal(rows.columns["x"][rows.positions(0)].reshape(6, -1), expected)


def test_shakespeare_windows_stay_inside_their_part_and_role(tmp_path, tiny_load):
    from fedtempo.data.sets.characters import ALPHABET, CHARACTERS, encoded

    tiny.shakespeare(tmp_path)
    table = tiny_load("shakespeare", window=20)
    data = table.split()
    assert list(data.names) == ["hamlet/HAMLET", "macbeth/HAMLET"]
    x, y = np.asarray(table.columns["x"]), np.asarray(table.columns["y"])
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    spoken = "To be, or not to be: that is the question." * 10 + "\n" + "The end." * 5
    codes = encoded(spoken)
    border = len(codes) - round(len(codes) * 0.2)
    train = x[data.positions(0)]
    np.testing.assert_array_equal(train.reshape(-1), codes[: train.size])
    assert train.size + 1 <= border
    test = x[data.positions(0, "test")]
    np.testing.assert_array_equal(test.reshape(-1), codes[border : border + test.size])
    assert CHARACTERS == 77
    assert x.max() == len(ALPHABET)  # the accented letter is nobody's


def test_next_character_windows_overlap_and_predict_one(tmp_path, tiny_load):
    tiny.shakespeare(tmp_path)
    table = tiny_load("shakespeare", window=20, target="next", stride=1, validation=0.1)
    data = table.split()
    x, y = table.columns["x"], table.columns["y"]
    rows = data.positions(0)
    np.testing.assert_array_equal(x[rows[1:], -1], y[rows[:-1]])
    assert y.ndim == 1
    assert data.sizes("validation")[0] > 0
    with pytest.raises(ConfigError, match="target must be"):
        tiny_load("shakespeare", target="previous")
    with pytest.raises(DataError, match="window must be short enough"):
        tiny_load("shakespeare", window=5000)


def test_a_limit_crops_every_role(tmp_path, tiny_load):
    tiny.shakespeare(tmp_path)
    data = tiny_load("shakespeare", window=20, target="next", stride=1, limit=30).split()
    assert data.sizes("train").tolist() == [30, 30]
    assert data.sizes("test").tolist() == [6, 6]


def test_tinyshakespeare_roles(tmp_path, tiny_load):
    text = (
        "First Citizen:\n" + "Before we proceed any further, hear me speak.\n" * 5 + "\nAll:\n" + "Speak, speak.\n" * 20
    )
    tiny.put(tmp_path / "shakespeare", "input.txt", text.encode())
    assert list(tiny_load("tinyshakespeare", window=20).split().names) == ["First Citizen", "All"]


def test_stackoverflow_counts_words_and_tags_in_training_questions_only(tmp_path, tiny_load):
    tiny.stackoverflow(tmp_path)
    table = tiny_load("stackoverflow", tags=3)
    x, y = table.columns["x"], table.columns["y"]
    assert y.dtype == bool
    assert y.shape[1] == 3
    assert y.any(axis=1).all()
    assert set(np.unique(table.keys)) == {3, 4, 7}  # user 9 has none of the tags
    data = table.split()
    assert data.sizes("train").tolist() == [4, 2, 8]
    assert data.sizes("test").tolist() == [1, 0, 2]
    # Only user 7's last question, a test question, has the words "only", "the", "test", "question", "says", "zebra".
    assert tiny_load("stackoverflow", tags=3, test=0.0).columns["x"].shape[1] == x.shape[1] + 6
    assert x[data.positions(2, "test")[-1]].sum() == 0
    assert tiny_load("stackoverflow", tokens=3).columns["x"].shape[1] == 3
    assert data.client(0)["x"].is_floating_point()
    assert set(data.client(0)["x"].unique().tolist()) == {0.0, 1.0}


def test_stackoverflow_knows_c_sharp_and_dot_net():
    from fedtempo.data.sets.stackoverflow import _WORD

    assert _WORD.findall("how to use c# in .net 3.5, c++ & asp.net?") == [
        "how", "to", "use", "c#", "in", ".net", "3.5", "c++", "asp.net",
    ]  # fmt: skip


@pytest.mark.parametrize("zipped", [True, False])
def test_sst2_tokens(tmp_path, tiny_load, zipped):
    tiny.sst2(tmp_path, zipped)
    table = tiny_load("sst2")
    names = np.array(tiny.VOCABULARY)
    rows = [
        " ".join(names[row[mask == 1]])
        for row, mask in zip(table.columns["input_ids"], table.columns["attention_mask"], strict=True)
    ]
    assert rows[0] == "[CLS] good film ##s [SEP]"
    assert rows[1] == "[CLS] bad film , un ##watch ##able [SEP]"
    assert rows[-1] == "[CLS] [UNK] [SEP]"
    assert np.bincount(table.parts).tolist() == [16, 4, 2]
    assert table.columns["y"][-2:].tolist() == [1, 0]
    short = tiny_load("sst2", max_length=4, validation=0.0)
    assert short.columns["input_ids"].shape == (22, 4)
    assert (np.asarray(short.parts) == VALIDATION).sum() == 0


def test_an_unknown_setting_and_an_unknown_name_are_named(tmp_path, tiny_load):
    with pytest.raises(ConfigError, match="no setting 'rotation'; it takes labels, test_drawings, rotations"):
        tiny_load("omniglot", rotation=True)
    with pytest.raises(ConfigError, match="Did you mean 'mnist'"):
        tiny_load("mnits")
