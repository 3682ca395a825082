"""State as bytes: the same bits, and an error for anything of another form; the smoothed loss, worked by hand."""

from __future__ import annotations

import json
import math

import pytest
import torch

from fedtempo.errors import StoreError
from fedtempo.federation.costs import Costs
from fedtempo.training.state import (
    PATIENCE,
    Progress,
    State,
    digest_of,
    receipt,
    state_from_bytes,
    state_to_bytes,
    tensors_from_bytes,
    tensors_to_bytes,
)
from fedtempo.training.storage.seals import MALFORMED

STATE = State(
    {"z": torch.tensor([0.1, float("nan")]), "a": torch.arange(3)},
    ({"m": torch.ones(2, 2)}, torch.tensor(5.0)),
    Progress(2.0, 1.0, 1.0, 3, 1),
    Costs(steps=7, flops=1e15),
    0.25,
    (1.5, 2.5),
)


def emptied(state: State) -> State:
    """The form of a state, with other numbers."""
    other = {name: torch.zeros_like(t) for name, t in state.shared.items()}
    return State(other, ({"m": torch.zeros(2, 2)}, torch.tensor(0.0)))


def test_a_state_comes_back_with_every_bit() -> None:
    again = state_from_bytes(*state_to_bytes(STATE), emptied(STATE))
    assert state_to_bytes(again) == state_to_bytes(STATE)
    assert torch.equal(again.shared["z"].view(torch.int32), STATE.shared["z"].view(torch.int32))
    assert torch.equal(again.server[0]["m"], torch.ones(2, 2)) and float(again.server[1]) == 5.0
    assert again[2:] == STATE[2:]


def test_names_keep_their_order() -> None:
    """The order decides in which order norms are summed; safetensors alone would sort."""
    assert list(tensors_from_bytes(tensors_to_bytes(STATE.shared))) == ["z", "a"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (emptied(STATE)._replace(shared={"b": torch.zeros(2)}), "must hold 'shared/b'"),
        (emptied(STATE)._replace(shared={"z": torch.zeros(3)}), r"'shared/z' must be torch.float32 \(3,\)"),
        (emptied(STATE)._replace(shared={"z": torch.zeros(2, dtype=torch.float64)}), "must be torch.float64"),
    ],
)
def test_a_state_of_another_form_is_refused(template: State, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        state_from_bytes(*state_to_bytes(STATE), template)


def test_a_receipt_stands_for_its_tensors() -> None:
    own = {"head": torch.tensor([1.0, 2.0])}
    assert digest_of(receipt(digest_of(own))) == digest_of(own)
    assert digest_of(own) == digest_of({"head": torch.tensor([1.0, 2.0])})
    for other in ({"head": torch.tensor([2.0, 1.0])}, {"tail": own["head"]}, {"head": own["head"].double()}):
        assert digest_of(other) != digest_of(own)


def test_tensors_laid_out_otherwise_have_the_same_digest() -> None:
    image = torch.randn(2, 3, 4, 4)
    assert digest_of({"x": image.contiguous(memory_format=torch.channels_last)}) == digest_of({"x": image})


@pytest.mark.parametrize("field", ["best_validation", "norms", "time", "energy", "costs", "progress"])
def test_numbers_of_another_form_are_refused(field: str) -> None:
    state = State({"w": torch.zeros(2)}, {})
    tensors, numbers = state_to_bytes(state)
    for value in (None, "x", [[]], {"first": "x", "steps": "x"}, True):
        with pytest.raises(MALFORMED):
            state_from_bytes(tensors, json.dumps({**json.loads(numbers), field: value}), state)


def after(*losses: float) -> Progress:
    progress = Progress()
    for loss in losses:
        progress = progress.after(loss)
    return progress


def test_before_and_after_the_first_round() -> None:
    assert Progress().ratio == 1.0
    assert after(5.0) == Progress(5.0, 5.0, 5.0)


def test_a_tenth_of_every_new_loss_counts() -> None:
    """0.9 * 10 + 0.1 * 0 = 9, then 0.9 * 9 + 0.1 * 4 = 8.5."""
    progress = after(10.0, 0.0, 4.0)
    assert progress.smoothed == pytest.approx(8.5)
    assert progress.ratio == pytest.approx(0.85)


def test_a_loss_that_stands_still_is_a_plateau_every_ten_rounds() -> None:
    assert after(*[1.0] * PATIENCE).plateaus == 0
    assert after(*[1.0] * (PATIENCE + 1)).plateaus == 1
    assert after(*[1.0] * (2 * PATIENCE + 1)).plateaus == 2


def test_less_than_a_hundredth_is_no_improvement() -> None:
    """A loss of 0.95 leaves 0.995 after smoothing; a loss of 0.8 leaves 0.98, which is a new best."""
    assert after(1.0, 0.95).rounds_since_best == 1
    better = after(1.0, 0.8)
    assert (better.rounds_since_best, better.best) == (0, pytest.approx(0.98))


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_round_without_a_loss_changes_nothing(loss: float) -> None:
    assert after(3.0, loss) == after(3.0)
    assert after(loss) == Progress() or math.isnan(after(loss).first)


def test_a_negative_loss_that_stands_still_is_a_plateau_too() -> None:
    assert after(*[-1.0] * (PATIENCE + 1)).plateaus == 1
    assert after(-1.0, -1.05).rounds_since_best == 1
    assert after(-1.0, -1.2).best == pytest.approx(-1.02)
