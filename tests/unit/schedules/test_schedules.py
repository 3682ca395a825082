"""Schedules: their formulas, products, printing, and the way to TOML and back."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace

import pytest
import tomli_w
import torch
from torch.func import vmap

from fedtempo import schedules as s
from fedtempo.config.construct import make_value
from fedtempo.errors import ConfigError
from fedtempo.schedules import LanePosition, Now, at_step, constant, from_config, per_round, qsr, to_config
from fedtempo.schedules.schedule import SCHEDULES
from fedtempo.schedules.totals import follows_rounds

EXAMPLES = {
    "constant": (s.constant(0.3), Now(round=7, step=3), 0.3),
    "per_round": (s.per_round(0.1, 0.5), Now(round=2), 0.025),
    "per_step": (s.per_step(2.0, 0.5), Now(round=9, step=3), 0.25),
    "per_step of zero": (s.per_step(2.0, 0.0), Now(step=0), 2.0),
    "per_step of zero, later": (s.per_step(2.0, 0.0), Now(step=1), 0.0),
    "per_step by epoch": (s.per_step(2.0, 0.5, per="epoch"), Now(step=9, epoch=1), 1.0),
    "linear": (s.linear_in_round(1.0, 0.6), Now(step=2), 1 - 2 * 0.4),
    "linear, at the floor": (s.linear_in_round(1.0, 0.6), Now(step=3), 0.0),
    "inverse_time": (s.inverse_time(3.0, 2.0), Now(round=4), 0.5),
    "cosine, start": (s.cosine(1.0, 10), Now(round=0), 1.0),
    "cosine, middle": (s.cosine(1.0, 10, final=0.2), Now(round=5), 0.6),
    "cosine, after": (s.cosine(1.0, 10, final=0.2), Now(round=50), 0.2),
    "piecewise": (s.piecewise(1.0, {5: 0.1, 8: 0.5}), Now(round=8), 0.05),
    "sequence": (s.sequence([1.0, 0.4]), Now(step=5), 0.4),
    "sequence over rounds": (s.sequence([3, 2, 1], over="round"), Now(round=1), 2.0),
    "product": (s.per_round(0.1, 0.5) * s.per_step(1.0, 0.5) * 2.0, Now(round=1, step=1), 0.05),
    "warmup": (s.warmup(1.0, 4), Now(round=1), 0.5),
    "wsd": (s.wsd(1.0, 6, warmup=2, decay=4, final=0.2), Now(round=4), 0.6),
    "then": (s.then(s.per_round(1.0, 0.5), 3, 0.1), Now(round=2), 0.25),
    "then, after": (s.then(s.per_round(1.0, 0.5), 3, 0.1), Now(round=3), 0.1),
    "by_loss": (s.by_loss(10, 0.5), Now(loss_ratio=0.25), 5.0),
    "by_loss never grows": (s.by_loss(10), Now(loss_ratio=3.0), 10.0),
    "on_plateau": (s.on_plateau(10, 0.1), Now(plateaus=2), 0.1),
    "inverse_participation": (s.inverse_participation(), Now(clients=50, cohort=10), 5.0),
    "data_share": (s.data_share(), Now(samples=5, total_samples=20), 0.25),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_value(name: str) -> None:
    schedule, now, expected = EXAMPLES[name]
    assert schedule.at(now) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", EXAMPLES)
def test_toml_and_back(name: str) -> None:
    schedule, now, _ = EXAMPLES[name]
    text = tomli_w.dumps({"lr": s.to_config(schedule)})
    again = s.from_config(tomllib.loads(text)["lr"])
    assert again == schedule
    assert again.at(now) == schedule.at(now)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_prints_as_the_call_that_made_it(name: str) -> None:
    schedule, now, _ = EXAMPLES[name]
    remade = eval(repr(schedule), vars(s))
    assert remade.at(now) == schedule.at(now)


def test_clients_at_different_places_have_their_own_value() -> None:
    places = (Now(epoch=0), Now(epoch=2))
    schedule = s.per_step(1.0, 0.5, per="epoch")
    values = vmap(lambda lane: schedule(LanePosition(places, lane)) * torch.ones(3))(torch.tensor([1, 0, 1]))
    assert torch.equal(values, torch.tensor([0.25, 1.0, 0.25], dtype=values.dtype)[:, None].expand(3, 3))


def test_places_of_steps() -> None:
    """Seven steps of three batches per epoch: epochs 0, 0, 0, 1, 1, 1, 2, and the last step ends one too."""
    places = [at_step(Now(), step, 7, 3) for step in range(7)]
    assert [p.epoch for p in places] == [0, 0, 0, 1, 1, 1, 2]
    assert [p.ends_epoch for p in places] == [False, False, True, False, False, True, True]


@pytest.mark.parametrize(("value", "expected"), [(10.000000001, 10), (10.1, 11), (9.999999999999, 10), (0.2, 1)])
def test_whole_number_guards_against_rounding(value: float, expected: int) -> None:
    assert s.whole_number(value) == expected


def test_decaying_k_of_the_papers_toy() -> None:
    """4,586 of 30,000 steps, and K = 1 from round 460 on (ALGORITHMS 1.7)."""
    steps = [s.whole_number(s.decaying_k(10, 0.995).at(Now(round=t))) for t in range(3000)]
    assert sum(steps) == 4586
    assert steps.index(1) == 460


WRONG = {
    "NaN": lambda: s.constant(math.nan),
    "a bool": lambda: s.constant(True),
    "beta above one": lambda: s.linear_in_round(1.0, 1.5),
    "negative factor": lambda: s.per_round(1.0, -0.5),
    "rate of zero": lambda: s.decaying_k(10, 0.0),
    "no values": lambda: s.sequence([]),
    "unknown name": lambda: s.from_config({"schedule": "per_rund", "value": 1}),
    "unknown setting": lambda: s.from_config({"schedule": "per_round", "valu": 1, "factor": 1}),
    "function to TOML": lambda: s.to_config(s.as_schedule(lambda now: 1.0)),
    "not finite later": lambda: s.as_schedule(lambda now: math.inf).at(Now()),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        WRONG[name]()


def test_the_setting_that_is_wrong_is_named() -> None:
    with pytest.raises(ConfigError, match=r"final must be a finite number\. Got 'x'\."):
        s.cosine(1.0, 10, final="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [s.per_round(0.1, 2.0), s.per_round(1, 2) * 3, s.as_schedule(lambda now: 1e9**99)])
def test_a_number_that_no_float_holds_is_infinite(schedule: s.Schedule) -> None:
    with pytest.raises(ConfigError, match=r"must be finite\. Got inf at round 1100, step 0\."):
        schedule.at(Now(round=1100))


@pytest.mark.parametrize("name", sorted({*SCHEDULES, "product"}))
def test_a_users_function_may_have_the_name_of_one_of_ours(name: str) -> None:
    def mine(now: Now) -> float:
        return 0.5

    mine.__name__ = name
    schedule = s.as_schedule(mine)
    assert (schedule * 2.0).at(Now()) == 1.0 and repr(schedule) == f"own_{name}()" and not schedule.is_constant
    with pytest.raises(ConfigError, match="was made from a function and has no TOML form"):
        to_config(schedule)


NO_SCHEDULES = {"as_schedule", "checked_rate", "from_config", "product"}
"""Functions that return a schedule and are none: what they are given names it."""


def test_every_schedule_of_ours_is_registered_and_public() -> None:
    made = {n for n, f in vars(s).items() if getattr(f, "__annotations__", {}).get("return") == "Schedule"}
    assert made - NO_SCHEDULES == set(SCHEDULES) <= set(s.__all__)
    assert set(SCHEDULES) <= {schedule.name for schedule, *_ in EXAMPLES.values()} | {"qsr", *OF_DEVICES, *OF_PAPERS}


OF_DEVICES, OF_PAPERS = {"finish_by", "over_time", "by_own_loss"}, {"decaying_k", "decaying_lr"}
"""Whose values are tested elsewhere."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_follows_from_the_round_alone_is_said_when_it_is_registered(name: str) -> None:
    """It has the same number at every step and for every client; the sums of such schedules are remembered."""
    schedule, now, expected = EXAMPLES[name]
    elsewhere = [replace(now, **{field: other}) for field, others in ELSEWHERE.items() for other in others]
    alike = all(schedule.at(place) == pytest.approx(expected, abs=1e-12) for place in elsewhere)
    assert follows_rounds(schedule) == alike


ELSEWHERE = {"step": (0, 1, 2), "epoch": (0, 3), "samples": (7,), "total_samples": (29,), "loss_ratio": (0.125,)}
ELSEWHERE |= {"plateaus": (1,), "time": (9.0,), "cohort": (3.0,), "clients": (11,), "last_loss": (0.3,)}


def test_decaying_k_goes_by_its_name_in_a_file() -> None:
    table = {"schedule": "decaying_k", "k0": 10, "rate": 0.9}
    assert from_config(table) == make_value("steps", table) == s.decaying_k(10, 0.9)
    assert make_value("lr", {"schedule": "decaying_lr", "value": 0.1, "rate": 0.9}) == s.decaying_lr(0.1, 0.9)
    with pytest.raises(ConfigError, match=r"steps\.rate must be a number in \(0, 1\]"):
        make_value("steps", {**table, "rate": 1.5})


def test_a_sequence_names_what_it_may_run_over() -> None:
    with pytest.raises(ConfigError, match="over must be 'step', 'epoch' or 'round'"):
        s.sequence([1, 2], over="client")


def test_the_nearest_schedule_is_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'per_round'"):
        s.from_config({"schedule": "per_rund"})


def test_steps_from_the_rate():
    """lr halved: four times the steps; never fewer than k_base nor more than `most`; power 3: eight times."""
    halving = per_round(0.2, 0.5)
    at = lambda rule, *rounds: [rule.at(Now(round=t)) for t in rounds]  # noqa: E731
    assert at(qsr(halving, alpha=0.4, most=100), 0, 1, 2, 3, 9) == [4, 16, 64, 100, 100]
    assert at(qsr(halving, alpha=0.4, power=3, most=1000), 0, 1) == [8, 64]
    assert at(qsr(halving, alpha=0.1, k_base=3, most=10), 0, 1) == [3, 3]
    assert at(qsr(0.1, alpha=0.3), 0) == [9], "0.3 / 0.1 is a little below 3"
    assert at(qsr(halving, alpha=0.4, budget=30), 0, 1, 2, 3) == [4, 16, 10, 1]
    assert at(qsr(halving, alpha=0.4, most=100, warmup_steps=5, warmup_k=3), 0, 1, 2) == [3, 3, 64]
    assert at(qsr(constant(0.0) * halving, alpha=0.4, most=7), 0) == [7]
    assert at(qsr(per_round(0.1, 0.5), alpha=0.4, most=100), 510, 511, 1000, 2000) == [100] * 4, "the square overflows"


def test_a_warm_up_takes_the_steps_of_the_first_round_after_it():
    """The rate rises for two rounds and then halves. Without the rule the small rates would ask for many steps."""
    rising = s.sequence([0.05, 0.1, 0.2, 0.1, 0.05], over="round")
    at = lambda rule, rounds: [rule.at(Now(round=t)) for t in range(rounds)]  # noqa: E731
    warm = qsr(rising, alpha=0.4, most=1000, warmup_rounds=2)
    assert at(warm, 5) == [4, 4, 4, 16, 64]
    assert at(qsr(rising, alpha=0.4, most=1000), 3) == [64, 16, 4]
    assert at(qsr(rising, alpha=0.4, budget=30, warmup_rounds=2), 6) == [4, 4, 4, 16, 2, 1]
    assert from_config(to_config(warm)) == warm


def test_steps_from_the_rate_are_no_factor_of_decaying_k():
    rule = qsr(per_round(0.2, 0.5), alpha=0.4, most=50)
    for multiply in (lambda: rule * s.decaying_k(8, 0.9), lambda: per_round(1.0, 0.5) * rule):
        with pytest.raises(ConfigError, match="qsr must be the only schedule of the steps"):
            multiply()
    assert (2 * rule).at(Now()) == 8


def test_steps_from_the_rate_need_a_bound_and_have_a_toml_form():
    with pytest.raises(ConfigError, match="most or budget must be given"):
        qsr(per_round(0.2, 0.5), alpha=0.4)
    with pytest.raises(ConfigError, match=r"k_base must be at most 5 \(most\). Got 10."):
        qsr(0.1, 0.4, k_base=10, most=5)
    with pytest.raises(ConfigError, match="warmup_k must be given with warmup_steps"):
        qsr(0.1, alpha=0.4, warmup_steps=5)
    with pytest.raises(ConfigError, match="warmup_rounds must be left out where warmup_steps are given"):
        qsr(0.1, alpha=0.4, warmup_steps=5, warmup_k=2, warmup_rounds=3)
    rule = qsr(per_round(0.2, 0.5), alpha=0.4, k_base=2, most=50)
    table = to_config(rule)
    assert table["lr"] == {"schedule": "per_round", "value": 0.2, "factor": 0.5}
    assert from_config(table) == rule
    assert make_value("steps", table) == rule


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rounds": 6, "warmup": 2, "decay": 4, "final": 0.2}, [0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        ({"rounds": 4}, [1.0] * 6),
        ({"rounds": 4, "decay": 1}, [1.0, 1.0, 1.0, 1.0, 0.0]),  # the last round of the run has the peak
        ({"rounds": 4, "decay": 4, "shape": "sqrt"}, [1.0, 1 - 0.5, 1 - 0.5**0.5, 1 - 0.75**0.5, 0.0]),
        ({"rounds": 4, "decay": 4, "shape": "cosine"}, [1.0, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0.0]),
    ],
)
def test_wsd_by_hand(settings, expected):
    found = [s.wsd(1.0, **settings).at(Now(round=t)) for t in range(len(expected))]
    # `sqrt` and `cosine` of four rounds fall in the quarters 1/4, 2/4, 3/4, 1 from round 1 on.
    assert found == pytest.approx(expected)


def test_stages_by_steps_count_the_steps_of_the_whole_run():
    rate = s.warmup(1.0, 10, over="step")
    assert [rate.at(Now(round=1, step=k, earlier=4)) for k in (0, 5, 6)] == pytest.approx([0.5, 1.0, 1.0])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: s.wsd(1.0, 4, warmup=3, decay=2), "warmup + decay must be at most rounds (4). Got 3 + 2."),
        (lambda: s.wsd(1.0, 4, final=2.0), "final must be a share of the peak in [0, 1]. Got 2.0."),
        (lambda: s.wsd(1.0, 4, shape="cubic"), "shape must be 'linear' or 'sqrt' or 'cosine'. Got 'cubic'."),
        (lambda: s.warmup(1.0, 0), "rounds must be an int >= 1. Got 0."),
        (lambda: s.warmup(1.0, 3, over="epoch"), "over must be 'round' or 'step'. Got 'epoch'."),
        (lambda: s.then(1.0, 0, 2.0), "until must be an int >= 1. Got 0."),
    ],
)
def test_stages_refuse(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == said
