"""What one client does in a round: lengths, rows, and single steps followed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fedtempo as ft
from fedtempo.client.gradients import by_autograd, by_transform
from fedtempo.client.network import Network
from fedtempo.client.program import Carry, ClientProgram, Moved, Phase, compile_client, length
from fedtempo.data.batches import Batching
from fedtempo.objectives import Received, View
from fedtempo.params import Params
from fedtempo.schedules import Now, as_schedule, decaying_k, per_step
from fedtempo.tasks import TASKS
from fedtempo.transforms import momentum
from tests.one_weight import OneWeight

START, TARGET = 1.0, 3.0
BATCH = {"x": torch.ones(2, 1, dtype=torch.float64), "y": torch.full((2, 1), TARGET, dtype=torch.float64)}
RECEIVED = Received({"w": torch.tensor([START], dtype=torch.float64)}, {})


def phase(**changes: object) -> Phase:
    """Steps of rate 1/4 on (w - 3)^2: each goes half of the way from where w is to 3."""
    return replace(Phase(length(steps=2), as_schedule(0.25)), **changes)  # type: ignore[arg-type]


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


def walked(program: ClientProgram, personal: Params | None = None, owned: bool = False, steps: int = 2) -> list[Carry]:
    """The carries of a client that takes so many steps of the first stage."""
    carries = [program.init(RECEIVED, personal or {})]
    for step in range(steps):
        here = Now(step=step, steps=steps)
        carry, _ = program.stages[0].step(by_autograd, RECEIVED, carries[-1], BATCH, here, owned and step > 0)
        carries.append(carry)
    return carries


def places(carries: list[Carry]) -> list[float]:
    return [float(carry.shared["w"]) for carry in carries]


def test_steps_by_hand() -> None:
    program = program_of(phase())
    carries = walked(program)
    assert places(carries) == [1.0, 2.0, 2.5]
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
    assert places(walked(program_of(phase(lr=per_step(0.25, 0.5))))) == [1.0, 2.0, 2.25]


def test_momentum_is_kept_from_step_to_step() -> None:
    """Gradients -4 and -2, so directions -4 and -2 + 0.5 * -4 = -4: two steps of 1."""
    assert places(walked(program_of(phase(direction=momentum(0.5))))) == [1.0, 2.0, 3.0]


def test_a_correction_is_added_to_the_gradient() -> None:
    """Gradient -4 and correction +2: a step of 0.25 * 2."""

    def correction(view: View) -> Params:
        return {"w": torch.full((1,), 2.0, dtype=torch.float64)}

    assert places(walked(program_of(phase(correction=correction)), steps=1)) == [1.0, 1.5]


def test_after_sees_the_step_and_may_change_where_it_led() -> None:
    seen: list[tuple[float, float, float, float]] = []

    def after(carry: Carry, moved: Moved, received: Received, now: object) -> Carry:
        seen.append((float(moved.before["w"]), float(moved.after["w"]), float(moved.direction["w"]), moved.rate))  # type: ignore[arg-type]
        return carry._replace(shared={"w": carry.shared["w"] + 10})

    assert places(walked(program_of(phase(after=after)))) == [1.0, 12.0, 17.5]
    assert seen == [(1.0, 2.0, -4.0, 0.25), (12.0, 7.5, 18.0, 0.25)]


@pytest.mark.parametrize("direction", [momentum(0.0), momentum(0.9)])
def test_a_step_written_over_its_start_has_the_same_bits(direction: ft.transforms.Transform) -> None:
    program = program_of(phase(direction=direction))
    fresh = walked(program, steps=5)[-1].shared["w"].clone()
    assert torch.equal(walked(program, owned=True, steps=5)[-1].shared["w"], fresh)
    assert float(RECEIVED.shared["w"]) == START


def test_a_phase_on_the_clients_own_copy_leaves_the_shared_model_alone() -> None:
    program = program_of(phase(on="personal"))
    last = walked(program, {"w": torch.tensor([-1.0], dtype=torch.float64)})[-1]
    assert (float(last.personal["w"]), float(last.shared["w"])) == (2.0, 1.0)


def test_a_personal_tensor_stays_personal() -> None:
    program = program_of(phase(on="both"))
    last = walked(program, {"w": torch.tensor([-1.0], dtype=torch.float64)})[-1]
    assert (float(last.personal["w"]), float(last.shared["w"])) == (2.0, 1.0)


def test_lengths_by_hand() -> None:
    batching = Batching(4)
    assert length(steps=5).steps(Now(), 100, batching) == 5
    assert length(epochs=2).steps(Now(), 9, batching) == 2 * 3
    assert length(epochs=2, times=2, offset=1).steps(Now(), 9, batching) == 13
    assert length(epochs=3).steps(Now(), 9, Batching(None)) == 3
    assert [length(steps=decaying_k(5, 0.5)).steps(Now(round=r), 9, batching) for r in range(4)] == [5, 3, 2, 1]
    assert length(steps=0, minimum=0).steps(Now(), 9, batching) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of steps and epochs"),
        ({"steps": 1, "epochs": 1}, "exactly one of steps and epochs"),
        ({"steps": 0}, "steps must be an int >= 1 or a schedule. Got 0."),
        ({"epochs": 1.5}, "epochs must be an int >= 1 or a schedule. Got 1.5."),
    ],
)
def test_lengths_that_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ft.ConfigError, match=message):
        length(**arguments)


@pytest.mark.parametrize(
    ("part", "samples", "rows"),
    [
        ("train", 5, (0, 5)),
        ("support", 5, (0, 3)),
        ("query", 5, (3, 2)),
        ("support", 4, (0, 2)),
        ("query", 4, (2, 2)),
        ("support", 1, (0, 1)),
        ("query", 1, (0, 1)),  # a single row serves as both
    ],
)
def test_support_and_query_rows_halve_a_client(part: str, samples: int, rows: tuple[int, int]) -> None:
    assert phase(part=part).rows(samples) == rows


def test_places_count_steps_and_epochs_of_the_rows_that_are_used() -> None:
    """Nine rows, of which five support rows make two batches of at most four: an epoch is two steps."""
    (stage,) = program_of(phase(length=length(epochs=2), part="support")).stages
    timeline = stage.places(Now(round=3), 9, Batching(4))
    assert [(place.round, place.step, place.steps, place.epoch) for place in timeline] == [
        (3, 0, 4, 0),
        (3, 1, 4, 0),
        (3, 2, 4, 1),
        (3, 3, 4, 1),
    ]
    assert [place.ends_epoch for place in timeline] == [False, True, False, True]
    assert {place.samples for place in timeline} == {9}


def test_a_selector_that_trains_nothing_is_refused() -> None:
    with pytest.raises(ft.ConfigError, match="trains must be a selector that matches at least one parameter"):
        program_of(phase(trains=ft.params.submodule("head")))
