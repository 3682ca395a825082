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
