"""Sums over earlier rounds: the numbers of adding up anew, and no more work in a late round than in an early one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedtempo import algorithms as a
from fedtempo.client.phase import Length
from fedtempo.data.batches import Batching
from fedtempo.schedules import Now, Schedule, cosine, per_round, per_step, piecewise, qsr, sequence
from fedtempo.schedules.totals import follows_rounds

COSINE = cosine(0.1, rounds=40)
RULES = {
    "a budget": {"budget": 150},
    "a warm-up of steps": {"most": 30, "warmup_steps": 9, "warmup_k": 2},
    "a budget and a warm-up of rounds": {"budget": 150, "warmup_rounds": 4},
}


def asked(monkeypatch: pytest.MonkeyPatch) -> list[Now]:
    """A list that grows by the position of every schedule that is asked."""
    positions: list[Now] = []
    plain = Schedule.at

    def at(self: Schedule, now: Now) -> float:
        positions.append(now)
        return plain(self, now)

    monkeypatch.setattr(Schedule, "at", at)
    return positions


@pytest.mark.parametrize("name", RULES)
def test_steps_of_a_budget_are_those_of_adding_up_anew(name: str) -> None:
    """A rate that is the same for all clients, as a function of the user's: its sums are not remembered."""
    known = qsr(COSINE, alpha=0.3, k_base=2, **RULES[name])
    own = qsr(COSINE.at, alpha=0.3, k_base=2, **RULES[name])
    rounds = [*range(45), 3, 44, 0]
    assert [known.at(Now(round=t)) for t in rounds] == [own.at(Now(round=t)) for t in rounds]


@pytest.mark.parametrize("step", [0, 3])
def test_two_rules_do_not_share_their_sums(step: int) -> None:
    one, other = (qsr(COSINE, alpha=0.3, k_base=2, budget=budget) for budget in (60, 90))
    assert one.at(Now(round=20, step=step)) == 1
    assert sum(other.at(Now(round=t, step=step)) for t in range(12)) == pytest.approx(90, abs=12)
    assert sum(one.at(Now(round=t, step=step)) for t in range(12)) == pytest.approx(60, abs=12)


def test_a_late_round_asks_no_more_than_an_early_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was once for every round before: 2000 rounds with a budget took 43 seconds for the schedule alone."""
    rule = qsr(COSINE, alpha=0.3, budget=100_000)
    phase = a.feddecsps(a.fedavg(lr=0.1, steps=per_round(9.0, 0.999))).phases[0]
    positions = asked(monkeypatch)
    counts = []
    for t in (1, 2, 600, 601):
        rule.at(Now(round=t))
        phase.positions(Now(round=t, samples=20), 20, Batching(4))
        counts.append(len(positions))
        positions.clear()
    assert counts[3] <= counts[1]


LENGTHS = {
    "steps": Length(per_round(9.0, 0.8)),
    "epochs": Length(piecewise(3.0, {4: 0.5}), "epochs", share=0.8),
    "times and an offset": Length(sequence([3, 2, 1], over="round"), times=2, offset=-1),
    "none at last": Length(sequence([3, 0], over="round"), minimum=0),
    "of the rate": Length(qsr(COSINE, alpha=0.3, budget=60)),
    "by the client": Length(Schedule("mine", {}, lambda now: now.samples + now.round)),
    "by the step": Length(sequence([4, 1])),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_steps_of_earlier_rounds(name: str) -> None:
    length, batching = LENGTHS[name], Batching(4)
    for rows in (5, 18):
        for t in (7, 0, 12):
            now = Now(round=t, samples=rows, client=2, time=3.5)
            expected = sum(length.steps(replace(now, round=earlier), rows, batching) for earlier in range(t))
            assert length.steps_before(now, rows, batching) == expected


def test_what_follows_the_round_alone() -> None:
    assert follows_rounds(per_round(1.0, 0.9) * piecewise(1.0, {3: 0.5}))
    assert follows_rounds(qsr(COSINE, alpha=0.3, budget=60))
    assert not follows_rounds(qsr(COSINE * per_step(1.0, 0.5), alpha=0.3, budget=60))
    assert not follows_rounds(Schedule("per_round", {"value": 1.0}, lambda now: now.samples))
