"""In a notebook: what is shown is well-formed, says the right numbers, hides nothing hostile, and progress is drawn."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.comparison import compare_runs
from fedtempo.data import FederatedData
from fedtempo.errors import FedTempoError
from fedtempo.schedules import as_schedule, per_round, per_step
from tests import ROOT
from tests.programs import script_ended
from tests.waiting import PATIENCE

EXAMPLES = ROOT / "examples"
HOSTILE = "<script>alert(1)</script>"


class Shape(HTMLParser):
    """Notes tags that are not closed, and everything that could run or be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attributes if name in ("src", "href") or name[:2] == "on"]
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def shape_of(shown: Any) -> Shape:
    shape = Shape(shown._repr_html_())
    assert not shape.open
    assert not shape.fetched
    assert "script" not in shape.seen
    return shape


@pytest.fixture(scope="module")
def clients() -> FederatedData:
    random = np.random.default_rng(0)
    rows = [(random.standard_normal((n, 6)), random.integers(0, 4, n)) for n in (12, 20, 9, 14, 11)]
    return FederatedData.from_clients(rows, validation=0.2, test=0.2, new_clients=1)


@pytest.fixture(scope="module")
def result(clients: FederatedData) -> ft.Result:
    return ft.run(
        model=ft.models.mlp(6, [5], 4),
        data=clients,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=3,
        cohort=3,
        faults=ft.Faults(nan=0.4),
        evaluation=ft.Evaluation(every=1),
    )


def test_a_result(result: ft.Result) -> None:
    shape = shape_of(result)
    html = result._repr_html_()
    assert {"table", "svg", "code"} <= set(shape.seen)
    assert result.digest()[:16] in html
    assert f"{result.scores.existing_after.summary('accuracy')['mean']:.3f}" in html  # type: ignore[union-attr]


def test_a_round_says_who_was_refused(result: ft.Result) -> None:
    failed = next(report for report in result.history if report.failures)
    html = failed._repr_html_()
    shape_of(failed)
    assert f"Round {failed.number}" in html
    assert f"client {failed.failures[0].client}: " in html
    assert f"{failed.loss:.4f}" in html


def test_a_schedule_is_drawn_from_its_own_values() -> None:
    schedule = per_round(0.1, 0.99) * per_step(1.0, 0.5)
    html = schedule._repr_html_()
    assert shape_of(schedule).seen.count("svg") == 2
    assert f"{0.1:.4g} → {0.1 * 0.99**99:.4g}" in html
    assert f"{0.1:.4g} → {0.1 * 0.5**9:.4g}" in html


def test_a_schedule_that_cannot_be_evaluated_says_why() -> None:
    broken = as_schedule(lambda now: float("nan"))
    shape_of(broken)
    assert "must be finite" in broken._repr_html_()
    with pytest.raises(FedTempoError):
        broken.at(ft.Now())


def test_data_with_their_picture(clients: FederatedData) -> None:
    shape = shape_of(clients)
    counts = clients.label_counts("train") + clients.label_counts("validation") + clients.label_counts("test")
    assert shape.seen.count("rect") == int((counts > 0).sum()) + 1
    assert "4 that train, 1 new" in clients._repr_html_()


def test_data_without_labels_and_many_clients_stay_small() -> None:
    random = np.random.default_rng(0)
    unlabelled = FederatedData.from_clients([{"x": random.standard_normal((3, 2))} for _ in range(3)])
    assert "svg" not in shape_of(unlabelled).seen
    many = FederatedData.from_clients([(np.zeros((2, 1)), np.array([0, i % 90])) for i in range(3000)])
    assert len(many._repr_html_()) < 300_000
    shape_of(many)


def test_names_cannot_run(clients: FederatedData, result: ft.Result) -> None:
    from dataclasses import replace

    from fedtempo.server.sums import Failure

    shape_of(replace(clients, description=HOSTILE))
    report = replace(result.history[0], failures=(Failure(0, HOSTILE),), measurements={HOSTILE: 1.0})
    shape_of(report)
    shape_of(ft.compare([result], [HOSTILE]))
    assert HOSTILE not in report._repr_html_()


def test_a_comparison(result: ft.Result, clients: FederatedData) -> None:
    other = ft.run(
        model=ft.models.mlp(6, [5], 4),
        data=clients,
        algorithm=ft.algorithms.fedavg(lr=0.2, steps=2),
        rounds=3,
        cohort=3,
        evaluation=ft.Evaluation(every=1),
    )
    table = ft.compare([result, other], ["slow", "fast"])
    assert shape_of(table).seen.count("tr") == 3
    comparison = compare_runs([ft.Run.of(result, "slow"), ft.Run.of(other, "fast")])
    assert shape_of(comparison).seen.count("table") == 3
    assert "minus slow" in comparison._repr_html_()


def test_the_cells_of_the_example_notebook_run(tmp_path: Path) -> None:
    """As a program, in a fork: what a kernel adds is how values are shown."""
    notebook = json.loads((EXAMPLES / "first-steps.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells and all(not cell["outputs"] for cell in cells), "the notebook is kept without outputs"
    program = tmp_path / "cells.py"
    program.write_text("\n".join("".join(cell["source"]) for cell in cells))
    ended = script_ended(program, directory=tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow("starts a kernel; its cells run as a program every time")
def test_the_example_notebook_runs(tmp_path: Path) -> None:
    """Executed by a real kernel; results are shown as HTML, and the bar is drawn again until the last round."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "first-steps.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    nbclient.NotebookClient(
        notebook, timeout=PATIENCE, startup_timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    pages = ["".join(o["data"]["text/html"]) for o in shown if "text/html" in o.get("data", {})]
    bars = [page for page in pages if "<progress" in page]
    assert bars
    done, total = re.search(r'value="(\d+)" max="(\d+)"', bars[-1]).groups()  # type: ignore[union-attr]
    assert done == total
    assert sum("<table>" in page for page in pages) >= 4
    for page in pages:
        assert not Shape(page).fetched
