"""A worker's main loop, here in the tests' own process."""

from __future__ import annotations

import weakref
from typing import Any, cast

import pytest
import torch

from fedtempo.backends import worker
from fedtempo.backends.mailbox import Mailbox


class OneMessage:
    """A pipe that brings one message and notes, when it is asked for the next, whether the first result still lives."""

    def __init__(self, results: list[weakref.ref[torch.Tensor]]) -> None:
        self.results, self.asked, self.sent, self.alive = results, 0, 0, True

    def recv(self) -> Any:
        self.asked += 1
        if self.asked == 1:
            return "finish", None, []
        self.alive = self.results[0]() is not None
        raise EOFError

    def send(self, message: Any) -> None:
        self.sent += 1


def test_a_worker_lets_go_of_a_sum_that_it_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be four times the model, beside the next sum, in every worker."""
    results: list[weakref.ref[torch.Tensor]] = []

    def do(self: Any, kind: str, common: Any, blocks: Any) -> torch.Tensor:
        result = torch.ones(3)
        results.append(weakref.ref(result))
        return result

    monkeypatch.setattr(worker._WorkerState, "do", do)
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: False)
    pipe = OneMessage(results)
    worker.serve(cast(Any, pipe), Mailbox(64), [], cast(Any, None), cast(Any, None), ())
    assert (pipe.asked, pipe.sent, pipe.alive) == (2, 1, False)
