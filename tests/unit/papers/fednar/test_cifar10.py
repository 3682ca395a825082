"""Table 1's claims on numbers made by hand, and what is tuned for them."""

from __future__ import annotations

from fedtempo.papers.fednar.cifar10 import PAIRS, TABLE
from fedtempo.papers.fednar.measuring import ACCURACY, TO_TARGET
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Curve, Measured
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import verdicts
from fedtempo.papers.framework.reproduction import gathered

FLAT = Curve(tuple(range(20, 180, 20)), (20.0, 40.0, 40.0, 40.0, 40.0, 40.0, 40.0, 40.0))


def seeds_of(gain: float, skewed: float, rounds: float, curve: Curve = FLAT) -> list[dict[str, Measured]]:
    """Three seeds; the plug-in adds `gain`, `skewed` more at alpha = 0.3, and needs `rounds` fewer to the target."""
    seeds = []
    for seed in range(3):
        noise = 0.01 * seed
        rows = {}
        for labels in PAIRS.values():
            for mine, other in labels.items():
                extra = skewed if "0.3" in mine else 0.0
                values = {ACCURACY: 40.0 + gain + extra + noise, TO_TARGET: 100 - rounds + noise}
                rows[mine] = Measured(values, {ACCURACY: curve})
                rows[other] = Measured({ACCURACY: 40.0 + noise**2, TO_TARGET: 100.0}, {ACCURACY: curve})
        seeds.append(rows)
    return seeds


def outcome(gain: float, skewed: float, rounds: float, curve: Curve = FLAT) -> Outcome:
    return gathered(TABLE, "medium", seeds_of(gain, skewed, rounds, curve))


def answers(seen: Outcome) -> list[Answer]:
    return [verdict.answer for verdict in verdicts(TABLE, seen).values()]


def test_what_holds_what_fails_and_what_makes_no_difference() -> None:
    assert answers(outcome(3.0, 3.0, 30.0)) == [Answer.HOLDS] * 12
    assert answers(outcome(0.0, 0.0, 0.0)) == [Answer.SAME] * 12
    assert set(answers(outcome(-3.0, -3.0, -30.0))) == {Answer.FAILS}


def test_seeds_of_one_backbone_alone_count_for_its_own_claim() -> None:
    seeds = seeds_of(3.0, 3.0, 30.0)
    momentum = {mine for pair in PAIRS["FedAvgM"].items() for mine in pair}
    more = [{label: one for label, one in seed.items() if label in momentum} for seed in seeds]
    found = gathered(TABLE, "medium", [*seeds, *more])
    on_six = {
        column: {label for label in found.labels if len(found.values(label, column)) == 6}
        for column in ("of_all", "of_backbone")
    }
    assert on_six == {"of_all": set(), "of_backbone": momentum}
    assert answers(found) == [Answer.HOLDS] * 12


def test_scores_wait_for_convergence_and_rounds_to_a_target_do_not() -> None:
    rising = Curve(FLAT.x, tuple(x / 4 for x in FLAT.x))
    found = answers(outcome(3.0, 3.0, 30.0, rising))
    assert found == [Answer.IMPROVING] * 8 + [Answer.HOLDS] * 4


def test_every_method_has_the_same_number_of_candidates() -> None:
    medium = TABLE.scales["medium"]
    assert medium.tuning is not None
    assert {len(contestant.values) for contestant in medium.tuning.contestants.values()} == {4}
    assert len(medium.tuning.contestants) == 12
