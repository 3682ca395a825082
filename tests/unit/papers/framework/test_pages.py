"""A reproduction's section of the documentation."""

from __future__ import annotations

from pathlib import Path

from fedtempo.papers import reproduce
from fedtempo.papers.framework.pages import save_into_docs
from tests.unit.papers.framework.small_runs import QUADRATIC


def test_a_section_of_the_docs_is_replaced_and_what_people_wrote_stays(tmp_path: Path) -> None:
    outcome = reproduce(QUADRATIC, "smoke", tmp_path / "out", processes=1)
    page = save_into_docs(QUADRATIC, outcome, tmp_path, "First.")
    page.write_text(page.read_text() + "\nWhat we think of it.\n")
    again = save_into_docs(QUADRATIC, outcome, tmp_path, "Second.").read_text()
    assert "First." not in again
    assert again.count("Second.") == 1
    assert again.endswith("What we think of it.\n")
    assert (tmp_path / "figures" / "decaying-k-quadratic-smoke-a.svg").exists()


def test_a_medium_section_takes_the_place_of_the_quick_look(tmp_path: Path) -> None:
    from tests.unit.papers.framework.test_choosing import TUNED

    for scale in ("small", "medium", "medium"):
        outcome = reproduce(TUNED, scale, tmp_path / scale, processes=1)
        page = save_into_docs(TUNED, outcome, tmp_path / "docs", "today").read_text()
    assert page.count("tuned-medium: begin") == 1
    assert "tuned-small" not in page
    assert "**no difference**" in page
