"""Hours of a day, and numbers that no device can have."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo.devices.traits import HOUR, traits_of
from fedtempo.errors import ConfigError


def test_a_window_opens_and_closes_by_local_time() -> None:
    traits = traits_of({"opens": 22.0, "closes": 6.0, "time_zone": np.array([0.0, 3.0, -6.0])}, 3)
    # At 20:00 of the clock it is 20:00, 23:00 and 14:00.
    assert traits.is_open(20 * HOUR).tolist() == [False, True, False]
    assert (traits.until_opening(20 * HOUR) / HOUR).tolist() == [2.0, 0.0, 8.0]
    assert (traits.until_closing(20 * HOUR) / HOUR).tolist() == [0.0, 7.0, 0.0]
    # A day later it is the same.
    assert traits.is_open(44 * HOUR).tolist() == [False, True, False]


def test_the_usual_device_is_always_there() -> None:
    traits = traits_of({}, 2)
    assert traits.is_open(1e9).all()
    assert np.isinf(traits.until_closing(5.0)).all()
    assert not traits.until_opening(5.0).any()


@pytest.mark.parametrize(
    ("name", "value"),
    [("up", 0.0), ("seconds_per_step", -1.0), ("latency", np.nan), ("opens", 25.0), ("time_zone", np.inf), ("uq", 1.0)],
)
def test_what_no_device_can_have_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        traits_of({name: value}, 2)


def test_a_device_that_is_never_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="closes must be another hour than opens"):
        traits_of({"opens": np.array([3.0, 4.0]), "closes": 4.0}, 2)
