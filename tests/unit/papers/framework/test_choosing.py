"""Tuning before judging: seeds of its own, a plan that is written first, labels that are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.papers import REPRODUCTIONS, reproduce
from fedtempo.papers.framework.claims import Answer, Claim, higher
from fedtempo.papers.framework.definitions import (
    FIRST_TUNING_SEED,
    Calculation,
    Column,
    Curve,
    Measured,
    Scale,
    Settling,
    Training,
    TunedSetting,
    Tuning,
    score_column,
    sized,
)
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import outcome_record, page, verdicts
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.study import PLAN

BEST = {"small steps": 0.1, "large steps": 1.0}
VALUES = (0.01, 0.1, 1.0, 3.0)


def measure(label: str, rate: float, seed: int) -> Measured:
    """A score that is best at the label's own rate; a rate of 3 diverges."""
    if rate == 3.0:
        raise ft.TrainingError("run stopped: the model is not finite")
    found = 0.9 - abs(math.log10(rate / BEST[label])) / 10 + seed % 7 / 1000
    curve = Curve((1, 2, 3, 4), (0.1, 0.5, found, found))
    return Measured({"validation": found, "test": found - 0.01}, {"validation": curve})


def runs(scale: Scale, seed: int) -> list[Calculation]:
    return [
        Calculation(label, {"label": label, "rate": scale.rate(label, 1.0), "seed": seed}, measure) for label in BEST
    ]


TUNING = Tuning({label: TunedSetting(label, VALUES) for label in BEST}, "validation", seeds=(10_000, 10_001))
MEDIUM = sized(3, 1, TUNING, Settling("validation", 0.005))
TUNED = Reproduction(
    name="tuned",
    paper="compositions",
    source="Nowhere",
    title="a score that depends on the rate",
    scales={**dict.fromkeys(("smoke", "small", "paper"), sized(1, 1)), "medium": MEDIUM},
    runs=runs,
    columns={"test": score_column("test")},
    claims=(Claim("Large steps are better.", higher("large steps", "small steps", "test")),),
)


def test_each_contestant_gets_its_own_best_rate(tmp_path: Path) -> None:
    outcome = reproduce(TUNED, "medium", tmp_path, processes=1)
    assert {name: choice.value for name, choice in outcome.choices.items()} == BEST
    assert outcome.unbounded == ()
    assert outcome.interval("small steps", "test").mean == pytest.approx(0.89 + 0.001)
    assert [trial.score for trial in outcome.choices["large steps"].trials][1:3] == pytest.approx([0.8045, 0.9045])
    assert math.isnan(outcome.choices["large steps"].trials[3].score), "a rate that diverges has no score"


def test_a_grid_that_ends_at_its_best_rate_decides_nothing(tmp_path: Path) -> None:
    """Without 0.01, 0.1 is the smallest rate of small steps, and ten points better than the next."""
    tuning = Tuning({label: TunedSetting(label, VALUES[1:]) for label in BEST}, "validation")
    cut = replace(TUNED, scales={**TUNED.scales, "medium": replace(MEDIUM, tuning=tuning)})
    outcome = reproduce(cut, "medium", tmp_path / "cut", processes=1)
    assert outcome.unbounded == ("small steps",)
    (verdict,) = verdicts(cut, outcome).values()
    assert verdict.answer == Answer.UNBOUNDED
    assert "no bound for the rate of small steps" in verdict.reason
    assert "| small steps | 0.1 (no bound) |" in page(cut, outcome, "today", {})
    level = replace(cut, scales={**cut.scales, "medium": replace(MEDIUM, tuning=replace(tuning, tie=0.11))})
    assert reproduce(level, "medium", tmp_path / "level", processes=1).unbounded == (), "a tie is no edge"


def test_at_a_common_rate_the_answer_would_be_another_one(tmp_path: Path) -> None:
    tuned = verdicts(TUNED, reproduce(TUNED, "medium", tmp_path / "tuned", processes=1))
    untuned = replace(TUNED, scales={**TUNED.scales, "small": sized(3, 1)})
    common = verdicts(untuned, reproduce(untuned, "small", tmp_path / "common", processes=1))
    assert [verdict.answer for verdict in common.values()] == [Answer.HOLDS]
    assert [verdict.answer for verdict in tuned.values()] == [Answer.SAME]


def test_no_seed_is_tuned_on_and_judged(tmp_path: Path) -> None:
    reproduce(TUNED, "medium", tmp_path, processes=1)
    plan = json.loads((tmp_path / PLAN).read_text())
    ran = [json.loads(path.read_text())["seed"] for path in (tmp_path / "runs").iterdir()]
    assert sorted(set(ran)) == sorted(plan["judged_seeds"] + plan["tuning_seeds"]) == [0, 1, 2, 10_000, 10_001]
    assert not set(plan["judged_seeds"]) & set(plan["tuning_seeds"])
    assert len([seed for seed in ran if seed >= FIRST_TUNING_SEED]) == 2 * 4 * 2


def test_tuning_seeds_of_every_reproduction_are_out_of_reach() -> None:
    for reproduction in REPRODUCTIONS.values():
        for scale in reproduction.scales.values():
            assert scale.seeds < FIRST_TUNING_SEED
            assert scale.tuning is None or min(scale.tuning.seeds) >= FIRST_TUNING_SEED
    with pytest.raises(ft.ConfigError, match="tuning seeds must be >= 10000"):
        replace(TUNING, seeds=(3,))


@pytest.mark.parametrize("name", [one.name for one in REPRODUCTIONS.values() if one.scales["medium"].tuning])
def test_a_tuned_rate_goes_to_the_labels_that_it_says_and_to_no_other(name: str) -> None:
    """With `--only`, a label whose contestant does not name it would run untuned."""
    chosen = REPRODUCTIONS[name]
    scale = chosen.scales["medium"]
    assert scale.tuning is not None
    contestants = scale.tuning.contestants

    def planned(rates: dict[str, float]) -> dict[str, str]:
        runs = chosen.runs(replace(scale, chosen=rates), 0)
        return {run.label: repr((run.algorithm, run.settings)) for run in runs if isinstance(run, Training)}

    plain = planned(dict.fromkeys(contestants, 0.0111))
    first_and_last = [*contestants.items()][:: max(1, len(contestants) - 1)]
    for key, contestant in first_and_last:
        tuned = planned({**dict.fromkeys(contestants, 0.0111), key: 0.0123})
        moved = {label for label in plain if tuned[label] != plain[label]}
        assert moved == {contestant.label, *contestant.also} & set(plain)


def test_the_plan_stands_before_the_first_run(tmp_path: Path) -> None:
    def broken(label: str, rate: float, seed: int) -> Measured:
        assert (tmp_path / PLAN).exists()
        raise ft.DataError("no rows")

    failing = replace(TUNED, runs=lambda scale, seed: [replace(one, compute=broken) for one in runs(scale, seed)])
    with pytest.raises(ft.DataError, match="no rows"):
        reproduce(failing, "medium", tmp_path, processes=1)
    plan = json.loads((tmp_path / PLAN).read_text())
    assert plan["tuned"]["small steps"] == {"label": "small steps", "values": list(VALUES), "also": []}
    assert plan["claims"] == ["Large steps are better."]
    assert plan["converged_if"]["within"] == 0.005


def test_a_changed_plan_is_refused_and_more_seeds_are_not(tmp_path: Path) -> None:
    reproduce(TUNED, "medium", tmp_path, processes=1)
    assert reproduce(TUNED, "medium", tmp_path, processes=1, seeds=4).seeds == 4
    assert reproduce(TUNED, "medium", tmp_path, processes=1, seeds=2).seeds == 2
    assert json.loads((tmp_path / PLAN).read_text())["judged_seeds"] == [0, 1, 2, 3]
    other = replace(TUNED, claims=(Claim("Small steps are better.", TUNED.claims[0].rule),))
    with pytest.raises(
        ft.OutputError, match=r"claims is \['Large steps are better\.'\], .* Got \['Small steps are better\.'\]"
    ):
        reproduce(other, "medium", tmp_path, processes=1)
    (tmp_path / PLAN).write_text("{")
    with pytest.raises(ft.OutputError, match=r"a folder whose plan\.json can be read"):
        reproduce(TUNED, "medium", tmp_path, processes=1)


def test_the_same_command_twice_gives_the_same_digits(tmp_path: Path) -> None:
    texts = [
        json.dumps(outcome_record(TUNED, reproduce(TUNED, "medium", tmp_path / name, processes=count)))
        for name, count in (("a", 1), ("b", 2))
    ]
    assert texts[0] == texts[1]


def test_claims_about_labels_that_were_left_out_say_so(tmp_path: Path) -> None:
    outcome = reproduce(TUNED, "medium", tmp_path, processes=1, only=["small steps"])
    (verdict,) = verdicts(TUNED, outcome).values()
    assert outcome.labels == ("small steps",)
    assert (verdict.answer, verdict.reason) == (Answer.NOT_RUN, "large steps was not run")
    assert set(outcome.choices) == {"small steps"}, "what nobody needs is not tuned"
    with pytest.raises(ft.ConfigError, match="label"):
        reproduce(TUNED, "medium", tmp_path, processes=1, only=["no such"])


def test_models_that_still_improve_are_not_compared(tmp_path: Path) -> None:
    def rising(label: str, rate: float, seed: int) -> Measured:
        found = measure(label, min(rate, 1.0), seed).values
        return Measured(found, {"validation": Curve((1, 2, 3, 4), (0.1, 0.3, 0.5, 0.7))})

    short = replace(TUNED, runs=lambda scale, seed: [replace(one, compute=rising) for one in runs(scale, seed)])
    (verdict,) = verdicts(short, reproduce(short, "medium", tmp_path, processes=1)).values()
    assert verdict.answer == Answer.IMPROVING
    assert "large steps still improves by 0.2 in its last quarter" in verdict.reason


@pytest.mark.parametrize(("improving", "answer"), [("a", Answer.HOLDS), ("b", Answer.IMPROVING)])
def test_a_lead_waits_only_for_the_one_behind(improving: str, answer: Answer) -> None:
    """`a` leads by two points. If it improves further its lead grows; if `b` does, the lead may be lost."""
    rising, flat = (Curve((1, 2, 3, 4), (0.1, 0.3, 0.5, last)) for last in (0.7, 0.5))

    def seen(column: Column) -> Outcome:
        measured = {
            label: tuple(
                Measured({"score": score + seed / 1e4}, {"validation": rising if label == improving else flat})
                for seed in range(3)
            )
            for label, score in {"a": 0.82, "b": 0.8}.items()
        }
        return Outcome("medium", {"score": column}, measured, Settling("validation", within=0.005))

    ahead, behind = higher("a", "b", "score"), higher("b", "a", "score")
    assert ahead(seen(score_column("score"))).answer == answer
    assert behind(seen(score_column("score"))).answer == (Answer.FAILS if answer == Answer.HOLDS else answer)
    assert ahead(seen(score_column("a gain", of_one_run=False))).answer == Answer.IMPROVING


def test_the_page_shows_what_tuning_chose_and_the_quick_look_judges_nothing(tmp_path: Path) -> None:
    tuned = page(TUNED, reproduce(TUNED, "medium", tmp_path, processes=1), "today", {})
    assert "| small steps | 0.1 | 0.01: 0.8045, 0.1: 0.9045, 1: 0.8045, 3: nan |" in tuned
    assert "which are not judged" in tuned
    quick = page(TUNED, reproduce(TUNED, "small", tmp_path / "small", processes=1), "today", {})
    assert "nothing is judged here" in quick
    assert "Large steps are better" not in quick


def test_values_are_plain(tmp_path: Path) -> None:
    record: Mapping[str, object] = outcome_record(TUNED, reproduce(TUNED, "medium", tmp_path, processes=1))
    assert record["tuned"]["small steps"]["tried"][3] == [3.0, None]  # type: ignore[index]
