"""One run, shown by every test of the report."""

from __future__ import annotations

import pytest

import fedtempo as ft


@pytest.fixture(scope="package")
def result(digits: ft.data.FederatedData) -> ft.Result:
    algorithm = ft.algorithms.feddecay(lr=ft.schedules.per_round(0.1, 0.9), beta=0.5, steps=3)
    model = ft.models.softmax_regression(64, 10)
    return ft.run(model=model, data=digits, algorithm=algorithm, rounds=4, cohort=5, evaluation=ft.Evaluation(every=2))
