"""Seals: what binds a record to its run, where somebody else can compute the hashes too."""

from __future__ import annotations

import pytest

import fedtempo as ft
from fedtempo.federation.costs import Costs
from fedtempo.training.round_report import Clients, RoundReport, to_json
from fedtempo.training.storage.seals import Seal


@pytest.mark.parametrize("rounds", ["", "-1", "1e5", "../../x", "9" * 5000])
def test_a_number_of_rounds_that_is_none_is_damage(rounds: str) -> None:
    assert Seal.stored(Seal.new({"rounds": "12"}).rows()).planned == 12
    with pytest.raises(ft.StoreError, match="the stored description of the run is damaged"):
        Seal.stored(Seal.new({"rounds": rounds}).rows())


def test_a_report_of_another_round_is_damage() -> None:
    seal, text = Seal.new({}), to_json(RoundReport(0, 0.5, Clients([1]), Costs(), Costs(), 0.1))
    assert len(seal.history([(0, text, seal.report_hash(0, text, ""))])[0]) == 1
    other = text.replace('"round": 0', '"round": 7')
    with pytest.raises(ft.StoreError, match="the report of round 0 cannot be read"):
        seal.history([(0, other, seal.report_hash(0, other, ""))])
