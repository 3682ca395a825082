"""The committed results: no judged seed was tuned on, verdicts follow from the stored runs, and the count is theirs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from fedtempo.papers import REPRODUCTIONS, reproduce
from fedtempo.papers.framework import counting
from fedtempo.papers.framework.choosing import plan_record
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.counting import answers, judged_outcome, question_table, write_index
from fedtempo.papers.framework.definitions import FIRST_TUNING_SEED
from fedtempo.papers.framework.documents import save_into_docs, stored_runs, verdict_section
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.stored import SAME, read_stored_runs
from fedtempo.papers.ten_claims import TEN, judging
from tests.unit.papers.framework.test_choosing import TUNED

RESULTS = Path(__file__).parents[4] / "docs" / "results"
STORED = sorted(path.stem for path in (RESULTS / "runs").glob("*.json"))


@cache
def committed(name: str) -> Outcome | None:
    """What the committed runs say, read once for all tests."""
    return judged_outcome(REPRODUCTIONS[name], RESULTS)


@pytest.mark.parametrize("name", STORED)
def test_no_stored_seed_was_tuned_on_and_judged(name: str) -> None:
    content = read_stored_runs(stored_runs(RESULTS, name))
    assert content is not None
    plan, runs = content["plan"], content["runs"]
    tuned = {run["seed"] for run in runs if run["tried"] is not None}
    judged = {run["seed"] for run in runs if run["tried"] is None}
    assert not set(plan["judged_seeds"]) & set(plan["tuning_seeds"])
    assert tuned <= set(plan["tuning_seeds"])
    assert judged <= set(plan["judged_seeds"])
    assert all(seed >= FIRST_TUNING_SEED for seed in tuned)
    assert all(seed < FIRST_TUNING_SEED for seed in judged)


@pytest.mark.parametrize("name", STORED)
def test_the_stored_plan_is_the_one_in_the_code(name: str) -> None:
    """Whoever changes a scale runs it again, or removes what was stored."""
    content = read_stored_runs(stored_runs(RESULTS, name))
    assert content is not None
    written = plan_record(REPRODUCTIONS[name], "medium", 1)
    assert {part: content["plan"][part] for part in SAME} == {part: written[part] for part in SAME}


@pytest.mark.parametrize("name", STORED)
def test_the_pages_verdicts_follow_from_the_stored_runs(name: str) -> None:
    chosen = REPRODUCTIONS[name]
    outcome = committed(name)
    page = (RESULTS / f"{chosen.paper}.md").read_text()
    if outcome is None:
        assert f"{name}-medium: begin" not in page, "not all runs are stored, so nothing is judged"
        return
    figures = {one.name: f"figures/{name}-medium-{one.name}.svg" for one in chosen.figures}
    assert verdict_section(chosen, outcome, figures) in page
    assert all((RESULTS / figure).exists() for figure in figures.values())


def test_every_verdict_on_a_page_has_stored_runs() -> None:
    for name, chosen in REPRODUCTIONS.items():
        page = RESULTS / f"{chosen.paper}.md"
        if name not in STORED and page.exists():
            assert f"{name}-medium: begin" not in page.read_text()


def test_the_count_on_the_first_page_is_that_of_the_stored_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page, asked = (RESULTS / "index.md").read_text(), []

    def read_once(reproduction: Reproduction, folder: Path) -> Outcome | None:
        asked.append((reproduction.name, folder))
        return committed(reproduction.name)

    monkeypatch.setattr(counting, "judged_outcome", read_once)
    assert "\n".join(question_table(REPRODUCTIONS.values(), RESULTS)) in page
    assert {(name, RESULTS) for name in STORED} <= set(asked)


def test_the_ten_claims_on_the_pages_are_those_of_the_stored_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "judged_outcome", lambda reproduction, folder: committed(reproduction.name))
    rows = judging.judged(RESULTS, TEN)
    assert "\n".join(judging.table(rows)) in (RESULTS / "index.md").read_text()
    for paper in judging.NAMES:
        own = [row for row in rows if row.claim.paper == paper]
        assert "\n".join(judging.table(own)) in (RESULTS / f"{paper}.md").read_text()


@pytest.mark.parametrize("page", [*judging.NAMES])
def test_a_papers_page_is_short_and_has_no_verdict_beside_its_own_claims(page: str) -> None:
    text = (RESULTS / f"{page}.md").read_text()
    assert len(text.split()) <= 1200
    assert "(edge)" not in text and "can't tell" not in text


def test_a_claim_counts_as_not_run_until_all_of_its_runs_are_stored(tmp_path: Path) -> None:
    assert answers(TUNED, tmp_path) == {Answer.NOT_RUN: 1}
    stored = stored_runs(tmp_path, "tuned")
    reproduce(TUNED, "medium", tmp_path / "a", processes=1, stored=stored, only=("large steps",))
    assert answers(TUNED, tmp_path) == {Answer.NOT_RUN: 1}
    outcome = reproduce(TUNED, "medium", tmp_path / "b", processes=1, stored=stored)
    assert answers(TUNED, tmp_path) == {Answer.SAME: 1}
    save_into_docs(TUNED, outcome, tmp_path, "today")
    page = write_index([TUNED], tmp_path).read_text()
    assert "| [compositions](compositions.md) | 1 | 0 | 0 | 1 | 0 | 0 | 0 | 0 |" in page
    assert page == write_index([TUNED], tmp_path).read_text()
