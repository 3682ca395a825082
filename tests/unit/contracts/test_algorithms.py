"""The public contracts catch what is broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.backends import Backend, serial
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.contracts import ContractError, small_data
from fedtempo.errors import TrainingError
from fedtempo.params import Params


def test_an_algorithm_that_draws_at_random_is_caught() -> None:
    def noisy(received: Received, carry: Carry) -> dict[str, dict[str, torch.Tensor]]:
        return {"delta": {n: torch.randn_like(p) for n, p in carry.shared.items()}}

    def drifting(shared: Params, state: Any, aggregate: Any, now: ft.Now) -> tuple[Params, Any]:
        return {n: p + torch.randn_like(p) for n, p in shared.items()}, state

    plain = ft.algorithms.fedavg(lr=0.1, steps=1)
    with pytest.raises(ft.ConfigError, match="upload must be without random numbers"):
        ft.check_algorithm(replace(plain, uploads=ft.Uploads(noisy)))
    with pytest.raises(ft.ConfigError, match=r"server\.step must be without random numbers"):
        ft.check_algorithm(replace(plain, server=ft.Server(lambda trained: {}, drifting)))


def test_rounds_that_draw_nobody_may_be_checked() -> None:
    empty = ft.cohort.bernoulli(0.1)
    result = ft.run(
        model=ft.models.mlp(6, [5], 4),
        data=small_data(),
        algorithm=ft.algorithms.fedavg(0.1, 1),
        rounds=3,
        seed=7,
        cohort=empty,
    )
    assert not all(report.clients for report in result.history)
    ft.check_algorithm(ft.algorithms.fedavg(lr=0.1, steps=3), cohort=empty)


def test_an_algorithm_that_sends_too_much_is_caught() -> None:
    def chatty(received: Received, carry: Carry) -> dict[str, dict[str, torch.Tensor]]:
        delta = {n: p - received.shared[n] for n, p in carry.shared.items()}
        return {"delta": delta, "more": dict(carry.personal)}

    broken = replace(ft.algorithms.fedper(lr=0.1, steps=1), uploads=ft.Uploads(chatty))
    with pytest.raises(ContractError, match="shared tensors only"):
        ft.check_algorithm(broken)


def test_a_backend_that_is_off_is_caught() -> None:
    def twice(federation, program, received, now, clients, personal):  # type: ignore[no-untyped-def]
        for trained in serial.train(federation, program, received, now, clients, personal):
            shared = {n: p + 1e-9 if p.is_floating_point() else p for n, p in trained.carry.shared.items()}
            yield trained._replace(carry=trained.carry._replace(shared=shared))

    with pytest.raises(ContractError, match="equals serial"):
        ft.check_backend(Backend("off", twice))


def test_numbers_that_are_not_shaped_like_the_model_may_be_sent() -> None:
    def counted(received: Received, carry: Carry) -> dict[str, dict[str, torch.Tensor]]:
        delta = {n: p - received.shared[n] for n, p in carry.shared.items()}
        votes = torch.ones(3, dtype=torch.float64)
        return {"delta": delta, "votes": {"for": votes}, "steps": {"tau": votes.sum()}}

    ft.check_algorithm(replace(ft.algorithms.fedper(lr=0.1, steps=1), uploads=ft.Uploads(counted)))


def test_personal_tensors_under_another_name_are_caught() -> None:
    def disguised(received: Received, carry: Carry) -> dict[str, dict[str, torch.Tensor]]:
        delta = {n: p - received.shared[n] for n, p in carry.shared.items()}
        return {"delta": delta, "statistics": {"mean": carry.personal["head.weight"].mean()}}

    broken = replace(ft.algorithms.fedper(lr=0.1, steps=1), uploads=ft.Uploads(disguised))
    with pytest.raises(ContractError, match="personal ones decide"):
        ft.check_algorithm(broken)


def test_a_server_whose_state_changes_its_type_is_caught() -> None:
    """Such a run could be stored and not be resumed."""
    plain = ft.algorithms.fedavg(0.1, steps=1)

    def step(shared: Params, state: Any, aggregate: Any, now: ft.Now) -> tuple[Params, Any]:
        moved, inner = plain.server.step(shared, state["inner"], aggregate, now)
        return moved, {"inner": inner, "rate": state["rate"].double()}

    def init(shared: Params) -> Any:
        return {"inner": plain.server.init(shared), "rate": torch.ones(())}

    with pytest.raises(TrainingError, match=r"a state of the names, shapes .* Got \(\) torch.float64 for 'state/rate'"):
        ft.check_algorithm(replace(plain, server=plain.server._replace(init=init, step=step)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_fedexp_resumes_in_every_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    settings = {"model": ft.models.mlp(6, [5], 4), "data": small_data(), "algorithm": ft.algorithms.fedexp(0.1, 1)}
    settings |= {"rounds": 3, "cohort": 4, "batch_size": 4, "dtype": dtype, "evaluation": None, "progress": False}
    rounds = ft.train(**settings, out=tmp_path / "run")
    next(rounds)
    rounds.close()
    assert ft.run(**settings, out=tmp_path / "run", resume=True).digest() == ft.run(**settings).digest()
