"""`ft.run` and `ft.train`: one set of parameters, errors in one line, and rounds that the caller may own."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.training import run as front
from fedtempo.training.loop import drained
from fedtempo.training.prepare import prepare
from tests import zoo


def settings(**more: Any) -> dict[str, Any]:
    usual = {"model": zoo.model("mlp"), "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["fedavg"], "rounds": 3}
    return {**usual, "cohort": 3, "batch_size": 4, "backend": "serial", **more}


def test_run_and_train_take_the_same_parameters() -> None:
    run, train = (inspect.signature(function).parameters for function in (ft.run, ft.train))
    assert dict(run) == dict(train)
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in run.values())


def test_every_setting_of_an_experiment_is_at_the_front_door_with_the_same_default() -> None:
    run, inside = (inspect.signature(function).parameters for function in (ft.run, prepare))
    assert {name: p.default for name, p in inside.items()} == {name: run[name].default for name in inside}
    assert set(run) - set(inside) == {
        "out",
        "resume",
        "as_planned",
        "same_kind",
        "commit_every",
        "trackers",
        "progress",
        "states",
    }


def test_every_parameter_is_explained() -> None:
    said = inspect.cleandoc(ft.run.__doc__ or "")  # Python takes the indent off since 3.13
    assert [name for name in inspect.signature(ft.run).parameters if f"\n    {name}: " not in said] == []


def test_a_loop_of_ones_own_ends_with_the_result_of_run() -> None:
    rounds = ft.train(**settings())
    losses = []
    while True:
        try:
            losses.append(next(rounds).loss)
        except StopIteration as stop:
            result = stop.value
            break
    whole = ft.run(**settings())
    assert result.digest() == whole.digest()
    assert losses == [report.loss for report in whole.history] and len(losses) == 3


def test_a_round_that_the_caller_does_not_ask_for_is_not_trained() -> None:
    rounds = ft.train(**settings(rounds=1000))
    assert next(rounds).round == 0
    rounds.close()
    assert list(rounds) == []


@pytest.mark.parametrize("function", [ft.run, ft.train])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": 3}, "setting 'round' is not known. Did you mean 'rounds'"),
        ({"full_batch": True}, "full_batch is a setting of files. Here batch_size=None"),
        ({"dtype": "float64"}, "dtype must be a floating-point torch dtype, such as torch.float64"),
        ({"commit_every": 0}, "commit_every must be an int >= 1. Got 0."),
        ({"resume": True}, "out must be given where a run is to be resumed"),
        ({"trackers": ["tensorbord"]}, "Did you mean 'tensorboard'"),
    ],
)
def test_errors_are_one_line(function: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ft.ConfigError) as caught:
        function(**settings(**change))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["model", "data", "algorithm", "rounds"])
def test_what_must_be_given_is_named(name: str) -> None:
    given = settings()
    del given[name]
    with pytest.raises(ft.ConfigError, match=f"{name} must be given. Got nothing."):
        ft.run(**given)
    with pytest.raises(ft.ConfigError, match="settings must be given by name"):
        ft.run(zoo.model("mlp"))  # type: ignore[call-arg, misc]


def test_results_of_one_label_are_averaged() -> None:
    results = [ft.run(**settings(seed=seed)) for seed in (1, 2)]
    table = ft.compare(results, ["both", "both"])
    ((name, cells),) = table.rows
    assert (name, len(cells["existing_before/mean"].by_seed)) == ("both", 2)
    assert [name for name, _ in ft.compare(results[:1]).rows] == [repr(zoo.ALGORITHMS["fedavg"])]


def test_train_yields_the_whole_state_where_it_is_asked_for() -> None:
    """Shared, server and the cohort's personal tensors, as the result has them at the end; nothing by default."""
    given = settings(
        algorithm=ft.algorithms.fedper(0.1, 1, optimizer=ft.optimizers.sgd(0.9, state="average")), cohort=2
    )
    reports = list(ft.train(**given, states=True))
    result = ft.run(**given)
    last = reports[-1].state
    assert last is not None
    assert set(last.personal) == set(reports[-1].clients)
    assert all(t.equal(result.params[n]) for n, t in last.shared.items())
    for client, own in last.personal.items():
        assert all(t.equal(result.client_state(client)[n]) for n, t in own.items())
    velocities = last.server["optimizer"]
    assert all(t.equal(result.server_state["optimizer"][n]) for n, t in velocities.items()) and velocities
    assert all(report.state is None for report in ft.train(**given))


def test_runs_that_take_turns_leave_the_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        short, long = ft.train(**settings(rounds=1)), ft.train(**settings(rounds=3))
        next(short), next(long)
        assert list(short) == []
        assert torch.get_num_threads() == 1, "the other run is still under way"
        assert [report.round for report in long] == [1, 2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_observer_that_raises_leaves_no_run_open(tmp_path: Path) -> None:
    def observe(report: ft.RoundReport) -> None:
        raise RuntimeError("seen enough")

    rounds = ft.train(**settings(), out=tmp_path / "run")
    with pytest.raises(RuntimeError, match="seen enough"):
        drained(rounds, observe)
    assert list(rounds) == []
    assert ft.run(**settings(), out=tmp_path / "run", resume=True).digest() == ft.run(**settings()).digest()


def test_one_run_that_cannot_be_closed_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Rounds:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        def close(self) -> None:
            closed.append(self)
            if self.error is not None:
                raise self.error

    full = [Rounds(ft.OutputError("no space left")), Rounds(ValueError("generator already executing")), Rounds(None)]
    monkeypatch.setattr(front, "_unfinished", full)
    with pytest.raises(ft.OutputError, match="no space left"):
        front._close_unfinished()
    assert closed == full
