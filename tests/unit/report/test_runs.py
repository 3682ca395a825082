"""A run folder is read as it was written."""

from __future__ import annotations

from pathlib import Path

import fedtempo as ft
from fedtempo.report import read_run


def test_a_run_folder_is_read_as_it_was_written(
    result: ft.Result, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    algorithm = result.experiment.federation.algorithm
    model = ft.models.softmax_regression(64, 10)
    again = ft.run(
        model=model,
        data=digits,
        algorithm=algorithm,
        rounds=4,
        cohort=5,
        evaluation=ft.Evaluation(every=2),
        out=tmp_path,
    )
    run = read_run(tmp_path)
    assert run.digest == again.digest() == result.digest()
    assert [r.loss for r in run.history] == [r.loss for r in result.history]
    assert run.scores is not None
    assert run.scores.summary() == result.scores.summary()  # type: ignore[union-attr]
    assert run.versions["torch"]
    assert (tmp_path / "report.html").read_text().count(again.digest()) >= 2
