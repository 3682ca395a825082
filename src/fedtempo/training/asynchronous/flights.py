"""Clients at work in an asynchronous run: when they started, from which version, and when they will be done.

A client's work is done when it arrives: until then only the model that it started from is kept. So what is in flight
is a list of numbers, and one model for every version that somebody still works on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedtempo.params import Params, leaves


class Flight(NamedTuple):
    """One client at work."""

    client: int
    version: int
    again: int
    """How often the client had started from this version before."""
    ends: float
    """The second of the clock at which it arrives, or at which it is lost."""
    joules: float
    lost: str = ""
    """Why its upload will not come; empty where it will."""


class Version(NamedTuple):
    """A model that clients have started from, and where the run stood then."""

    shared: Params
    loss_ratio: float
    plateaus: int
    time: float


class Flights(NamedTuple):
    """All clients at work, and the versions they work on."""

    flying: tuple[Flight, ...] = ()
    versions: Mapping[int, Version] = {}
    events: int = 0
    """Starts and finishes so far."""
    time: float = 0.0
    filled: int = -1
    """The version from which the cohort was last filled at once."""

    def without(self, flight: Flight) -> Flights:
        """The others, one event later."""
        rest = tuple(other for other in self.flying if other is not flight)
        return self._replace(flying=rest, events=self.events + 1, time=max(self.time, flight.ends))

    def pruned(self) -> Flights:
        """Without the models that nobody works on any more."""
        used = {flight.version for flight in self.flying}
        return self._replace(versions={number: one for number, one in self.versions.items() if number in used})


def flights_to_plain(flights: Flights) -> tuple[dict[str, object], Params]:
    """Numbers for JSON, and tensors by name."""
    numbers: dict[str, object] = {
        "flying": [list(flight) for flight in flights.flying],
        "versions": {str(number): [one.loss_ratio, one.plateaus, one.time] for number, one in flights.versions.items()},
        "events": flights.events,
        "time": flights.time,
        "filled": flights.filled,
    }
    tensors: Params = {}
    for number, one in flights.versions.items():
        tensors |= leaves(one.shared, f"version {number}")
    return numbers, tensors


def flights_from_plain(numbers: Mapping[str, Any], models: Mapping[int, Params]) -> Flights:
    """The inverse of `flights_to_plain`, with the models put together already."""
    return Flights(
        tuple(Flight(*flight) for flight in numbers["flying"]),
        {int(number): Version(models[int(number)], *rest) for number, rest in numbers["versions"].items()},
        numbers["events"],
        numbers["time"],
        numbers["filled"],
    )
