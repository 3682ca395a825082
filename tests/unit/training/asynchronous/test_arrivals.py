"""Who starts next in an asynchronous run, and the end of a list of events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.errors import TrainingError
from fedtempo.schedules import Now
from fedtempo.training.asynchronous.arrivals import SMALL, ByList, starters
from fedtempo.training.asynchronous.flights import Flight, Flights
from tests.one_weight import experiment

FIVE = experiment(*([float(c)] for c in range(5)), cohort=3)


def everybody(clients: np.ndarray) -> np.ndarray:
    return clients


def test_a_first_cohort_is_that_of_a_synchronous_round() -> None:
    now = FIVE.federation.problem.now(2, 3.0)
    flights, chosen = starters(FIVE, now, Flights(), 3, everybody)
    assert chosen.tolist() == FIVE.cohort.choose(FIVE.federation.problem.data.clients, now, 0).tolist()
    assert flights.filled == 2


def test_others_are_drawn_among_those_who_are_free() -> None:
    now = FIVE.federation.problem.now(0, 3.0)
    busy = Flights(tuple(Flight(c, 0, 0, 1.0, 0.0) for c in (0, 3)), events=7)
    drawn = [starters(FIVE, now, busy._replace(events=e), 1, everybody)[1].tolist() for e in range(40)]
    assert {client for one in drawn for client in one} == {1, 2, 4} and all(len(one) == 1 for one in drawn)
    assert drawn[3] == starters(FIVE, now, busy._replace(events=3), 1, everybody)[1].tolist()
    only = starters(FIVE, now, busy, 3, lambda clients: clients[clients == 4])[1]
    assert only.tolist() == [4]


def test_of_very_many_clients_some_are_tried() -> None:
    many = experiment(*([0.0] for _ in range(SMALL + 50)), cohort=2)
    busy = Flights(tuple(Flight(c, 0, 0, 1.0, 0.0) for c in range(100)))
    _, chosen = starters(many, many.federation.problem.now(0, 2.0), busy, 20, everybody)
    assert len(set(chosen.tolist())) == 20 and chosen.min() >= 100


def test_of_very_many_clients_the_one_that_is_there_is_found() -> None:
    many = experiment(*([0.0] for _ in range(SMALL + 50)), cohort=2)
    busy = Flights((Flight(7, 0, 0, 1.0, 0.0),))
    now, only = many.federation.problem.now(0, 2.0), SMALL + 49
    assert starters(many, now, busy, 1, lambda clients: clients[clients == only])[1].tolist() == [only]


def test_a_cohort_that_came_out_empty_is_drawn() -> None:
    """A Bernoulli cohort may have nobody; somebody must start all the same."""
    few = experiment(*([float(c)] for c in range(5)), cohort=ft.cohort.bernoulli(0.2))
    now = replace(few.federation.problem.now(0, 1.0), round=0)
    empty = next(
        r
        for r in range(99)
        if not len(few.cohort.choose(few.federation.problem.data.clients, replace(now, round=r), 0))
    )
    _, chosen = starters(few, replace(now, round=empty), Flights(), 1, everybody)
    assert len(chosen) == 1


def test_of_a_listed_cohort_those_who_are_there_start() -> None:
    listed = experiment(*([float(c)] for c in range(5)), cohorts=[[1, 3]])
    now = listed.federation.problem.now(0, 2.0)
    _, chosen = starters(listed, now, Flights(), 2, lambda clients: clients[clients != 1])
    assert chosen.tolist() == [3]


def test_a_list_of_events_may_end_too_early() -> None:
    arrivals = ByList([("start", 1), ("finish", 1), ("start", 2)], Now())
    flights, flight = arrivals.next(Flights())
    assert flight.client == 1 and flights.events == 2
    with pytest.raises(TrainingError, match="events end"):
        arrivals.next(flights)
