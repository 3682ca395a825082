"""FedDecay's rules on numbers made by hand, and its runs against the paper's settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedtempo.algorithms import clip_then_decay, fedavg
from fedtempo.papers import REPRODUCTIONS, SCALES
from fedtempo.papers.feddecay.methods import (
    DITTO,
    EXISTING,
    FEDAVG,
    FEDDECAY,
    FEDEM,
    FEDSGD,
    LABELS,
    LINEAR,
    NEW,
    PFEDME,
    VALIDATION,
    MethodRates,
    beats,
    cheaper,
    methods,
    selected,
    similar,
)
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.definitions import Column, Measured, score_column
from fedtempo.papers.framework.outcomes import Outcome, TriedValue, TuningChoice

DATA_SETS = ("feddecay-femnist", "feddecay-sst2", "feddecay-pubmed")


def outcome(validation: dict[str, float], test: dict[str, float]) -> Outcome:
    """Two seeds that differ by a hundredth; every label has 0.5 unless it is named."""

    def measured(label: str, shift: float) -> Measured:
        score = test.get(label, 0.5) + shift
        return Measured({NEW: score, EXISTING: score, VALIDATION: validation.get(label, 0.5)})

    rows = {label: (measured(label, 0.0), measured(label, 0.01)) for label in LABELS}
    return Outcome("small", {NEW: Column("new")}, rows)


def test_beta_is_selected_by_validation_and_not_by_test() -> None:
    seen = outcome({FEDDECAY[0.4]: 0.8, FEDAVG: 0.9}, {FEDDECAY[0.8]: 0.9, FEDDECAY[0.4]: 0.6})
    assert selected(seen) == FEDDECAY[0.4]
    assert beats((FEDAVG, FEDSGD), NEW)(seen).answer == Answer.HOLDS
    lost = outcome({FEDDECAY[0.2]: 0.8}, {FEDDECAY[0.2]: 0.4, FEDDECAY[0.8]: 0.9})
    assert beats((FEDAVG, FEDSGD), NEW)(lost).answer == Answer.FAILS


def test_where_rates_were_tuned_the_trials_select_beta_and_judged_seeds_do_not() -> None:
    judged = outcome({FEDDECAY[0.4]: 0.8}, {})
    trials = {FEDDECAY[beta]: TuningChoice(0.1, (TriedValue(0.1, 0.5 + beta / 10),)) for beta in (0.2, 0.4, 0.6)}
    assert selected(replace(judged, choices=trials)) == FEDDECAY[0.6]


def test_a_method_that_failed_and_stopped_early_is_no_cheaper_one() -> None:
    """pFedMe costs less and is ten points behind; the others cost more and are level."""

    def measured(label: str, seed: int) -> Measured:
        score, flops = (0.6, 1.0) if label == PFEDME else (0.7, 3.0 if label in (DITTO, FEDEM) else 2.0)
        return Measured({EXISTING: score + seed / 1e4, VALIDATION: score, "flops": flops + seed / 100})

    rows = {label: tuple(measured(label, seed) for seed in range(3)) for label in LABELS}
    seen = Outcome("medium", {EXISTING: score_column("existing")}, rows)
    assert cheaper((DITTO, FEDEM, PFEDME), "flops")(seen).answer == Answer.HOLDS
    assert cheaper((PFEDME,), "flops")(seen).answer == Answer.FAILS, "nobody else to compare with"


@pytest.mark.parametrize(("linear", "answer"), [(0.61, Answer.HOLDS), (0.65, Answer.FAILS), (0.5, Answer.FAILS)])
def test_similar_is_within_two_points_on_both_sides(linear: float, answer: Answer) -> None:
    seen = outcome({FEDDECAY[0.6]: 0.8}, {FEDDECAY[0.6]: 0.6, LINEAR: linear})
    assert similar(NEW)(seen).answer == answer


def test_one_rate_for_all_and_rates_of_their_own() -> None:
    made = methods(MethodRates(0.1, {FEDAVG: 0.2}, weight_decay=0.01))
    assert tuple(made) == LABELS
    assert repr(made[FEDAVG]) == repr(clip_then_decay(fedavg(0.2, epochs=3), weight_decay=0.01, max_norm=5.0))
    assert "fedavg(lr=0.1, epochs=1)" in repr(made[FEDSGD])


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_scale_has_every_method_and_the_papers_rows_are_among_them(name: str) -> None:
    chosen = REPRODUCTIONS[name]
    for scale in SCALES:
        assert tuple(run.label for run in chosen.runs(chosen.scales[scale], 0)) == LABELS
    assert set(chosen.reported) <= set(LABELS)
    assert all(0 <= value <= 1 for row in chosen.reported.values() for value in row.values())
