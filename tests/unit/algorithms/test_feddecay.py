"""FedDecay of equal travel: the factors of a round add up to its steps, and fine-tuning has the plain rate."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedtempo.algorithms import Algorithm, fedavg, feddecay
from fedtempo.data.batches import Batching
from fedtempo.errors import ConfigError
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.serving import fine_tuning
from fedtempo.schedules import Now, decaying_k
from fedtempo.training.loop import drained, train_experiment
from tests.one_weight import experiment

ROWS = 12


def rates_of(algorithm: Algorithm, round_number: int = 0) -> list[float]:
    places = algorithm.phases[0].positions(Now(round=round_number), ROWS, Batching(4))
    return [algorithm.phases[0].lr.at(place) for place in places]


SETTINGS: dict[str, dict[str, Any]] = {
    "by step": {"beta": 0.4, "steps": 5},
    "to the first step": {"beta": 0.0, "steps": 5},
    "linear": {"beta": 0.7, "steps": 5, "decay": "linear"},
    "a sequence": {"steps": 4, "decay": [0.5, 0.25, 0.1]},
    "fewer steps by round": {"beta": 0.4, "steps": decaying_k(6, 0.5)},
    "by epoch": {"beta": 0.4, "epochs": 3, "per": "epoch"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_rates_of_a_round_add_up_to_those_of_fedavg(name: str) -> None:
    own = SETTINGS[name]
    length = {key: own[key] for key in ("steps", "epochs") if key in own}
    for number in (0, 1):
        level = rates_of(fedavg(lr=0.3, **length), number)
        equal = rates_of(feddecay(lr=0.3, travel="equal", **own), number)
        decayed = rates_of(feddecay(lr=0.3, **own), number)
        assert math.fsum(equal) == pytest.approx(math.fsum(level), rel=1e-12)
        assert math.fsum(decayed) < math.fsum(level)
        # One factor for all steps: the order of large and small ones is FedDecay's.
        assert equal == pytest.approx([rate * equal[0] / decayed[0] for rate in decayed], rel=1e-12)


def test_four_steps_by_hand() -> None:
    """Factors 1, 1/2, 1/4, 1/8 add up to 15/8: times 32/15 they add up to 4."""
    assert rates_of(feddecay(lr=1.0, beta=0.5, steps=4, travel="equal")) == pytest.approx(
        [32 / 15, 16 / 15, 8 / 15, 4 / 15], rel=1e-12
    )


def test_without_decay_it_is_fedavg_to_the_bit() -> None:
    assert rates_of(feddecay(lr=0.3, beta=1.0, steps=7, travel="equal")) == rates_of(fedavg(lr=0.3, steps=7))


def test_fine_tuning_has_the_plain_rate() -> None:
    algorithm = feddecay(lr=0.3, beta=0.5, steps=4, travel="equal")
    federation = experiment([1.0, 2.0], [3.0], algorithm=algorithm).federation
    phase = fine_tuning(federation, Evaluation(steps=3))
    assert [phase.lr.at(Now(step=step, steps=3)) for step in range(3)] == pytest.approx([0.3] * 3)


def test_epochs_that_are_moved_back_go_as_far_as_fedavg_on_a_line() -> None:
    """Displacements of epochs are scaled by 4/3 and 2/3; where gradients do not change they add up to FedAvg's."""
    moved = []
    for algorithm in (
        feddecay(lr=1e-6, beta=0.5, epochs=2, per="epoch_displacement", travel="equal"),
        fedavg(lr=1e-6, epochs=2),
    ):
        result = drained(train_experiment(experiment([1.0, 3.0], algorithm=algorithm)))
        moved.append(float(result.params["w"]))
    assert moved[0] == pytest.approx(moved[1], rel=1e-5)
    assert moved[1] > 0


def test_what_it_refuses() -> None:
    with pytest.raises(ConfigError, match="travel must be 'decayed' or 'equal'"):
        feddecay(lr=0.1, beta=0.5, steps=2, travel="far")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="epochs must be given instead of steps"):
        feddecay(lr=0.1, beta=0.5, steps=2, per="epoch", travel="equal")
