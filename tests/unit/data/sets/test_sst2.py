"""SST-2: sentences as word pieces."""

import numpy as np
import pytest

from fedtempo.data.parts import VALIDATION
from tests import tiny_files as tiny


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
