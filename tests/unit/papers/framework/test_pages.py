"""A reproduction's page: everything that was measured, and no verdict in a quick look."""

from __future__ import annotations

from pathlib import Path

from fedtempo.papers import reproduce
from fedtempo.papers.framework.pages import QUICK_LOOK, claims_and_verdicts, outcome_record, page, tidy
from tests.unit.papers.framework.test_choosing import TUNED


def test_a_quick_look_has_numbers_and_no_verdict(tmp_path: Path) -> None:
    small = page(TUNED, reproduce(TUNED, "small", tmp_path / "small", processes=1), "today", {})
    medium = page(TUNED, reproduce(TUNED, "medium", tmp_path / "medium", processes=1), "today", {})
    assert QUICK_LOOK in small
    assert "verdict" not in small
    assert "| large steps |" in small
    assert "**no difference**" in medium
    assert QUICK_LOOK not in medium


def test_a_quick_look_says_numbers_and_no_answers(tmp_path: Path) -> None:
    small = reproduce(TUNED, "small", tmp_path / "small", processes=1)
    medium = reproduce(TUNED, "medium", tmp_path / "medium", processes=1)
    assert [(text, answer) for text, answer, _ in claims_and_verdicts(TUNED, small)] == [
        ("We ask: Large steps are better.", "")
    ]
    assert [answer for _, answer, _ in claims_and_verdicts(TUNED, medium)] == ["no difference"]
    assert outcome_record(TUNED, small)["claims"][0]["verdict"] == ""


def test_empty_lines_do_not_pile_up() -> None:
    assert tidy("a\n\n\n\nb\n\n") == "a\n\nb\n"
