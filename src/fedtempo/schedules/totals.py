"""Sums over earlier rounds, remembered: adding them up anew in every round takes longer from round to round."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from fedtempo.schedules.schedule import FROM_ROUNDS, Schedule

_lock = threading.RLock()  # a sum may ask for another one: FedDecSPS's steps may be QSR's


def follows_rounds(schedule: Schedule) -> bool:
    """Whether the number follows from the round alone, for every client and every step.

    >>> from fedtempo.schedules import per_round, per_step, sequence
    >>> follows_rounds(per_round(1.0, 0.9)), follows_rounds(per_round(1.0, 0.9) * per_step(1.0, 0.5))
    (True, False)
    >>> follows_rounds(sequence([2, 1], over="round")), follows_rounds(sequence([2, 1]))
    (True, False)
    """
    return all(map(_by_rounds, schedule.parts()))


def _by_rounds(schedule: Schedule) -> bool:
    # The name says what a schedule of ours does; a function of the user's may do anything.
    ours = str(getattr(schedule.rule, "__module__", None)).startswith("fedtempo.schedules.")
    return ours and schedule.name in FROM_ROUNDS and schedule.settings.get("over", "round") == "round"


def total_before(round_number: int, key: str, count: Callable[[int, int], int]) -> int:
    """The sum of `count(t, sum so far)` over the rounds t before this one.

    `key` says what is counted: calls with the same key share their sums, so `count` must be the same for them.

    >>> [total_before(t, "squares", lambda t, so_far: t * t) for t in (0, 1, 4, 2)]
    [0, 0, 14, 1]
    """
    sums = _sums(key)
    with _lock:
        while len(sums) <= round_number:
            sums.append(sums[-1] + count(len(sums) - 1, sums[-1]))
        return sums[round_number]


@functools.lru_cache(maxsize=64)
def _sums(key: str) -> list[int]:
    """The sums before round 0, 1, ... as far as they were asked for."""
    return [0]
