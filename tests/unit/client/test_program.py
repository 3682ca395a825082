"""What one client does in a round: single steps followed by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import fedtempo as ft
from fedtempo.client.gradients import by_autograd, by_transform
from fedtempo.client.network import Network
from fedtempo.client.objectives import Pull, Received, Steady, View, proximal
from fedtempo.client.phase import Carry, Hook, Phase, StepInfo, length
from fedtempo.client.program import ClientProgram, compile_client
from fedtempo.client.transforms import momentum
from fedtempo.params import Params
from fedtempo.schedules import Now, as_schedule, per_step
from fedtempo.tasks import TASKS
from tests.one_weight import OneWeight

START, TARGET = 1.0, 3.0

BATCH = {"x": torch.ones(2, 1, dtype=torch.float64), "y": torch.full((2, 1), TARGET, dtype=torch.float64)}

RECEIVED = Received({"w": torch.tensor([START], dtype=torch.float64)}, {})


def phase(**changes: object) -> Phase:
    """Steps of rate 1/4 on (w - 3)^2: each goes half of the way from where w is to 3."""
    parts = {name: changes.pop(name) for name in Hook._fields if name in changes}
    hooks = (Hook(**parts),) if parts else ()  # type: ignore[arg-type]
    return replace(Phase(length(steps=2), as_schedule(0.25), hooks=hooks), **changes)  # type: ignore[arg-type]


def program_of(*phases: Phase) -> ClientProgram:
    network = Network(OneWeight().double())
    return compile_client(
        phases,
        network,
        TASKS["regression"],
        lambda received, carry: {"delta": {"w": carry.shared["w"] - received.shared["w"]}},
        lambda received, carry: carry.personal,
        lambda received, personal: (personal, {}),
    )


def walked(
    program: ClientProgram, personal: Params | None = None, overwrites: bool = False, steps: int = 2
) -> list[Carry]:
    """The carries of a client that takes so many steps of the first stage."""
    carries = [program.init(RECEIVED, personal or {})]
    for step in range(steps):
        here = Now(step=step, steps=steps)
        carry, _ = program.stages[0].step(by_autograd, RECEIVED, carries[-1], BATCH, here, overwrites and step > 0)
        carries.append(carry)
    return carries


def weights(carries: list[Carry]) -> list[float]:
    return [float(carry.shared["w"]) for carry in carries]


def test_steps_by_hand() -> None:
    program = program_of(phase())
    carries = walked(program)
    assert weights(carries) == [1.0, 2.0, 2.5]
    upload, personal, measured = program.finish(RECEIVED, carries[-1])
    assert upload["delta"]["w"].tolist() == [1.5]
    assert (personal, measured) == ({}, {})


@pytest.mark.parametrize("of", [by_autograd, by_transform])
def test_the_loss_is_that_before_the_step(of: object) -> None:
    program = program_of(phase())
    _, loss = program.stages[0].step(of, RECEIVED, program.init(RECEIVED, {}), BATCH, Now())  # type: ignore[arg-type]
    assert float(loss) == (START - TARGET) ** 2


def test_the_rate_follows_its_schedule_inside_the_round() -> None:
    """Rates 1/4 and 1/8: half of the way, then a quarter of what is left."""
    assert weights(walked(program_of(phase(lr=per_step(0.25, 0.5))))) == [1.0, 2.0, 2.25]


def test_a_pull_leaves_the_fast_ways_to_the_gradient() -> None:
    """2 (w - 3) + mu (w - 1) with mu = 2: from 1 to 2, and there 2 (2 - 3) + 2 (2 - 1) = 0."""
    program = program_of(phase(objective=proximal(2.0)))
    assert program.stages[0].plain is not None
    assert weights(walked(program)) == [1.0, 2.0, 2.0]
    assert program_of(phase(objective=lambda *all_of_it: None)).stages[0].plain is None


def test_momentum_is_kept_from_step_to_step() -> None:
    """Gradients -4 and -2, so directions -4 and -2 + 0.5 * -4 = -4: two steps of 1."""
    assert weights(walked(program_of(phase(direction=momentum(0.5))))) == [1.0, 2.0, 3.0]


def test_a_correction_is_added_to_the_gradient() -> None:
    """Gradient -4 and correction +2: a step of 0.25 * 2."""

    def correction(view: View) -> Params:
        return {"w": torch.full((1,), 2.0, dtype=torch.float64)}

    assert weights(walked(program_of(phase(correction=correction)), steps=1)) == [1.0, 1.5]


def _two(view: View) -> Params:
    return {"w": torch.full((1,), 2.0, dtype=torch.float64)}


ONE_BY_ONE: dict[str, tuple[dict[str, object], list[float]]] = {
    # Gradients 2 (w - 3), a step of 1/4: -4 + 2 = -2, then -3 + 2 = -1.
    "steady": ({"correction": Steady(_two)}, [1.0, 1.5, 1.75]),
    # Half of each: -2 + 1 = -1, then -1.75 + 1 = -0.75.
    "a share": ({"correction": Steady(_two), "share": as_schedule(0.5)}, [1.0, 1.25, 1.4375]),
    # Towards 2 with strength 1: -4 - 1 = -5, then -1.5 + 0.25 = -1.25.
    "a pull": ({"correction": Pull(as_schedule(1.0), _two)}, [1.0, 2.25, 2.5625]),
    # Towards the received 1 with strength 2, and the correction: -4 + 2 = -2, then -3 + 1 + 2 = 0.
    "both": ({"objective": proximal(2.0), "correction": Steady(_two)}, [1.0, 1.5, 1.5]),
    # Two pulls, to 1 and to 2: -4 - 1 = -5, then -1.5 + 2.5 + 0.25 = 1.25.
    "two pulls": ({"objective": proximal(2.0), "correction": Pull(as_schedule(1.0), _two)}, [1.0, 2.25, 1.9375]),
    # A correction that is the weights themselves: -4 + 1 = -3, then -2.5 + 1.75 = -0.75.
    "the weights": ({"correction": lambda view: view.shared}, [1.0, 1.75, 1.9375]),
}


@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize("terms", ONE_BY_ONE)
def test_terms_may_be_subtracted_one_by_one(terms: str, overwrites: bool) -> None:
    changes, expected = ONE_BY_ONE[terms]
    assert weights(walked(program_of(phase(**changes)))) == expected
    # A function that reads the direction sees all of it, whatever the terms.
    directions: list[float] = []

    def after(carry: Carry, moved: StepInfo, received: Received, now: object) -> Carry:
        directions.append(float(moved.direction["w"]))
        return carry

    last = walked(program_of(phase(**changes, after=after)), overwrites=overwrites)[-1]
    assert weights([last]) == expected[-1:]
    assert [-0.25 * d for d in directions] == [b - a for a, b in pairwise(expected)]
    overwritten = walked(program_of(phase(**changes)), overwrites=overwrites)[-1]
    assert weights([overwritten]) == expected[-1:] and RECEIVED.shared["w"].tolist() == [START]


def test_after_sees_the_step_and_may_change_where_it_led() -> None:
    seen: list[tuple[float, float, float, float]] = []

    def after(carry: Carry, moved: StepInfo, received: Received, now: object) -> Carry:
        seen.append((float(moved.before["w"]), float(moved.after["w"]), float(moved.direction["w"]), moved.rate))  # type: ignore[arg-type]
        return carry._replace(shared={"w": carry.shared["w"] + 10})

    assert weights(walked(program_of(phase(after=after)))) == [1.0, 12.0, 17.5]
    assert seen == [(1.0, 2.0, -4.0, 0.25), (12.0, 7.5, 18.0, 0.25)]


@pytest.mark.parametrize("direction", [momentum(0.0), momentum(0.9)])
def test_a_step_written_over_its_start_has_the_same_bits(direction: ft.transforms.Transform) -> None:
    program = program_of(phase(direction=direction))
    fresh = walked(program, steps=5)[-1].shared["w"].clone()
    assert torch.equal(walked(program, overwrites=True, steps=5)[-1].shared["w"], fresh)
    assert float(RECEIVED.shared["w"]) == START


def test_a_phase_on_the_clients_own_copy_leaves_the_shared_model_alone() -> None:
    program = program_of(phase(on="personal"))
    last = walked(program, {"w": torch.tensor([-1.0], dtype=torch.float64)})[-1]
    assert (float(last.personal["w"]), float(last.shared["w"])) == (2.0, 1.0)


def test_a_personal_tensor_stays_personal() -> None:
    program = program_of(phase(on="both"))
    last = walked(program, {"w": torch.tensor([-1.0], dtype=torch.float64)})[-1]
    assert (float(last.personal["w"]), float(last.shared["w"])) == (2.0, 1.0)


def test_a_selector_that_trains_nothing_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match="trains must be a selector that matches at least one parameter"):
        program_of(phase(trains=ft.params.submodule("head")))
