"""Splits of other programs: the same rows as theirs, and what their rules promise."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data.parts import UNUSED
from fedtempo.errors import ConfigError, DataError

DIGITS = ft.data.load("digits")
# SHA-256 of the owners that the originators' own programs gave for the labels of the digits, eight clients: NIID-Bench
# (commit b56de2aa, seed 3, beta 0.5) and PFLlib (commit 0154cff0, seed 1, alpha 0.1).
THEIRS = {
    "homo": (ft.data.niid_bench("homo", 8, 0.5, 3), "bccf512552f3a144"),
    "labeldir": (ft.data.niid_bench("noniid-labeldir", 8, 0.5, 3), "be9447c2b62bed3d"),
    "two labels": (ft.data.niid_bench("noniid-#label2", 8, 0.5, 3), "90f110b6379eb601"),
    "three labels": (ft.data.niid_bench("noniid-#label3", 8, 0.5, 3), "058cdd7c6e7a0f8c"),
    "quantity": (ft.data.niid_bench("iid-diff-quantity", 8, 0.5, 3), "96c2067a1f08e18b"),
    "dir": (ft.data.pfllib("dir", 8), "23fa4bfefa4b8ae9"),
    "pat, balanced": (ft.data.pfllib("pat", 8, balance=True), "604737372fe29e6f"),
    "pat": (ft.data.pfllib("pat", 8, classes=3), "eff3850601e15ad7"),
}


@pytest.mark.parametrize("name", THEIRS)
def test_rows_are_those_of_the_originators_programs(name):
    split, digest = THEIRS[name]
    owner = split.assign(DIGITS, seed=0)
    assert hashlib.sha256(owner.astype("<i8").tobytes()).hexdigest()[:16] == digest
    assert (owner == split.assign(DIGITS, seed=1)).all()  # the program's seed draws, not the run's


def labels_of(classes: int, rows: int) -> ft.data.Table:
    return ft.data.Table("labels", {"y": np.repeat(np.arange(classes), rows)})


def counts(split: ft.data.Split, table: ft.data.Table, clients: int) -> np.ndarray:
    owner = split.assign(table, seed=0)
    found = np.zeros((clients, int(table.labels.max()) + 1), dtype=int)
    np.add.at(found, (owner[owner != UNUSED], table.labels[owner != UNUSED]), 1)
    return found


def test_hsu_gives_everybody_the_same_number_of_rows_and_follows_the_classes_shares():
    skewed = ft.data.Table("skewed", {"y": np.repeat([0, 1], [900, 100])})
    found = counts(ft.data.hsu_dirichlet(10, alpha=1e6), skewed, 10)
    assert found.sum(1).tolist() == [100] * 10
    assert found[:5, 1].sum() == pytest.approx(50, abs=25)  # a tenth of the data, until a class is used up
    assert (counts(ft.data.hsu_dirichlet(10, alpha=1e-3), labels_of(10, 20), 10).max(1)[:3] == 20).all()


def test_extended_dirichlet_gives_every_client_its_number_of_classes():
    found = counts(ft.data.extended_dirichlet(10, classes=2, alpha=1.0, least=5), labels_of(5, 200), 10)
    assert ((found > 0).sum(1) <= 2).all() and (found.sum(1) >= 5).all() and found.sum() == 1000


def test_pachinko_draws_a_group_and_then_a_class():
    groups = [0, 0, 1, 1, 2, 2]
    found = counts(ft.data.pachinko(3, groups, alpha=1e-3, beta=1e6, rows=50), labels_of(6, 100), 3)
    assert found.sum(1).tolist() == [50] * 3
    by_group = found.reshape(3, 3, 2)
    assert (by_group.sum(2).max(1) == 50).all()  # one group each
    assert by_group.max(2).max(1) == pytest.approx(25, abs=12)  # of whose two classes there are equally many


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ft.data.niid_bench("dirichlet", 5), "partition must be 'homo', 'noniid-labeldir'"),
        (lambda: ft.data.niid_bench("noniid-labeldir", 5, beta=0), "beta must be a number > 0. Got 0."),
        (lambda: ft.data.pfllib("exdir", 5), "partition must be 'dir' or 'pat'. Got 'exdir'."),
        (lambda: ft.data.pachinko(5, "coarse"), "groups must be the group of each class"),
        (lambda: DIGITS.split(ft.data.pachinko(500, [0] * 10)), "clients * rows must be at most 1797"),
        (lambda: DIGITS.split(ft.data.extended_dirichlet(3, 2, 1.0)), "classes must be an int in [4, 10]"),
        (lambda: DIGITS.split(ft.data.niid_bench("noniid-labeldir", 1000)), "no division in 1000 draws"),
    ],
)
def test_what_cannot_be_divided_is_refused(make, said, monkeypatch):
    monkeypatch.setattr("fedtempo.data.benchmark_splits.TRIES", 1000 if "1000" not in said else 3)
    with pytest.raises((ConfigError, DataError)) as error:
        make()
    assert said.replace("1000 draws", "3 draws") in str(error.value)


def test_they_are_known_to_experiment_files():
    made = ft.data.SPLITS["niid_bench"](partition="noniid-labeldir", clients=5)
    data = DIGITS.split(made, validation=0.1, test=0.2)
    assert len(data) == 5 and data.sizes("train").min() >= 7
