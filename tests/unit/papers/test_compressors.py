"""The study of compressors: what it runs, and what "equal bytes" means."""

from __future__ import annotations

from functools import partial

import fedtempo as ft
from fedtempo.papers.compressors import (
    FEMNIST_BYTES,
    FOUR,
    GROUP,
    LEVELS,
    PLAIN,
    bytes_of_a_run,
    compressor_rules,
    remembering,
    spent_up,
)
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.definitions import Data, Model, sized
from fedtempo.papers.framework.measures import to_target

SCALE = sized(seeds=1, minutes=0, rounds=4, cohort=3)
MODEL = Model("mlp", {"inputs": 64, "hidden": [8], "outputs": 10})
DATA = Data("digits", ft.data.iid(6), 0, {"validation": 0.2, "test": 0.2}, rows=300)


def test_every_compressor_runs_with_and_without_a_memory() -> None:
    rules = compressor_rules()
    assert set(rules) == {PLAIN, *FOUR, *map(remembering, FOUR), "top-k 1 %, EF21"}
    assert {rules[name].feedback for name in FOUR} == {"none"}  # type: ignore[union-attr]
    assert {rules[remembering(name)].feedback for name in FOUR} == {"ef14"}  # type: ignore[union-attr]
    assert repr(rules["signs, EF14"]) == "sign(feedback='ef14')"
    tuned = FEMNIST_BYTES.scales["medium"].tuning
    assert tuned is not None and set(tuned.contestants) == set(rules)


def test_the_budget_is_what_a_run_sends() -> None:
    """The budget that is planned is the ledger's sum, and scores are read off where it is spent."""
    rule = compressor_rules()[LEVELS]
    assert rule is not None
    result = ft.run(
        model=MODEL.maker(None),
        data=DATA.load(None),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2, compress=rule),
        rounds=4,
        cohort=3,
        evaluation=ft.Evaluation(every=1, steps=0),
    )
    budget = bytes_of_a_run(rule, MODEL, SCALE)
    measured = spent_up(result)
    assert measured.values == {"bytes_up": budget}
    curve = measured.curves["by_bytes"]
    assert curve.x == tuple(budget * share / 4 for share in (1, 2, 3, 4))
    read = partial(at_budgets, group=GROUP)
    assert read(result, budgets={"bytes_up": budget / 2}).values[f"{GROUP}/at_bytes_up"] == curve.y[1]
    assert to_target(result, 0.0, GROUP).values["bytes_up_to_target"] == budget / 4
