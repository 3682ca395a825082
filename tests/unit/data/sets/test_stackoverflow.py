"""Stack Overflow: words and tags, counted in training questions only."""

import numpy as np

from tests import tiny_files as tiny


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
