"""What a node keeps of its clients: enough to go on, the selected round's state, and two states at the end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch

import fedtempo as ft
from fedtempo.deploy.personal import DATABASE, PersonalStore
from fedtempo.deploy.wire import NOTHING_KEPT
from fedtempo.training.state import digest_of


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"head.weight": torch.full((2, 3), value), "head.bias": torch.zeros(2)}


def held(folder: Path) -> set[bytes]:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return {digest for (digest,) in connection.execute("SELECT digest FROM states")}


def test_the_selected_state_stays_as_long_as_it_is_the_selected_one(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    line = [NOTHING_KEPT]
    for value in range(3):
        line.append(store.put("r", 4, line[-1], tensors(value)))
    first, later = line[1], line[3]
    for value in range(3, 8):
        line.append(store.put("r", 4, line[-1], tensors(value), first))
    assert held(tmp_path) == {first, *line[-3:]}
    assert later not in held(tmp_path)
    selected = line[-1]
    for value in range(8, 12):  # another round is selected: the old one goes
        line.append(store.put("r", 4, line[-1], tensors(value), selected))
    assert held(tmp_path) == {selected, *line[-3:]}


def test_at_the_end_two_states_are_left_and_both_are_handed_out(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    line = [NOTHING_KEPT]
    for value in range(4):
        line.append(store.put("r", 4, line[-1], tensors(value), line[1] if value else NOTHING_KEPT))
    store.put("r", 5, NOTHING_KEPT, tensors(9.0))
    for which, value in (("selected", 1.0), ("last", 2.0)):
        store.finish("r", "experiment", which, int(value), {"body": torch.tensor([value])})
    for _ in range(2):  # a server that was interrupted says it again
        store.settle("r", 4, line[1], line[-1])
    assert held(tmp_path) == {line[1], line[-1], digest_of(tensors(9.0))}
    again = PersonalStore(tmp_path)
    assert torch.equal(again.personal("r", 4, "selected")["head.weight"], tensors(0.0)["head.weight"])
    assert torch.equal(again.personal("r", 4, "last")["head.weight"], tensors(3.0)["head.weight"])
    assert again.personal("r", 6, "last") is None
    assert again.finished("experiment", "selected")[:2] == ("r", 1)
    assert again.finished("experiment", "last").shared["body"].item() == 2.0
    with pytest.raises(ft.StoreError, match="must hold a finished run of this experiment"):
        again.finished("another", "last")
    store.finish("r2", "experiment", "last", 7, {"body": torch.tensor([5.0])})
    assert again.finished("experiment", "last").run == "r2"


def test_a_state_that_is_not_here_cannot_be_settled(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    last = store.put("r", 1, NOTHING_KEPT, tensors(1.0))
    with pytest.raises(ft.StoreError, match="not on this node"):
        store.settle("r", 1, b"x" * 32, last)
    assert held(tmp_path) == {last}
    store.settle("r", 1, NOTHING_KEPT, last)
    assert store.personal("r", 1, "selected") is None


def test_a_damaged_model_is_noticed(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path)
    store.finish("r", "experiment", "last", 1, tensors(1.0))
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        (data,) = connection.execute("SELECT tensors FROM finished").fetchone()
        connection.execute("UPDATE finished SET tensors = ?", (data[:-1] + bytes([data[-1] ^ 1]),))
        connection.commit()
    with pytest.raises(ft.StoreError, match="the last model is damaged"):
        store.finished("experiment", "last")
