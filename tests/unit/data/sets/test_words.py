"""A vocabulary by use, and the latest rows of each user for testing."""

import numpy as np

from fedtempo.data.parts import TEST, TRAIN
from fedtempo.data.sets.words import latest_for_testing, most_used


def test_equally_used_names_are_ranked_by_the_alphabet():
    assert most_used(["z", "b", "a", "z"], 10) == {"z": 0, "a": 1, "b": 2}


def test_the_last_share_of_each_user_is_for_testing():
    users = np.array([1] * 10 + [3] + [4] * 3)
    parts = latest_for_testing(users, 0.2)
    assert parts.tolist() == [TRAIN] * 8 + [TEST] * 2 + [TRAIN] + [TRAIN] * 2 + [TEST]
    assert (latest_for_testing(users, 0.99) == TRAIN).sum() == 3
