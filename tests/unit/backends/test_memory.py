"""Out of memory: the block is halved and the run goes on; other errors, and single clients, are errors as before."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends import Backend, vectorised
from fedtempo.backends.memory import is_out_of_memory
from fedtempo.errors import TrainingError
from tests import zoo


def small_device(holds: int, asked: list[int], error: type[Exception] = torch.OutOfMemoryError) -> Backend:
    """Vectorised code on a device that holds only so many clients; it fails after its work, as a sum on it would."""

    def train(problem, program, received, now, clients, personal):
        asked.append(len(clients))
        trained = list(vectorised.train(problem, program, received, now, clients, personal))
        if len(clients) > holds:
            raise TrainingError("clients 0 to 7") from error("no memory left")
        yield from trained

    return Backend("vectorised", train)


def run(backend: Backend, **changes: Any) -> ft.Result:
    settings = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["ditto"], "rounds": 2}
    settings |= {"cohort": 6, "batch_size": 4, "seed": 3, "block": 6, "dtype": torch.float64, "progress": False}
    return ft.run(backend=backend, **{**settings, **changes})


def test_a_block_that_does_not_fit_is_halved_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    """Six clients, then three, then one at a time, and nobody tries more again. The numbers are those of one block."""
    asked: list[int] = []
    evaluation = ft.Evaluation(every=1, steps=1)
    with caplog.at_level(logging.WARNING, logger="fedtempo"):
        cut = run(small_device(1, asked), evaluation=evaluation)
    assert asked[:4] == [6, 3, 1, 1] and set(asked[2:]) == {1}
    assert [r.getMessage() for r in caplog.records if "out of memory" in r.getMessage()] == [
        "out of memory with 6 clients side by side: going on with 3",
        "out of memory with 3 clients side by side: going on with 1",
    ]
    whole = run(vectorised, evaluation=evaluation)
    assert all(float((cut.params[n] - t).abs().max()) < 1e-12 for n, t in whole.params.items())
    assert [len(r.clients) for r in cut.history] == [len(r.clients) for r in whole.history] == [6, 6]
    assert cut.costs == whole.costs and cut.scores is not None and whole.scores is not None
    for name, group in whole.scores.groups().items():
        np.testing.assert_allclose(cut.scores.groups()[name].values["loss"], group.values["loss"], rtol=1e-10)


def test_uneven_halves(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []
    run(small_device(3, asked), cohort=5, block=5, evaluation=None, rounds=1)
    assert asked == [5, 2, 2, 1]


def test_one_client_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(TrainingError, match="clients 0 to 7"):
        run(small_device(0, []), evaluation=None)


def test_another_error_is_not_a_lack_of_memory() -> None:
    asked: list[int] = []
    with pytest.raises(TrainingError, match="clients 0 to 7"):
        run(small_device(1, asked, RuntimeError), evaluation=None)
    assert asked == [6]
    assert is_out_of_memory(torch.OutOfMemoryError()) and not is_out_of_memory(MemoryError())
