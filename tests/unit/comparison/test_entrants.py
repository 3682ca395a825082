"""Contestants and seeds side by side in worker processes: the same numbers as one after the other."""

from __future__ import annotations

import pytest

from fedtempo.comparison.entrants import parse_algorithms
from fedtempo.errors import ConfigError


@pytest.mark.parametrize("mark", [":", ";", " ", "+"])
def test_settings_with_another_mark_than_a_comma_between_them_are_told_the_comma(mark: str) -> None:
    with pytest.raises(ConfigError, match=r"must have commas between them \(a:lr=0.1,steps=5\)"):
        parse_algorithms(f"fedavg,feddecay:lr=0.3{mark}beta=0.4")
