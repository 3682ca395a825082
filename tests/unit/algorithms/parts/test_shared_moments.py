"""FedAdamW's step by torch's kernel is the step of its formulas."""

from __future__ import annotations

import pytest
import torch

from fedtempo.algorithms.parts.shared_moments import adamw_with_shared_moments, with_block_means
from fedtempo.params import Params
from fedtempo.schedules import Now, as_schedule

START = {"w": torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64), "b": torch.tensor([0.25]).double()}
STEPS, RATE = 4, 0.1


def gradient(step: int) -> Params:
    return {n: torch.sin(t * (step + 1)) for n, t in START.items()}


@pytest.mark.parametrize("one_count", [False, True])
@pytest.mark.parametrize("second_moment", ["block_mean", "whole", "reset"])
def test_the_kernel_takes_the_same_steps(second_moment: str, one_count: bool) -> None:
    adam = adamw_with_shared_moments(0.9, 0.999, 1e-8, as_schedule(0.05), second_moment, one_count)
    plain, fused = dict(START), {n: t.clone() for n, t in START.items()}
    before, state = adam.init(START), adam.init(START)
    for means in (before[0]["mean"], state[0]["mean"]):  # as if the federation had sent its means
        means.update({n: torch.tensor(0.3 + len(n)).double() for n in means})
    for step in range(STEPS):
        now = Now(round=2, step=step, steps=STEPS, earlier=7)
        direction, before = adam.update(gradient(step), before, plain, now)
        plain = {n: t - RATE * direction[n] for n, t in plain.items()}
        assert adam.one_pass is not None
        state = adam.one_pass(gradient(step), 0.0, state, fused, now, RATE)
    for one, other in ((fused, plain), *((state[0][slot], before[0][slot]) for slot in ("m", "v"))):
        assert all(torch.allclose(one[n], other[n], rtol=1e-12, atol=1e-12) for n in START)
    if second_moment == "block_mean":
        means = with_block_means(state)[0]["mean"]
        assert all(torch.allclose(means[n], state[0]["v"][n].mean()) for n in START)


def test_a_client_without_a_step_sends_the_means_that_it_received() -> None:
    adam = adamw_with_shared_moments(0.9, 0.999, 1e-8, as_schedule(0.05), "block_mean", False)
    state = adam.init(START)
    state[0]["mean"].update({n: torch.tensor(0.3).double() for n in START})
    assert with_block_means(state)[0]["mean"] == state[0]["mean"]


def test_where_the_kernel_cannot_the_state_is_left_alone() -> None:
    adam = adamw_with_shared_moments(0.9, 0.999, 1e-8, as_schedule(0.05), "whole", False)
    short = {n: t.to(torch.bfloat16) for n, t in START.items()}
    assert adam.one_pass is not None
    assert adam.one_pass(short, 0.0, adam.init(short), short, Now(steps=STEPS), RATE) is None
