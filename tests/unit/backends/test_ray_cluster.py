"""Ray's start: what goes wrong there is one line."""

from __future__ import annotations

import pytest

from fedtempo.backends.ray_cluster import loopback
from fedtempo.errors import TrainingError


def test_a_cluster_that_does_not_start_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Ray gives up after 30 seconds, with an `Exception` of no kind."""
    ray = pytest.importorskip("ray")
    calls = []

    def gives_up(**settings: object) -> None:
        calls.append(settings)
        raise Exception("The current node timed out during startup.\nMore lines.")

    monkeypatch.setattr(ray, "init", gives_up)
    with pytest.raises(TrainingError, match=r"a local Ray cluster cannot be started: .* timed out") as told:
        loopback(ray)
    assert calls and "\n" not in str(told.value)
