"""Something of one's own against fine-tuning: everybody fine-tunes alike, and nobody is asked what cannot be."""

from __future__ import annotations

import pytest

from fedtempo.papers.control.judging import GAIN
from fedtempo.papers.control.methods import FEDAVG
from fedtempo.papers.control.personal import (
    AFTER,
    ALONE,
    CLAIMS,
    EXISTING_BEFORE,
    FEDPER,
    METHODS,
    PERSONAL,
    RECON,
    better,
    personal_gains,
)
from fedtempo.papers.framework.definitions import Training

MEDIUM = PERSONAL.scales["medium"]


def test_every_method_has_the_same_candidates_on_a_seed_that_is_not_judged() -> None:
    tuning = MEDIUM.tuning
    assert tuning is not None and set(tuning.contestants) == set(METHODS)
    assert len({contestant.values for contestant in tuning.contestants.values()}) == 1
    assert MEDIUM.seeds == 10 < min(tuning.seeds)


def test_everybody_fine_tunes_for_a_round_s_steps_but_who_trains_alone() -> None:
    runs = {run.label: run for run in PERSONAL.runs(MEDIUM, 0) if isinstance(run, Training)}
    assert set(runs) == set(METHODS)
    steps = {label: run.settings["evaluation"].steps for label, run in runs.items()}
    assert steps.pop(ALONE) is None
    assert set(steps.values()) == {MEDIUM["k"]}
    weighted = [run.algorithm.weighting for label, run in runs.items() if label != ALONE]
    assert set(weighted) == {"uniform"}


def test_fedrecon_holds_no_head_so_it_is_not_asked_before_fine_tuning() -> None:
    texts = [claim.text for claim in CLAIMS]
    assert better(FEDPER, FEDAVG, EXISTING_BEFORE) in texts
    assert better(RECON, FEDAVG, EXISTING_BEFORE) not in texts
    assert len(set(texts)) == len(texts) == 26


def test_gains_are_over_fine_tuned_fedavg() -> None:
    found = personal_gains({FEDAVG: {AFTER: 0.5}, FEDPER: {AFTER: 0.6}})
    assert found[FEDPER][GAIN] == pytest.approx(0.1)
    assert found[FEDAVG][GAIN] == 0.0
