"""The report before it is drawn: which numbers are in it, how they are thinned, and that nothing in it can run."""

from __future__ import annotations

import itertools
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.costs import Costs
from fedtempo.report import Bars, Grid, ReportRun, Section, read_run, report
from fedtempo.report.payload import MOST_ROUNDS, payload
from fedtempo.report.pictures import MOST_CLIENTS, picture_of, plan_of
from fedtempo.server.sums import Failure
from fedtempo.training.experiment import prepare
from fedtempo.training.round_report import RoundReport

ASSETS = files("fedtempo.report") / "assets"


@pytest.fixture(scope="module")
def result(digits: ft.data.FederatedData) -> ft.Result:
    algorithm = ft.algorithms.feddecay(lr=ft.schedules.per_round(0.1, 0.9), beta=0.5, steps=3)
    model = ft.models.softmax_regression(64, 10)
    return ft.run(model=model, data=digits, algorithm=algorithm, rounds=4, cohort=5, evaluation=ft.Evaluation(every=2))


def numbers_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', page, re.S)
    assert found
    values: dict[str, Any] = json.loads(found[1])
    return values


def test_the_page_holds_the_results_numbers(result: ft.Result) -> None:
    page = report([ReportRun.of(result, "decay")], title="A title")
    (run,) = numbers_in(page)["runs"]
    assert result.scores is not None
    mean = result.scores.new_after.summary("accuracy")["mean"]  # type: ignore[union-attr]
    assert run["final"]["scores"]["accuracy"]["new_after"]["mean"] == pytest.approx(mean, rel=1e-5)
    assert run["curve"]["round"] == [2, 4]
    assert run["rounds"]["bytes"][-1] == result.costs.bytes
    assert run["digest"] == result.digest()
    assert result.digest() in page
    assert run["users"]["existing"]["count"] == 16


def test_the_schedules_drawn_are_the_schedules_used(result: ft.Result) -> None:
    plan = numbers_in(report([ReportRun.of(result)]))["runs"][0]["plan"]
    assert plan["first"][0]["lr"] == pytest.approx([0.1 * 0.9**t for t in range(4)])
    assert plan["last"][0]["lr"] == pytest.approx([0.1 * 0.9**t * 0.25 for t in range(4)])
    assert plan["first"][0]["K"] == [3, 3, 3, 3]
    assert plan["inside"]["4"][0]["lr"] == pytest.approx([0.0729 * 0.5**k for k in range(3)])


def test_very_many_steps_are_not_all_worked_out(digits: ft.data.FederatedData) -> None:
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=5000)
    plan = plan_of(prepare(model=ft.models.softmax_regression(64, 10), data=digits, algorithm=algorithm, rounds=50))
    assert len(plan.rounds) == 4
    assert (plan.rounds[0], plan.rounds[-1], plan.first[0][0]["K"]) == (0, 49, 5000)
    assert len(plan.inside[49][0]) == 200


def test_names_cannot_run_or_end_the_script(result: ft.Result) -> None:
    evil = "</script><script>alert(1)</script><!--"
    section = Section(evil, evil, Grid([evil], [[evil]]), Bars({evil: 1.0}))
    page = report([ReportRun.of(result, evil, command=evil)], title=evil, sections=[section])
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert evil not in page
    assert numbers_in(page)["title"] == evil
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_script_writes_text_and_never_markup() -> None:
    script = "".join(asset.read_text() for asset in ASSETS.iterdir() if asset.name.endswith(".js"))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://(?!www\.w3)", script
    )


def test_rounds_left_out_lose_no_counts() -> None:
    history = [
        RoundReport(
            n, 1.0, (1, 2), Costs(steps=4), Costs(steps=4 * (n + 1)), 0.1, {"clipped_steps": 2.0}, (Failure(3, "late"),)
        )
        for n in range(5 * MOST_ROUNDS)
    ]
    values = payload([ReportRun("long", history)], "t")
    (run,) = values["runs"]
    assert len(run["rounds"]["round"]) == MOST_ROUNDS
    assert (run["rounds"]["refused"][-1], run["rounds"]["clipped"][-1]) == (5 * MOST_ROUNDS, 10 * MOST_ROUNDS)
    assert run["rounds"]["asked"][-1] == 15 * MOST_ROUNDS
    assert any("evenly spaced rounds" in note for note in values["notes"])


def test_a_run_that_is_not_finite_still_has_a_page() -> None:
    history = [RoundReport(0, float("nan"), (), Costs(), Costs(), 0.1)]
    assert numbers_in(report([ReportRun("nan", history)]))["runs"][0]["rounds"]["loss"] == [None]
    assert numbers_in(report([ReportRun("none yet", [])]))["runs"][0]["done"] == 0


def test_the_picture_counts_labels_and_marks_new_users(digits: ft.data.FederatedData) -> None:
    picture = picture_of(digits)
    assert picture.counts.sum() == picture.rows.sum() == 1797
    assert picture.clients[picture.new].tolist() == digits.held_out.tolist()
    many = ft.data.FederatedData.from_clients([(np.zeros((1, 2)), np.array([i % 3])) for i in range(1000)])
    shown = picture_of(many)
    assert (len(shown.clients), shown.total, shown.counts.shape) == (MOST_CLIENTS, 1000, (MOST_CLIENTS, 3))
    assert shown.counts.argmax(1).tolist() == (shown.clients % 3).tolist()


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


VISION = {  # Machado, Oliveira and Fernandes (2009), full severity
    "usual": np.eye(3),
    "without red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "without green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "without blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart_with_any_vision(vision: str) -> None:
    style = (ASSETS / "report.css").read_text()
    palettes = [dict(re.findall(r"--(c\d): (#[0-9a-f]{6})", block)) for block in style.split("{") if "--c0:" in block]
    assert [len(palette) for palette in palettes] == [7, 7, 7]
    for palette in palettes:
        seen = [_lab(VISION[vision] @ _linear(colour)) for colour in palette.values()]
        assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 12


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_a_page_without_runs_shows_its_sections_alone() -> None:
    """What a search or a reproduction leaves: tables and figures, no empty controls."""
    page = report([], title="A search", sections=[Section("All trials", table=Grid(["trial"], [[1]]))])
    assert 'id="controls" hidden' in page
    assert 'id="results" hidden' in page
    assert "All trials" in page
