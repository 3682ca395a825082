"""Ten runs of 1,000 rounds with 5,000 users: light, open in under three seconds, and honest about what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.report import report, write_page
from fedtempo.training.pictures import DataPicture
from fedtempo.training.round_report import RoundReport
from tests.e2e.browser.conftest import Browser
from tests.waiting import allowed

ROUNDS, USERS = 1000, 5000


def scores(rng: np.random.Generator, part: str) -> Scores:
    def users(first: int, count: int) -> UserScores:
        values = {name: rng.random(count) for name in ("loss", "accuracy", "top5")}
        return UserScores(np.arange(first, first + count), rng.integers(1, 50, count), values)

    new = USERS // 5
    return Scores(part, users(new, USERS - new), users(new, USERS - new), users(0, new), users(0, new))  # type: ignore[arg-type]


def large_run(index: int) -> ft.Run:
    rng = np.random.default_rng(index)
    evaluations = [scores(rng, "validation") for _ in range(5)]
    history = [
        RoundReport(
            round=number,
            loss=float(2 / (1 + number / 100) + 0.1 * rng.random()),
            clients=tuple(range(100)),
            costs=Costs(10**6, 10**6, 1000, 0, 32000, 10**9),
            total_costs=Costs(10**6, 10**6, 1000, 0, 32000, 10**9).times(number + 1),
            seconds=0.5,
            measurements={"clipped_steps": float(rng.integers(0, 1000)), "clipped_norm": 11.0},
            validation=evaluations[number % 5] if number % 2 else None,
            test=scores(rng, "test") if number == ROUNDS - 1 else None,
        )
        for number in range(ROUNDS)
    ]
    shown = np.arange(0, USERS, USERS // 400)[:400]
    rows, counts = rng.integers(10, 500, 400), rng.integers(0, 30, (400, 62))
    picture = DataPicture(f"data {index}", str(index), shown, USERS, shown < USERS // 5, rows, counts, 62)
    return ft.Run(f"algorithm {index}", history, seed=0, total=ROUNDS, picture=picture, digest="0" * 64)


@pytest.mark.slow("to summarise millions of scores takes seconds; smaller reports open in the browser every time")
@pytest.mark.parametrize("runs", [2, 10])
def test_a_large_report_is_light_and_opens_at_once(runs: int, browser: Browser, tmp_path: Path) -> None:
    page = write_page(tmp_path / "report.html", report([large_run(index) for index in range(runs)], title="Large"))
    assert page.stat().st_size < 1.5e6 * runs
    seconds = browser.open(page)
    assert seconds < allowed(3)
    assert browser.errors() == []
    assert len(browser.all("#curves path.line")) == runs
    assert "250 evenly spaced" in browser.one("footer").text
    assert "evenly spaced clients" in browser.one("footer").text
    with_seconds = f"{page.stat().st_size / 1e6:.1f} MB, opened in {seconds:.2f} s"
    print(with_seconds)
