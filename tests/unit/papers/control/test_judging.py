"""What is asked of the controls: gains over FedAvg, and each against its own baseline."""

from __future__ import annotations

import pytest

from fedtempo.papers.control.judging import CLAIMS, CONTENDERS, END, GAIN, control_gains
from fedtempo.papers.control.methods import CLIPPED, FEDAVG, METHODS, NAR


def test_gains_are_over_fedavg() -> None:
    values = {label: {END: 0.5, "existing_after/at_steps": 0.4} for label in METHODS}
    values[NAR] = {END: 0.53, "existing_after/at_steps": 0.35}
    found = control_gains(values)
    assert found[NAR][GAIN] == pytest.approx(0.03)
    assert found[NAR]["gain_at_steps"] == pytest.approx(-0.05)
    assert found[FEDAVG][GAIN] == 0.0


def test_every_method_is_asked_twice_and_fednar_against_the_other_order() -> None:
    texts = [claim.text for claim in CLAIMS]
    assert len(texts) == 2 * len(CONTENDERS) == 2 * (len(METHODS) - 1)
    assert f"{NAR} is ahead of {CLIPPED} where both are trained." in texts
