"""Sentiment140: tweets of users, in the published layout."""

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data.parts import TEST, TRAIN
from fedtempo.errors import ConfigError, DataError
from tests import tiny_files as tiny


def test_tweets_by_user_and_time(tmp_path, tiny_load):
    tiny.sentiment140(tmp_path)
    table = tiny_load("sentiment140", words=3, max_words=4)
    assert table.key_names == ["ann", "bob", "zoe"]
    assert np.asarray(table.keys).tolist() == [0] * 5 + [1] * 2 + [2]
    # Ann's tweets are 10, 11, 12, 13, 14 now; the fifth is her test part. Bob's and Zoe's first stay for training.
    assert table.columns["y"].tolist() == [1, 0, 1, 0, 1, 0, 1, 0]
    assert np.asarray(table.parts).tolist() == [TRAIN] * 4 + [TEST] + [TRAIN] * 3
    # Counted in the training part: good 8, bad 4 (its spelling does not matter), day 2; zebra is only in the test part.
    good, bad, day = 2, 3, 4
    tokens = table.columns["input_ids"]
    assert tokens[0].tolist() == [good, day, 1, 1]  # a comma and it's are not among the three; the last word is cut
    assert tokens[1].tolist() == [bad, 0, 0, 0]
    assert tokens[4].tolist() == [1, day, 0, 0]
    assert tokens[5].tolist() == [bad, bad, day, 0]
    np.testing.assert_array_equal(table.columns["attention_mask"], tokens != 0)
    assert table.about["licence"]


def test_the_words_are_leafs_and_the_bytes_latin_1(tmp_path, tiny_load):
    tiny.sentiment140(tmp_path)
    table = tiny_load("sentiment140", words=100, test=0.0)
    assert (np.asarray(table.parts) == TRAIN).all()
    words = {"good", "day", ",", "it's", "bad", "he", "said", "caf\xe9", ".", "zebra", "!"}
    assert table.columns["input_ids"].max() == len(words) + 1
    assert (table.columns["input_ids"][-1] != 0).sum() == 3  # café, bad and the full stop


def test_it_trains_with_its_users_as_clients(tmp_path, tiny_load):
    tiny.sentiment140(tmp_path)
    data = tiny_load("sentiment140", words=5, max_words=4).split(ft.data.natural(min_rows=2))
    assert data.names == ["ann", "bob"]
    model = ft.models.word_average(7, width=3, hidden=2, outputs=2)
    result = ft.run(model=model, data=data, algorithm=ft.algorithms.fedavg(0.1, 1), rounds=1, progress=False)
    assert len(result.history[0].clients) == 2


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (b'"2","1","d","q","u","t"\n', "Line 9: polarity '2'"),
        (b'"0","x","d","q","u","t"\n', "Line 9: invalid literal"),
        (b'"0","1","d"\n', "Line 9: not enough values"),
    ],
)
def test_another_layout_is_refused_with_its_line(tmp_path, tiny_load, line, match):
    tiny.sentiment140(tmp_path, line)
    with pytest.raises(DataError, match=match):
        tiny_load("sentiment140")
    with pytest.raises(ConfigError, match="words must be an int >= 1"):
        tiny_load("sentiment140", words=0)
