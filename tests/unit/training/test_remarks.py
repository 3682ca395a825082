"""What a finished run says about itself."""

from __future__ import annotations

import numpy as np
import pytest

import fedtempo as ft


@pytest.mark.parametrize("test", [0.0, 0.5])
def test_scores_of_rows_that_were_trained_on_are_called_so(test: float) -> None:
    rows = (np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1]))
    data = ft.data.FederatedData.from_clients([rows, rows], test=test)
    algorithm = ft.algorithms.fedsgd(lr=0.1)
    result = ft.run(
        model=ft.models.softmax_regression(4, 2), data=data, algorithm=algorithm, rounds=1, backend="serial"
    )
    assert any("no user has test rows" in note for note in result.notes) == (test == 0.0)


def test_users_without_test_rows_are_counted() -> None:
    """A quarter of two rows is none: the mean is over the other users, and the notes say so."""
    few = (np.eye(4, dtype=np.float32)[:2], np.array([0, 1]))
    many = (np.eye(4, dtype=np.float32).repeat(3, 0), np.arange(12) % 2)
    data = ft.data.FederatedData.from_clients([few, few, few, many], test=0.25)
    result = ft.run(
        model=ft.models.softmax_regression(4, 2),
        data=data,
        algorithm=ft.algorithms.fedsgd(lr=0.1),
        rounds=1,
        backend="serial",
    )
    assert "warning: 3 of 4 existing users have no test rows and are not scored" in result.notes
