"""Devices as values: a rule from (seed, client) to traits, and when clients are there.

Nothing is stored per client. Traits are drawn again whenever they are needed, from the seed and the client's number, so
a million devices cost as much memory as ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedtempo.devices.traits import DAY, Traits, traits_of
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.randomness import client_keys, random_bits

Draw = Callable[[int, np.ndarray], Traits]
"""(seed, clients) -> their traits."""
OwnDevices = Callable[[int, np.ndarray], Mapping[str, np.ndarray | float]]
"""A user's devices: (seed, clients) -> numbers by trait, one for all clients or one for each."""


def uniforms(seed: int, clients: np.ndarray, count: int, *path: str | int) -> np.ndarray:
    """`count` numbers in (0, 1) for each client and purpose; shape (count, clients)."""
    bits = random_bits(client_keys(seed, clients, "devices", *path), count)
    # The 53 upper bits, and half a unit more: neither 0 nor 1 comes out, so logarithms are finite.
    return ((((bits >> 11) & (2**53 - 1)) + 0.5) * 2.0**-53).T


@dataclass(frozen=True)
class Availability:
    """When clients are there: hours of the day by time zone, how long they stay, and when they first join."""

    hours: tuple[float, float] | None = None
    """The local hours between which a client may be asked; None leaves it to the devices."""
    time_zones: tuple[float, ...] | None = None
    """Hours ahead of the clock; each client lives in one of them."""
    stays: float | None = None
    """Seconds that a client stays in a round on average before it leaves (exponential); None: to the end."""
    joins: float = 0.0
    """Clients join at times spread evenly over so many seconds; 0: all are there from the start."""

    def __post_init__(self) -> None:
        hours, zones = self.hours, self.time_zones
        form = hours is None or (len(hours) == 2 and all(is_number(h) and 0 <= h <= DAY for h in hours))
        require(form and (hours is None or hours[0] != hours[1]), "hours", "two hours in [0, 24] that differ", hours)
        known = zones is None or (bool(zones) and all(is_number(z) and abs(z) <= DAY for z in zones))
        require(known, "time_zones", "hours in [-24, 24]", zones)
        require(self.stays is None or (is_number(self.stays) and self.stays > 0), "stays", "a number > 0", self.stays)
        require(is_number(self.joins) and self.joins >= 0, "joins", "a number >= 0", self.joins)

    def applied(self, traits: Traits, seed: int, clients: np.ndarray) -> Traits:
        """Traits with the hours and time zones of this rule."""
        if self.hours is not None:
            opens, closes = (np.broadcast_to(np.float64(hour), len(clients)) for hour in self.hours)
            traits = traits._replace(opens=opens, closes=closes)
        if self.time_zones is not None:
            (drawn,) = uniforms(seed, clients, 1, "time zone")
            zones = np.asarray(self.time_zones, dtype=np.float64)
            traits = traits._replace(time_zone=zones[(drawn * len(zones)).astype(np.int64)])
        return traits

    def joined_at(self, seed: int, clients: np.ndarray) -> np.ndarray:
        """The second of the clock at which each client joins."""
        (drawn,) = uniforms(seed, clients, 1, "joins")
        return np.asarray(drawn * self.joins)

    def stays_for(self, seed: int, clients: np.ndarray, *path: int) -> np.ndarray:
        """Seconds after which each client leaves this round of its own accord."""
        if self.stays is None:
            return np.full(len(clients), np.inf)
        (drawn,) = uniforms(seed, clients, 1, "stays", *path)
        return np.asarray(-self.stays * np.log(drawn))


@dataclass(frozen=True)
class Devices:
    """The devices of all clients: a rule that prints as the call that made it."""

    name: str
    settings: Mapping[str, Any]
    draw: Draw = field(compare=False, repr=False)
    availability: Availability = field(default_factory=Availability)
    has_hours: bool = False
    """Whether devices have hours of their own, from a file or a function; without, nobody has to look."""
    content: Any = field(default=None, compare=False, repr=False)
    """What decides the traits besides the settings: the numbers of a file, a user's function, kinds of devices."""

    def identity(self) -> tuple[object, ...]:
        """Everything that decides the traits, as a value whose hash is the same in every process."""
        inner = [kind.identity() for kind in self.content] if isinstance(self.content, list) else self.content
        plain = {key: value for key, value in self.settings.items() if key != "of"}
        shares = [share for share, _ in self.settings.get("of", ())]
        return self.name, plain, shares, self.availability, inner

    def traits(self, seed: int, clients: np.ndarray | Sequence[int]) -> Traits:
        """What the devices of these clients can do, one entry each.

        >>> from fedtempo.devices import constant
        >>> constant(seconds_per_step=0.5).traits(0, [3, 4]).seconds_per_step.tolist()
        [0.5, 0.5]
        """
        numbers = np.asarray(clients, dtype=np.int64)
        return self.availability.applied(self.draw(seed, numbers), seed, numbers)

    def available(
        self,
        hours: Sequence[float] | None = None,
        time_zones: Sequence[float] | None = None,
        stays: float | None = None,
        joins: float = 0.0,
    ) -> Devices:
        """The same devices, there at some hours only, for some time only, or from some time on."""
        given = (None if each is None else tuple(float(hour) for hour in each) for each in (hours, time_zones))
        window, zones = given
        return replace(self, availability=Availability(window, zones, stays, joins))  # type: ignore[arg-type]

    @property
    def always_there(self) -> bool:
        """Whether nothing but the devices' own hours keeps clients away."""
        return self.availability == Availability()

    @property
    def is_own(self) -> bool:
        """Whether a file or a function of the user's decides traits: what it says of a client may be wrong."""
        kinds = self.content if isinstance(self.content, list) else []
        return any(kind.is_own for kind in kinds) or (self.content is not None and not kinds)

    @property
    def may_be_away(self) -> bool:
        """Whether a client may be away when a round begins."""
        return self.has_hours or self.availability.hours is not None or self.availability.joins > 0

    @property
    def may_leave(self) -> bool:
        """Whether a client may leave before a round ends."""
        return self.has_hours or self.availability.hours is not None or self.availability.stays is not None

    def __repr__(self) -> str:
        text = f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"
        if self.always_there:
            return text
        given = {key: value for key, value in vars(self.availability).items() if value}
        return f"{text}.available({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def as_devices(value: Devices | OwnDevices | None) -> Devices | None:
    """Devices from devices or from a function of (seed, clients) that returns arrays by trait."""
    if value is None or isinstance(value, Devices):
        return value
    require(callable(value), "devices", "devices, such as devices.phones(), or a function of (seed, clients)", value)
    function = value
    name = getattr(function, "__qualname__", type(function).__name__)

    def draw(seed: int, clients: np.ndarray) -> Traits:
        given = function(seed, clients)
        require(isinstance(given, Mapping), f"devices {name!r}", "a function that returns arrays by trait", given)
        try:
            return traits_of(given, len(clients))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"devices {name!r} must return one number per client and trait: {error}.") from None

    return Devices(name, {}, draw, has_hours=True, content=function)
