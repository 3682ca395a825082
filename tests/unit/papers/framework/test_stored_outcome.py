"""Labels with more seeds than others: each claim is judged on the seeds that all of its runs have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedtempo.papers import reproduce
from fedtempo.papers.framework.claims import Answer, Claim, above, equal, higher
from fedtempo.papers.framework.definitions import Column, Values
from fedtempo.papers.framework.documents import MOST_ROWS, verdict_section
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import page, seeds_text, verdicts
from fedtempo.papers.framework.stored_outcome import stored_outcome
from tests.unit.papers.framework.by_hand import outcome as by_hand
from tests.unit.papers.framework.test_choosing import TUNED


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Both labels on the three seeds of the plan, and one of them on two more."""
    path = tmp_path / "tuned.json"
    reproduce(TUNED, "medium", tmp_path / "one", processes=1, stored=path)
    reproduce(TUNED, "medium", tmp_path / "two", processes=1, stored=path, seeds=5, only=["large steps"])
    return path


def read(path: Path) -> Outcome:
    found = stored_outcome(TUNED, "medium", path)
    assert found is not None
    return found


def test_a_label_keeps_the_seeds_that_it_has(stored: Path) -> None:
    found = read(stored)
    assert {label: len(runs) for label, runs in found.measured.items()} == {"small steps": 3, "large steps": 5}
    assert len(found.values("large steps", "test")) == 5
    assert len(found.differences("large steps", "small steps", "test")) == 3
    assert set(found.choices) == {"small steps", "large steps"}, "tuning is shown of all labels, whatever ran last"
    assert found.left_out == ()
    (verdict,) = verdicts(TUNED, found).values()
    assert verdict.answer == Answer.SAME


def test_the_page_says_who_has_how_many_seeds(stored: Path) -> None:
    text = page(TUNED, read(stored), "today", {})
    assert seeds_text(read(stored)) == "3 to 5"
    assert "| run | seeds | test |" in text and "| small steps | 3 |" in text and "| large steps | 5 |" in text
    assert "judged seeds 0 to 2." in text and "on the seeds that all of its runs have" in text


def test_a_label_with_too_few_seeds_was_not_run(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    reproduce(TUNED, "medium", tmp_path / "one", processes=1, stored=path, only=["small steps"])
    reproduce(TUNED, "medium", tmp_path / "two", processes=1, stored=path, only=["large steps"], seeds=2)
    found = read(path)
    assert (found.labels, found.left_out) == (("small steps",), ("large steps",))
    (verdict,) = verdicts(TUNED, found).values()
    assert verdict.answer == Answer.NOT_RUN


def test_a_derived_column_ends_where_a_label_ends(stored: Path) -> None:
    def lead(values: Values) -> Values:
        large, small = (values[f"{size} steps"]["test"] for size in ("large", "small"))
        return {"large steps": {"lead": large - small}}

    derived = replace(
        TUNED,
        derive=lead,
        columns={**TUNED.columns, "lead": Column("lead")},
        claims=(Claim("There is a lead.", above("large steps", "lead", -1.0)),),
    )
    found = stored_outcome(derived, "medium", stored)
    assert found is not None
    assert len(found.values("large steps", "lead")) == 3
    (verdict,) = verdicts(derived, found).values()
    assert verdict.answer == Answer.HOLDS


def test_a_derived_column_has_the_seeds_of_the_labels_that_it_needs(stored: Path) -> None:
    def twice(values: Values) -> Values:
        large, small = (values[f"{size} steps"]["test"] for size in ("large", "small"))
        return {"large steps": {"lead": large - small, "twice": 2 * large}, "small steps": {"twice": 2 * small}}

    found = stored_outcome(replace(TUNED, derive=twice), "medium", stored)
    assert found is not None
    assert len(found.values("large steps", "lead")) == len(found.values("small steps", "twice")) == 3
    assert found.values("large steps", "twice") == tuple(2 * one for one in found.values("large steps", "test"))
    assert len(found.values("large steps", "twice")) == 5, "the label that it is derived from has five"


def test_the_best_of_several_is_found_on_common_seeds() -> None:
    found = by_hand(a=[0.5, 0.5, 0.9, 0.9], b=[0.6, 0.6])
    assert found.mean("a", "score") > found.mean("b", "score")
    common = found.on_common_seeds(["a", "b"])
    assert common.seeds == common.fewest_seeds == 2
    assert common.mean("a", "score") < common.mean("b", "score")


def test_rules_pair_the_seeds_that_both_have() -> None:
    found = by_hand(a=[0.7, 0.8, 0.9, 0.1], b=[0.6, 0.7, 0.8])
    assert higher("a", "b", "score")(found).answer == Answer.HOLDS
    assert equal("a", "b", "score", 0.11)(found).answer == Answer.HOLDS


def test_a_section_is_one_screen_however_many_questions_there_are(stored: Path) -> None:
    level, ahead = TUNED.claims[0].rule, above("large steps", "test", 0.0)
    many = [Claim(f"Question {number}.", ahead if number % 10 == 0 else level) for number in range(MOST_ROWS + 6)]
    text = verdict_section(replace(TUNED, claims=tuple(many)), read(stored), {})
    assert text.count("**holds**") == 3 and "**no difference**" not in text
    assert "| we ask |" in text
    assert "Of the other 27 of 30 questions: no difference 27. [All of them](details/tuned.md)." in text
    few = verdict_section(replace(TUNED, claims=tuple(many[:MOST_ROWS])), read(stored), {})
    assert few.count("**") == 2 * MOST_ROWS and "Of the other" not in few
