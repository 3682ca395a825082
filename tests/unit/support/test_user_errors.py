"""What the user's code raised, in one line."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo.support.user_errors import place_of, what_failed


def mine(text: str) -> None:
    raise ValueError(text)


def test_the_kind_the_first_line_and_the_users_own_line_are_named() -> None:
    with pytest.raises(ValueError) as met:
        mine("rows are bad\nand here is much more")
    assert what_failed(met.value).startswith("ValueError: rows are bad in mine, test_user_errors.py line ")
    assert "\n" not in what_failed(met.value)


def test_a_call_into_an_installed_library_is_named_where_the_user_made_it() -> None:
    with pytest.raises(ValueError) as met:
        np.stack([])
    assert " in test_a_call_into_an_installed_library" in place_of(met.value)


def test_an_error_without_words_and_without_a_place() -> None:
    assert what_failed(KeyError()) == "KeyError"
