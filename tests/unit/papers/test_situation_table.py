"""Which method when: the page's table follows from the stored runs, and its words from the intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedtempo.papers import REPRODUCTIONS, reproduce
from fedtempo.papers.framework.documents import stored_runs
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.situation_table import FULL, HEAD, PAGE, short_table, situation_table, write_situations
from fedtempo.papers.situations import SITUATIONS, Situation
from tests.unit.papers.framework.by_hand import outcome
from tests.unit.papers.framework.test_choosing import TUNED
from tests.unit.papers.framework.test_counting import RESULTS, committed

DOCS = RESULTS.parent
READER = "fedtempo.papers.situation_table.judged_outcome"


def test_the_page_has_the_table_of_the_stored_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page, full, asked = (DOCS / PAGE).read_text(), (RESULTS / FULL).read_text(), set()

    def read_once(reproduction: Reproduction, folder: Path) -> Outcome | None:
        """The tests of verdicts have read the same outcomes, which takes seconds."""
        asked.add((reproduction.name, folder))
        return committed(reproduction.name)

    monkeypatch.setattr(READER, read_once)
    assert "\n".join(short_table(RESULTS, links="results/details/")) in page
    assert "\n".join(situation_table(RESULTS)) in full
    assert asked == {(one.experiment.name, RESULTS) for one in SITUATIONS}


def test_every_situation_names_runs_and_columns_that_are_there() -> None:
    for one in SITUATIONS:
        assert one.experiment is REPRODUCTIONS[one.experiment.name]
        labels = {run.label for run in one.experiment.runs(one.experiment.scales["medium"], 0)}
        assert {*one.contestants, one.reference} <= labels
        assert {one.column, *one.costs} <= set(one.experiment.columns)
    assert len({(one.when, one.experiment.name, one.column) for one in SITUATIONS}) == len(SITUATIONS)
    assert any(one.short for one in SITUATIONS)


def test_a_row_says_who_won_by_how_much_and_how_sure(tmp_path: Path) -> None:
    better = replace(TUNED, name="better")
    one = Situation("always", better, ("small steps", "large steps"), "test", "small steps")
    assert situation_table(tmp_path, [one])[-1] == "Not run yet: `better` (always, ...)."
    reproduce(better, "medium", tmp_path / "out", processes=1, stored=stored_runs(tmp_path, "better"))
    *_, row = situation_table(tmp_path, [one])
    assert row.startswith(
        "| always | nobody; small steps has the highest mean | large steps | +0.0 points [+0.0, +0.0] |"
    )
    assert "| rate 0.1 | the same rounds | no difference, [3 seeds](better.md)" in row


def test_columns_in_percent_and_words_that_all_labels_share(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, mine = "FedAvg, alpha = 1", "FedAvg + FedNAR, alpha = 1"
    one = Situation("always", TUNED, (mine, plain), "score", plain, point=1.0)
    found = outcome(**{plain: [40.0, 41.0, 42.0], mine: [43.0, 44.0, 45.0]})
    monkeypatch.setattr(READER, lambda reproduction, folder: found)
    row, hundredths = (situation_table(RESULTS, [replace(one, point=point)])[-1] for point in (1.0, 0.01))
    assert row.startswith("| always | FedAvg + FedNAR | FedAvg | +3.0 points [+3.0, +3.0] |")
    assert "| +300.0 points [+300.0, +300.0] |" in hundredths


def test_a_lead_of_the_best_of_many_must_be_larger_to_be_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """p is 0.018 for the pair alone: below 0.05 with one rival or two, not with six."""
    rivals = {f"rival {number}": [0.1, 0.1, 0.1] for number in range(6)}
    found = outcome(best=[0.60, 0.63, 0.65], plain=[0.50, 0.50, 0.50], **rivals)
    monkeypatch.setattr(READER, lambda reproduction, folder: found)
    words = {}
    for count in (0, 1, 6):
        contestants = ("best", "plain", *[*rivals][:count])
        (*_, row) = situation_table(RESULTS, [Situation("always", TUNED, contestants, "score", "plain")])
        words[count] = row.rpartition(" | ")[2].partition(",")[0]
    assert words == {0: "sure", 1: "sure", 6: "likely"}


def test_the_short_table_has_what_is_decided_and_the_full_one_all(tmp_path: Path) -> None:
    better = replace(TUNED, name="better")
    stored = stored_runs(tmp_path / "results", "better")
    reproduce(better, "medium", tmp_path / "out", processes=1, stored=stored)
    contestants = ("small steps", "large steps")
    level = Situation("always", better, contestants, "test", "small steps", short=True)
    full_only = replace(level, when="never", short=False)
    unknown = replace(level, when="some day", experiment=replace(TUNED, name="not run"))
    lines = short_table(tmp_path / "results", [level, full_only, unknown], "below/")
    assert len(lines) == len(HEAD) + 1
    assert lines[-1].startswith("| always | nobody;") and "(below/better.md)" in lines[-1]


def test_the_page_is_a_table_of_twenty_rows_at_most() -> None:
    page = (DOCS / PAGE).read_text()
    table = page[page.index("<!-- situations: begin") : page.index("<!-- situations: end")]
    assert 5 < table.count("\n| ") - len(HEAD) <= 20


def test_the_table_is_put_into_a_page(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results"
    page.write_text("# Title\n\nWords.\n")
    write_situations(page, results)
    assert page.read_text().startswith("# Title\n\nWords.\n\n<!-- situations: begin -->\n")
    assert "<!-- situations: begin -->\n| when |" in (results / FULL).read_text()
