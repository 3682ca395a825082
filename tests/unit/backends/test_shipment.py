"""How a federation travels: mapped files by their path, arrays as arrays, tensors as arrays and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends.shipment import mapped, packed, receive, serialise, unpacked
from fedtempo.training.experiment import Experiment
from fedtempo.training.prepare import prepare
from tests import zoo


def experiment(data: ft.data.FederatedData) -> Experiment:
    settings = {"rounds": 1, "algorithm": zoo.ALGORITHMS["fedavg"], "evaluation": None}
    return prepare(model=zoo.model("mlp"), data=data, **settings)


def test_a_mapped_array_is_found_in_its_file(tmp_path: Path) -> None:
    values = np.arange(60_000, dtype=np.int32).reshape(-1, 6)
    np.save(tmp_path / "values.npy", values)
    whole = np.load(tmp_path / "values.npy", mmap_mode="r")
    for piece, expected in ((whole, values), (whole[5000:], values[5000:]), (np.asarray(whole)[3:9], values[3:9])):
        found = mapped(piece)
        assert found is not None
        assert np.array_equal(np.memmap(found.path, found.dtype, "r", found.offset, found.shape), expected)
    assert mapped(values) is None
    assert mapped(whole[:, ::2]) is None
    assert mapped(np.load(tmp_path / "values.npy", mmap_mode="c")) is None
    (tmp_path / "values.npy").unlink()
    assert mapped(whole) is None


def test_a_federation_arrives_as_it_was_sent() -> None:
    federation = experiment(zoo.data("mlp")).federation
    arrived = receive(serialise(federation, None), "cpu")
    assert arrived.problem.data.digest() == federation.problem.data.digest()
    assert arrived.problem.model is not federation.problem.model
    loaded = receive(serialise(federation, lambda: federation.problem.data), "cpu")
    assert loaded.problem.data is federation.problem.data
    with pytest.raises(ft.DataError, match="ray_loader must return the data of the run"):
        receive(serialise(federation, lambda: replace(federation.problem.data, held_out=np.array([0]))), "cpu")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((20, 6), np.float32))
    columns = {"x": np.load(tmp_path / "x.npy", mmap_mode="r"), "y": np.zeros(20, np.int64)}
    data = ft.data.FederatedData(columns, np.array([[0, 10, 10, 10], [10, 20, 20, 20]]))
    shipment = serialise(experiment(data).federation, None)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(ft.DataError, match=r"mapped data must lie at the same path .*x\.npy"):
        receive(shipment, "cpu")


def test_messages_come_out_as_they_went_in() -> None:
    picture = torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    tree = {"a": (torch.arange(3), [picture]), "b": torch.tensor(1.5, dtype=torch.float64), "c": "text"}
    sent = packed(tree)
    sent["a"][0].values.flags.writeable = False
    back = unpacked(sent)
    assert torch.equal(back["a"][0], tree["a"][0])
    assert torch.equal(back["a"][1][0], picture)
    assert back["b"].dtype == torch.float64
    assert back["c"] == "text"
    back["a"][0].add_(1)
    assert sent["a"][0].values.tolist() == [0, 1, 2]
