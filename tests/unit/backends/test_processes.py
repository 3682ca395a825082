"""Worker processes: the same bits as one process, whatever happens to a worker, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.backends import Processes
from fedtempo.backends.mailbox import LARGE
from tests import zoo
from tests.slow import slow_but

SETTINGS = {"rounds": 3, "cohort": 5, "batch_size": 4, "seed": 3, "block": 1, "evaluation": ft.Evaluation(every=2)}


def run(kind: str = "mlp", name: str = "fedavg", **settings: object) -> ft.Result:
    chosen = {**SETTINGS, "backend": "serial", **settings}
    return ft.run(model=zoo.model(kind), data=zoo.data(kind), algorithm=zoo.ALGORITHMS[name], **chosen)


@pytest.fixture(autouse=True)
def nothing_left() -> object:
    before = {child.pid for child in multiprocessing.active_children()}
    yield
    assert not {child.pid for child in multiprocessing.active_children()} - before


NAMES = ["fedavg", "feddecay", "scaffold", "fedexp", "four at once", "pflego", "fedrep", "ditto", "fedem", "fedbn"]
OFTEN = ["scaffold", "four at once", "pflego", "ditto", "fedem"]


@pytest.mark.parametrize("name", slow_but(OFTEN, NAMES, "one algorithm of every kind of state runs every time"))
def test_workers_give_the_same_bits(name: str) -> None:
    alone, shared = run(name=name), run(name=name, workers=2)
    assert alone.digest() == shared.digest()
    assert [r.loss for r in alone.history] == [r.loss for r in shared.history]
    assert alone.scores.summary() == shared.scores.summary()


@pytest.mark.parametrize(
    "kind", slow_but(["batchnorm", "dropout"], ["cnn", "batchnorm", "dropout"], "it is sent as an mlp is")
)
def test_workers_give_the_same_bits_for_every_model(kind: str) -> None:
    batch_size = None if kind == "batchnorm" else 4
    assert run(kind, batch_size=batch_size).digest() == run(kind, batch_size=batch_size, workers=2).digest()


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_any_number_of_workers_gives_the_same_bits(backend: str) -> None:
    digests = {run(name="fedexp", backend=backend, block=2, workers=workers).digest() for workers in (1, 3)}
    assert len(digests) == 1


@pytest.mark.parametrize(
    "method", slow_but(["fork"], ["fork", "spawn"], "spawned workers load torch; they run every time in test_start")
)
def test_users_may_be_fine_tuned_by_schedules_of_ones_own(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were sent with every evaluation, and a function that is not at the top of a module cannot be pickled."""
    monkeypatch.setenv("FEDTEMPO_START_METHOD", method)
    own = ft.Evaluation(every=1, epochs=lambda now: now.round + 1, lr=lambda now: 0.1 / (now.step + 1))
    alone, shared = run(evaluation=own), run(evaluation=own, workers=2)
    assert [r.scores.summary() for r in alone.history] == [r.scores.summary() for r in shared.history]


def test_a_large_model_travels_through_shared_memory() -> None:
    settings = {
        "data": ft.contracts.small_data(),
        "algorithm": zoo.ALGORITHMS["fedexp"],
        **SETTINGS,
        "evaluation": None,
    }
    model = ft.models.mlp(6, [3000], 4)
    assert sum(p.numel() for p in model.parameters()) * 8 > LARGE
    alone, shared = (ft.run(model=model, backend="serial", workers=w, **settings) for w in (1, 2))
    assert alone.digest() == shared.digest()


class Fatal(nn.Module):
    """A linear layer that kills its own process, once: while a file is there to be taken away."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.marker, self.driver = marker, os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.driver and os.path.exists(self.marker):  # noqa: PTH110 - inside a model
            with suppress(FileNotFoundError):  # another worker may have taken it in between
                os.unlink(self.marker)  # noqa: PTH108
                os.kill(os.getpid(), signal.SIGKILL)
        output: torch.Tensor = self.linear(x)
        return output


def fatal(marker: str, workers: int) -> ft.Result:
    torch.manual_seed(0)
    settings = {**SETTINGS, "evaluation": None, "backend": "serial", "workers": workers}
    return ft.run(model=Fatal(marker), data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS["scaffold"], **settings)


def test_a_killed_worker_is_replaced_and_changes_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    marker = tmp_path / "marker"
    expected = fatal(str(marker), workers=2).digest()
    marker.touch()
    assert fatal(str(marker), workers=2).digest() == expected
    assert not marker.exists()


def test_workers_killed_by_injection_change_nothing() -> None:
    settings = {"rounds": 6, "evaluation": None}
    sound = run(**settings).digest()
    result = run(**settings, workers=2, faults=ft.Faults(kill=0.8))
    replaced = [report.measurements.get("workers_replaced", 0.0) for report in result.history]
    assert sum(replaced) >= 3
    assert result.digest() == sound
    with pytest.raises(ft.ConfigError, match=r"faults\.kill must be 0"):
        run(**settings, workers=1, faults=ft.Faults(kill=0.8))


def test_a_worker_killed_from_outside_is_replaced() -> None:
    expected = run(rounds=4, evaluation=None).digest()
    settings = {**SETTINGS, "rounds": 4, "evaluation": None, "backend": "serial", "workers": 2}
    rounds = ft.train(model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS["fedavg"], **settings)
    next(rounds)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    while True:
        try:
            next(rounds)
        except StopIteration as stop:
            assert stop.value.digest() == expected
            return


class Unlucky(nn.Module):
    """A linear layer that some rows break."""

    def __init__(self, error: type[Exception], always: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.error, self.always, self.driver = error, always, os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.driver and (self.always or (x > 99).any()):
            raise self.error("these rows are bad")
        output: torch.Tensor = self.linear(x)
        return output


def unlucky(error: type[Exception]) -> ft.Result:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((8, 6)), rng.integers(0, 4, 8)) for _ in range(6)]
    rows[4][0][:] = 100.0
    data = ft.data.FederatedData.from_clients(rows, names=["a", "b", "c", "d", "e", "f"])
    settings = {"rounds": 2, "cohort": 6, "batch_size": 4, "evaluation": None, "backend": "serial", "workers": 2}
    return ft.run(model=Unlucky(error), data=data, algorithm=zoo.ALGORITHMS["fedavg"], **settings)


@pytest.mark.parametrize("error", [RuntimeError, TypeError, KeyError])
def test_an_error_in_a_worker_names_the_client(error: type[Exception]) -> None:
    with pytest.raises(
        ft.TrainingError, match=r"client 4 \(e\), round 0: .*these rows are bad.* in forward, test_processes.py line"
    ) as met:
        unlucky(error)
    assert f"{error.__name__}: " in str(met.value)


class Lost(nn.Module):
    """A linear layer that no worker survives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.driver = os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.driver:
            os.kill(os.getpid(), signal.SIGKILL)
        output: torch.Tensor = self.linear(x)
        return output


def test_workers_that_always_die_stop_the_run() -> None:
    settings = {**SETTINGS, "evaluation": None, "backend": "serial", "workers": 2}
    with pytest.raises(ft.TrainingError, match=r"worker processes died.* ended by SIGKILL, working on client.* \d"):
        ft.run(model=Lost(), data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS["fedavg"], **settings)


def test_a_run_that_is_given_up_leaves_no_process() -> None:
    settings = {**SETTINGS, "rounds": 50, "evaluation": None, "backend": "serial", "workers": 2}
    rounds = ft.train(model=zoo.model("mlp"), data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS["fedavg"], **settings)
    next(rounds)
    assert len(multiprocessing.active_children()) == 2
    rounds.close()
    assert not multiprocessing.active_children()


def test_an_error_in_the_caller_leaves_no_process() -> None:
    federation = run(rounds=1).experiment.federation
    with pytest.raises(KeyError), Processes(federation, ft.backends.serial, 2):
        assert len(multiprocessing.active_children()) == 2
        raise KeyError


def test_a_worker_that_hangs_is_replaced_and_the_bits_stay() -> None:
    """SIGSTOP: the process is there, its pipe is open, and it will never answer."""

    rounds = ft.train(
        model=zoo.model("mlp"),
        data=zoo.data("mlp"),
        algorithm=zoo.ALGORITHMS["fedavg"],
        **{**SETTINGS, "backend": "serial", "workers": 2, "worker_timeout": 2.0},
    )
    next(rounds)
    victim = multiprocessing.active_children()[0]
    os.kill(victim.pid, signal.SIGSTOP)  # type: ignore[arg-type]
    replaced = 0.0
    while True:
        try:
            replaced += next(rounds).measurements.get("workers_replaced", 0.0)
        except StopIteration as stop:
            result = stop.value
            break
    assert replaced >= 1
    assert result.digest() == run().digest()


class Exits(Lost):
    """A linear layer that ends its process, as a library's command line may."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.driver:
            sys.exit("no licence")
        output: torch.Tensor = self.linear(x)
        return output


def test_code_that_exits_in_a_worker_is_named_at_once() -> None:
    settings = {**SETTINGS, "evaluation": None, "backend": "serial", "workers": 2}
    with pytest.raises(ft.TrainingError, match=r"SystemExit: no licence in forward, test_processes\.py line"):
        ft.run(model=Exits(), data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS["fedavg"], **settings)
