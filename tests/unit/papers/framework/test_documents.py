"""The documentation's pages of results: verdicts and a chart on the paper's page, everything on a page of its own."""

from __future__ import annotations

from pathlib import Path

from fedtempo.papers import reproduce
from fedtempo.papers.framework.documents import save_into_docs
from tests.unit.papers.framework.small_runs import QUADRATIC
from tests.unit.papers.framework.test_choosing import TUNED


def test_a_section_of_the_docs_is_replaced_and_what_people_wrote_stays(tmp_path: Path) -> None:
    outcome = reproduce(QUADRATIC, "smoke", tmp_path / "out", processes=1)
    page = save_into_docs(QUADRATIC, outcome, tmp_path, "First.")
    page.write_text(page.read_text() + "\nWhat we think of it.\n")
    again = save_into_docs(QUADRATIC, outcome, tmp_path, "Second.").read_text()
    details = (tmp_path / "details" / "decaying-k-quadratic.md").read_text()
    assert "First." not in details
    assert details.count("Second.") == 1
    assert again.count("decaying-k-quadratic-smoke: begin") == 1
    assert again.endswith("What we think of it.\n")
    assert (tmp_path / "figures" / "decaying-k-quadratic-smoke-a.svg").exists()
    assert "(../figures/decaying-k-quadratic-smoke-a.svg)" in details


def test_a_medium_section_takes_the_place_of_the_quick_look_and_stays(tmp_path: Path) -> None:
    pages = {}
    for scale in ("small", "medium", "medium", "small"):
        outcome = reproduce(TUNED, scale, tmp_path / scale, processes=1)
        pages[scale] = save_into_docs(TUNED, outcome, tmp_path / "docs", "today").read_text()
        if scale == "small" and len(pages) == 1:
            assert "Not judged yet" in pages["small"]
            assert "verdict" not in pages["small"]
    assert pages["small"] == pages["medium"], "a quick look does not replace verdicts"
    assert pages["medium"].count("tuned-medium: begin") == 1
    assert "tuned-small" not in pages["medium"]
    assert "**no difference**" in pages["medium"]


def test_the_papers_page_is_short_and_leads_to_the_long_one(tmp_path: Path) -> None:
    outcome = reproduce(TUNED, "medium", tmp_path / "out", processes=1)
    page = save_into_docs(TUNED, outcome, tmp_path, "today").read_text()
    details = (tmp_path / "details" / "tuned.md").read_text()
    assert "(details/tuned.md)" in page
    assert "| contestant | chosen |" in details
    assert "| contestant | chosen |" not in page
