"""Tables: runs under one label are averaged over their seeds; numbers with units; names cannot run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fedtempo.errors import ConfigError
from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.report.tables import result_table


def users(*accuracies: float) -> UserScores:
    return UserScores(np.arange(len(accuracies)), np.ones(len(accuracies)), {"accuracy": np.array(accuracies)})


@dataclass
class Run:
    """What a row is made of."""

    scores: Scores | None
    costs: Costs


def run(*accuracies: float, steps: int = 10) -> Run:
    return Run(Scores("test", users(*accuracies), users(*(a + 0.1 for a in accuracies))), Costs(steps=steps))


def test_seeds_of_one_label_are_averaged() -> None:
    """Means 0.5 and 0.7 over users: 0.6; half of the interval is t(1) s / sqrt(2) = 12.706 * 0.1 = 1.271."""
    table = result_table([run(0.4, 0.6), run(0.6, 0.8), run(0.9, 0.9, steps=2000)], ["a", "a", "b"])
    (_, first), (_, second) = table.rows
    before, after = first["existing_before/mean"], first["existing_after/mean"]
    assert before.by_seed == pytest.approx((0.5, 0.7)) and (before.text(), before.spread()) == ("0.600", "1.271")
    assert after.text() == "0.700"
    assert (second["existing_before/mean"].text(), second["steps"].text()) == ("0.900", "2.0k")
    assert table.title == "accuracy on the test part" and "over 1 to 2 seeds" in str(table)


def test_records_hold_a_list_over_seeds() -> None:
    records = result_table([run(0.5), run(0.7)], ["a", "a"]).records()
    assert [record["label"] for record in records] == ["a"]
    assert records[0]["steps"] == [10.0, 10.0]


def test_runs_without_scores_show_their_costs() -> None:
    table = result_table([Run(None, Costs(steps=3, bytes_up=2000, bytes_down=3000))], ["a"])
    assert (table.title, [column.key for column in table.columns]) == ("costs", ["bytes", "steps", "flops"])
    assert "5.0k" in table.text(20)


def test_every_statistic_can_be_chosen() -> None:
    """Twenty users 0.05 ... 1.00: the worst tenth is the mean of the two worst."""
    table = result_table([run(*[0.05 * k for k in range(1, 21)])], ["a"])
    chosen = table.choose("existing_before/worst_tenth", "existing_before/worst", "bytes")
    assert str(chosen).splitlines()[-1].split() == ["a", ".075", ".050", "0"]
    with pytest.raises(ConfigError, match=r"existing_before/wurst.*Did you mean 'existing_before/worst'"):
        table.choose("existing_before/wurst")


def test_who_the_worst_are_is_said() -> None:
    """Two users have no decile: the column is the worse of the two. Ten have one."""
    few = result_table([run(0.5, 0.6), run(0.7, 0.8)], ["a", "a"])
    assert "of 2" in str(few) and "bottom" not in str(few)
    assert "bottom" in str(result_table([run(*[0.5] * 10)], ["a"]))


def test_what_cannot_be_told_from_the_best_is_marked() -> None:
    runs = [run(*[value] * 2) for value in (0.9, 0.9, 0.9, 0.8, 0.6, 0.7, 0.80, 0.81, 0.79)]
    table = result_table(runs, [label for label in ("best", "close", "apart") for _ in range(3)])
    assert [row["existing_after/mean"].best for _, row in table.rows] == [True, True, False]


def test_a_narrow_terminal_has_names_and_numbers_whole() -> None:
    scores = Scores("test", *(users(0.4, 0.6) for _ in range(4)))
    table = result_table([Run(scores, Costs(steps=3200, bytes_up=10**9))], ["feddecay(lr=0.1, beta=0.6, steps=10)"])
    assert "feddecay(lr=0.1, beta=0.6, steps=10)" in table.text() and "no room" not in table.text()
    for width in (80, 60, 50):
        text = table.text(width)
        assert max(map(len, text.splitlines())) <= width and "…" not in text
        assert "".join(line[:12].strip() for line in text.splitlines()).count("feddecay") == 1
    assert "no room here for: std, worst of 2, before" in table.text(60) and ".500" in table.text(50)
