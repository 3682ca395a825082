"""The loss and the metrics are tried before training, and what does not fit is named."""

from __future__ import annotations

import pytest

import fedtempo as ft
from tests.unit.training.test_experiment import experiment


@pytest.mark.parametrize("number", [1, 3, 5])
def test_class_weights_are_one_for_each_output(number: int) -> None:
    """One weight alone could be multiplied with any number of classes, and failed in the first round."""
    rule = rf"class_weights must be 4 numbers, one for each of the model's outputs\. Got {number}\."
    with pytest.raises(ft.ConfigError, match=rule):
        experiment(loss=ft.tasks.classification(class_weights=[1.0] * number))
    experiment(loss=ft.tasks.classification(class_weights=[1.0] * 4))
