"""The other methods with one shared model: as many candidates for each, and fair methods judged by whom they serve."""

from __future__ import annotations

from dataclasses import replace

from fedtempo.papers.control.judging import ahead
from fedtempo.papers.control.methods import FEDAVG
from fedtempo.papers.control.neighbours import (
    ADAGRAD,
    AFL,
    AMONG_WORST,
    BASELINES,
    CLAIMS,
    CONTENDERS,
    FAIR,
    METHODS,
    NEIGHBOURS,
    SGD,
    YOGI,
)

MEDIUM = NEIGHBOURS.scales["medium"]


def test_every_method_has_as_many_candidates_on_a_seed_that_is_not_judged() -> None:
    tuning = MEDIUM.tuning
    assert tuning is not None and set(tuning.contestants) == set(METHODS)
    assert {len(contestant.values) for contestant in tuning.contestants.values()} == {4}
    assert MEDIUM.seeds == 10 < min(tuning.seeds)


def test_what_is_tuned_is_the_clients_rate_and_for_two_servers_theirs() -> None:
    for label in METHODS:
        made = {run.label: repr(run) for run in NEIGHBOURS.runs(replace(MEDIUM, chosen={label: 0.077}), 0)}
        assert [name for name, text in made.items() if "0.077" in text] == [label]
        server = label in (YOGI, ADAGRAD)
        assert f"{'server_lr' if server else 'lr'}=0.077" in made[label]
        assert not server or "fedyogi(lr=0.15" in made[label] or "fedadagrad(lr=0.15" in made[label]


def test_fair_methods_are_also_asked_about_the_worst_served_tenth() -> None:
    texts = [claim.text for claim in CLAIMS]
    assert len(set(texts)) == len(texts)
    assert {ahead(label, FEDAVG, AMONG_WORST) for label in FAIR} <= set(texts)
    assert all(ahead(label, BASELINES.get(label, FEDAVG)) in texts for label in CONTENDERS)
    assert ahead(AFL, SGD, AMONG_WORST) in texts, "who takes one step is compared with who takes one step"
