"""A round's report: clients in few bytes, and every bit through JSON and back."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.server.sums import Failure
from fedtempo.training.round_report import Clients, RoundReport, from_json, to_json
from fedtempo.training.storage.seals import MALFORMED


def users(*accuracies: float) -> UserScores:
    count = len(accuracies)
    return UserScores(np.arange(count), np.arange(1, count + 1), {"accuracy": np.array(accuracies)})


def test_clients_behave_like_a_tuple() -> None:
    clients = Clients([3, 1, 4])
    assert clients == (3, 1, 4) == tuple(clients)
    assert (clients[0], clients[-1], clients[1:], len(clients), 4 in clients) == (3, 4, (1, 4), 3, True)
    assert hash(clients) == hash((3, 1, 4)) and repr(clients) == "(3, 1, 4)"
    assert Clients([]) == () and clients != (3, 1)
    assert Clients([2**40])[0] == 2**40


def test_numbers_keep_every_bit() -> None:
    before, later = (
        Scores("validation", users(1 / 3, 0.1), users(0.5, 0.6)),
        Scores("test", users(0.3), users(0.4), new_after=users(0.9)),
    )
    report = RoundReport(
        7,
        0.1 + 0.2,
        Clients([5, 9]),
        Costs(steps=3, flops=10**17 + 1),
        Costs(steps=30),
        math.pi,
        {"eta": 1e-320},
        (Failure(2, "too large"),),
        True,
        validation=before,
        test=later,
    )
    again = from_json(to_json(report))
    assert to_json(again) == to_json(report)
    assert (again.loss, again.seconds, again.measurements) == (0.1 + 0.2, math.pi, {"eta": 1e-320})
    assert (again.clients, again.costs, again.failures, again.abandoned) == (
        (5, 9),
        report.costs,
        report.failures,
        True,
    )
    assert again.scores is again.validation
    assert again.validation is not None
    assert again.validation.summary() == before.summary()
    assert again.test is not None and again.test.summary() == later.summary()


def test_a_round_without_a_loss_or_scores() -> None:
    report = RoundReport(0, math.nan, Clients([]), Costs(), Costs(), 0.0)
    again = from_json(to_json(report))
    assert math.isnan(again.loss)
    assert (again.scores, again.clients) == (None, ())


FOREIGN: list[Any] = [None, -1, 10**30, 1e100, math.inf, True, "x", "5", [], [[]], [1, 2, 3], {}, {"a": {}}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def test_a_report_of_another_form_is_refused_or_has_the_types_of_one() -> None:
    """Every value of a report replaced by others, one at a time: whoever reads the report may rely on its form."""
    scores = Scores("test", users(0.3, 0.2), users(0.4, 0.1), new_before=users(0.9), new_after=users(0.9))
    costs = Costs(steps=3)
    report = RoundReport(
        0, 0.1, Clients([5]), costs, costs, 0.5, {"eta": 1.0}, (Failure(2, "late"),), validation=scores, test=scores
    )
    plain, refused = json.loads(to_json(report)), 0
    for path in [path for path in places(plain) if path]:
        for value in FOREIGN:
            changed = copy.deepcopy(plain)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                found = from_json(json.dumps(changed))
            except MALFORMED:
                refused += 1
                continue
            assert found.loss + found.seconds + found.round + sum(found.measurements.values()) is not None
            assert (found.costs + found.total_costs).bytes is not None and sum(found.clients) is not None
            assert sum(failure.client for failure in found.failures) is not None
            for each in (found.validation, found.test):
                assert each is None or (each.summary() and each.quality() is not None)
    assert refused > 500
