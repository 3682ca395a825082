"""When a worker counts as hung: by the clock, a count of finished blocks, and the slowest block so far."""

from __future__ import annotations

from fedtempo.backends.pace import LEAST_SECONDS, PATIENCE, UNKNOWN_SECONDS, Pace


def test_nobody_hangs_before_a_block_is_known_to_take_long() -> None:
    pace = Pace()
    pace.started(0, 0, now=0.0)
    assert pace.hung({0: 0}, now=UNKNOWN_SECONDS - 1) == []
    assert pace.hung({0: 0}, now=UNKNOWN_SECONDS + 1) == [0]


def test_the_limit_is_a_multiple_of_the_slowest_block() -> None:
    pace = Pace()
    pace.started(0, 0, now=0.0)
    assert pace.hung({0: 2}, now=20.0) == []  # two blocks of ten seconds
    assert pace.limit == PATIENCE * 10.0
    assert pace.hung({0: 3}, now=21.0) == []  # a quicker one does not shorten it
    assert pace.limit == PATIENCE * 10.0
    assert pace.hung({0: 3}, now=21.0 + PATIENCE * 10.0) == []
    assert pace.hung({0: 3}, now=22.0 + PATIENCE * 10.0) == [0]


def test_quick_blocks_leave_at_least_a_minute() -> None:
    pace = Pace()
    pace.started(0, 0, now=0.0)
    pace.hung({0: 100}, now=1.0)
    assert pace.limit == LEAST_SECONDS


def test_progress_is_a_sign_of_life() -> None:
    pace = Pace(timeout=5.0)
    pace.started(0, 7, now=0.0)
    pace.started(1, 0, now=0.0)
    assert pace.hung({0: 8, 1: 0}, now=4.0) == []
    assert pace.hung({0: 8, 1: 0}, now=6.0) == [1]
    assert pace.glance < 5.0
