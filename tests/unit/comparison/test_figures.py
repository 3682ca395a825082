"""Figures for papers: three formats, the same bytes for the same numbers, one line where matplotlib is absent."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.comparison import compare_runs, plot, write_figures
from fedtempo.comparison.figures import curve_of
from fedtempo.errors import ConfigError, OutputError

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


def test_a_curve_is_the_mean_over_seeds_against_rounds_and_costs(runs: list[ft.Run]) -> None:
    first, second = runs[:2]
    by_round, by_bytes, by_seconds = (curve_of(runs[:2], x) for x in ("rounds", "bytes", "seconds"))
    assert [point.x for point in by_round] == [1, 2, 3]
    last = [run.history[-1].validation.existing_after.summary("accuracy")["mean"] for run in runs[:2]]  # type: ignore[union-attr]
    assert by_round[2].score.value == pytest.approx(sum(last) / 2)
    assert [point.score for point in by_bytes] == [point.score for point in by_round]
    assert by_bytes[1].x == (first.history[1].total_costs.bytes + second.history[1].total_costs.bytes) / 2
    assert by_seconds[2].x == pytest.approx((first.seconds + second.seconds) / 2)


def test_a_figure_against_bytes_says_so_and_a_long_legend_stands_below(runs: list[ft.Run], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    named = [replace(run, label=f"contestant {place}") for place in range(6) for run in runs[:1]]
    path = plot(named, tmp_path / "curves.svg", x="bytes", width="page")
    drawn = path.read_text()
    assert "bytes sent, both ways" in drawn and all(f"contestant {place}" in drawn for place in range(6))
    assert plot(runs, tmp_path / "curves.pdf", x="flops").read_bytes().startswith(b"%PDF")
    with pytest.raises(ConfigError, match=r"x must be 'rounds' or .*Got 'byte'"):
        plot(runs, tmp_path / "curves.svg", x="byte")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"path must be a file that ends with \.svg"):
        plot(runs, tmp_path / "curves.gif")


def test_without_matplotlib_one_line_says_so(
    runs: list[ft.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OutputError, match=r"figures needs matplotlib: pip install '\.\[plots\]'"):
        write_figures(compare_runs(runs), runs, tmp_path)
