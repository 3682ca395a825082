"""What a device can do, as arrays with one entry per client; and when it may be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedtempo.errors import require, unknown, wrong

DAY = 24.0
HOUR = 3600.0


class Traits(NamedTuple):
    """Devices of some clients. Every field is an array with one number per client."""

    seconds_per_step: np.ndarray
    """Seconds of one local step; 0 where the speed is given in operations."""
    flops_per_second: np.ndarray
    """Floating-point operations a second; infinite where the speed is given in seconds."""
    down: np.ndarray
    """Bytes a second towards the client."""
    up: np.ndarray
    """Bytes a second towards the server."""
    latency: np.ndarray
    """Seconds that each of the two transfers takes besides."""
    joules_per_step: np.ndarray
    joules_per_byte: np.ndarray
    """Energy of a byte, whichever way it goes."""
    opens: np.ndarray
    """The local hour from which the device may be used."""
    closes: np.ndarray
    """The local hour at which it may no longer be used. Before `opens`, it is one of the next day."""
    time_zone: np.ndarray
    """Hours that local time is ahead of the clock."""

    def hours_open(self) -> np.ndarray:
        """The length of the daily window, in hours."""
        span = self.closes - self.opens
        return np.where(np.abs(span) >= DAY, DAY, np.mod(span, DAY))

    def hours_since_opening(self, time: float | np.ndarray) -> np.ndarray:
        """Hours since the window last opened, at a time of the clock in seconds."""
        return np.asarray(np.mod(time / HOUR + self.time_zone - self.opens, DAY))

    def is_open(self, time: float | np.ndarray) -> np.ndarray:
        """Which devices may be used at this time."""
        return np.asarray(self.hours_since_opening(time) < self.hours_open())

    def until_closing(self, time: float | np.ndarray) -> np.ndarray:
        """Seconds until the window closes: infinite where it never does, 0 where it is closed."""
        length = self.hours_open()
        left = np.maximum(length - self.hours_since_opening(time), 0.0) * HOUR
        return np.where(length >= DAY, np.inf, left)

    def until_opening(self, time: float | np.ndarray) -> np.ndarray:
        """Seconds until the window opens; 0 where it is open."""
        return np.where(self.is_open(time), 0.0, (DAY - self.hours_since_opening(time)) * HOUR)


USUAL: dict[str, float] = {
    "seconds_per_step": 0.0,
    "flops_per_second": np.inf,
    "down": np.inf,
    "up": np.inf,
    "latency": 0.0,
    "joules_per_step": 0.0,
    "joules_per_byte": 0.0,
    "opens": 0.0,
    "closes": DAY,
    "time_zone": 0.0,
}
"""A device that takes no time, costs nothing and is always there."""
POSITIVE = ("flops_per_second", "down", "up")


def traits_of(given: Mapping[str, float | np.ndarray], clients: int) -> Traits:
    """The traits of so many clients from numbers or arrays by name; what is left out is as in `USUAL`."""
    for name in given:
        if name not in USUAL:
            raise unknown("trait", name, USUAL)
    values = {**USUAL, **given}
    arrays = {name: np.broadcast_to(np.asarray(value, dtype=np.float64), clients) for name, value in values.items()}
    for name, array in arrays.items():
        check_trait(name, array)
    never = arrays["opens"] == arrays["closes"]
    rule = "another hour than opens: a device must be there at some time"
    require(not never.any(), "devices.closes", rule, arrays["closes"][never][:1].tolist())
    return Traits(**arrays)


def check_trait(name: str, values: np.ndarray, field: str = "devices") -> None:
    """Refuse numbers that no device can have."""
    if name == "time_zone":
        holds, rule = np.isfinite(values) & (np.abs(values) <= DAY), "hours in [-24, 24]"
    elif name in ("opens", "closes"):
        holds, rule = (values >= 0) & (values <= DAY), "hours in [0, 24]"
    elif name in POSITIVE:
        holds, rule = values > 0, "above 0"
    else:
        holds, rule = np.isfinite(values) & (values >= 0), "finite and at least 0"
    if not holds.all():
        raise wrong(f"{field}.{name}", rule, float(values[~holds].flat[0]))
