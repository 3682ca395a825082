"""Figures for papers: three formats, the same bytes for the same numbers, one line where matplotlib is absent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.comparison import compare_runs, write_figures
from fedtempo.comparison.figures import curve_of
from fedtempo.errors import OutputError

STARTS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def runs() -> list[ft.Run]:
    data = ft.data.load("digits").split(ft.data.dirichlet(clients=8, alpha=0.5), new_clients=2, seed=0, min_samples=3)
    found = []
    for name in ("fedavg", "local_only"):
        for seed in (0, 1):
            algorithm = ft.algorithms.ALGORITHMS[name](lr=0.1, steps=2)
            settings = {"rounds": 3, "seed": seed, "evaluation": ft.Evaluation(every=1, steps=1)}
            model = ft.models.softmax_regression(64, 10)
            found.append(ft.Run.of(ft.run(model=model, data=data, algorithm=algorithm, **settings), name))
    return found


def test_three_formats_with_the_labels_in_them(runs: list[ft.Run], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    comparison = compare_runs(runs)
    files = write_figures(comparison, runs, tmp_path / "a")
    assert sorted(path.name for path in files) == sorted(f"{n}.{e}" for n in ("curves", "scores") for e in STARTS)
    for path in files:
        assert path.read_bytes().startswith(STARTS[path.suffix[1:]])
    drawn = (tmp_path / "a" / "curves.svg").read_text()
    assert all(text in drawn for text in ("fedavg", "local_only", "round", "accuracy, validation part"))
    again = write_figures(comparison, runs, tmp_path / "b")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in files]


def test_a_curve_is_the_mean_over_seeds(runs: list[ft.Run]) -> None:
    curve = curve_of(runs[:2])
    assert list(curve) == [1, 2, 3]
    last = [run.history[-1].validation.existing_after.summary("accuracy")["mean"] for run in runs[:2]]  # type: ignore[union-attr]
    assert curve[3].value == pytest.approx(sum(last) / 2)


def test_without_matplotlib_one_line_says_so(
    runs: list[ft.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OutputError, match=r"figures needs matplotlib: pip install '\.\[plots\]'"):
        write_figures(compare_runs(runs), runs, tmp_path)
