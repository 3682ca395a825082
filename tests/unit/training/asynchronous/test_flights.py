"""Clients at work, on their way to disk and back."""

from __future__ import annotations

import torch

from fedtempo.training.asynchronous.flights import Flight, Flights, Version
from fedtempo.training.state import State, state_from_bytes, state_to_bytes

MODEL = {"w": torch.tensor([1.0, 2.0])}
OLD = {"w": torch.tensor([5.0, 6.0])}
FLIGHTS = Flights(
    (Flight(7, 2, 0, 9.5, 1.25), Flight(3, 4, 1, 0.1 + 0.2, 0.0, "left")),
    {2: Version(OLD, 0.5, 1, 3.0), 4: Version(MODEL, 0.25, 2, 8.0), 3: Version(MODEL, 1.0, 0, 5.0)},
    events=12,
    time=8.5,
    filled=4,
)


def test_flights_survive_the_disk_bit_for_bit() -> None:
    state = State(MODEL, {}, time=8.0, energy=1 / 3, flights=FLIGHTS)
    again = state_from_bytes(*state_to_bytes(state), State(MODEL, {}))
    assert again.flights is not None
    assert again.flights.flying == FLIGHTS.flying and again.energy == 1 / 3 and again.time == 8.0
    assert again.flights[2:] == FLIGHTS[2:]
    assert torch.equal(again.flights.versions[2].shared["w"], OLD["w"])
    assert again.flights.versions[4][1:] == (0.25, 2, 8.0)
    plain = State(MODEL, {})
    assert state_from_bytes(*state_to_bytes(plain), plain).flights is None


def test_models_that_nobody_works_on_are_dropped() -> None:
    assert set(FLIGHTS.pruned().versions) == {2, 4}
    rest = FLIGHTS.without(FLIGHTS.flying[0])
    assert [flight.client for flight in rest.flying] == [3] and (rest.events, rest.time) == (13, 9.5)
    assert set(rest.pruned().versions) == {4}
