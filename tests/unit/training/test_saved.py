"""Results as files: what was saved comes back bit by bit, damage is found, and results pickle."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import fedtempo as ft
from fedtempo.errors import ConfigError, OutputError, StoreError
from fedtempo.params import leaves
from fedtempo.training.round_report import to_json
from fedtempo.training.saved import _hash
from fedtempo.training.state import tensors_from_bytes, tensors_to_bytes

ALGORITHMS = {
    "fedavg": ft.algorithms.fedavg(lr=0.1, steps=2),
    "fedadam": ft.algorithms.fedadam(lr=0.1, steps=2, server_lr=0.01),
    "scaffold": ft.algorithms.scaffold(lr=0.1, steps=2),
    "ditto": ft.algorithms.ditto(lr=0.1, steps=2, lam=0.5),
    "fedexp": ft.algorithms.fedexp(lr=0.1, steps=2),
}


def run(algorithm: ft.Algorithm, **settings: Any) -> ft.Result:
    data = ft.data.load("digits").split(ft.data.dirichlet(clients=6, alpha=1.0), new_clients=2, seed=3)
    usual = {"rounds": 4, "cohort": 0.5, "seed": 5, "evaluation": ft.Evaluation(every=1, steps=1), "backend": "serial"}
    return ft.run(model=ft.models.mlp(64, [4], 10), data=data, algorithm=algorithm, **{**usual, **settings})


def same(ours: Any, theirs: Any) -> bool:
    a, b = leaves(ours, "t"), leaves(theirs, "t")
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(ALGORITHMS["fedavg"]).save(tmp_path_factory.mktemp("saved") / "run.ft")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_saved_comes_back(name: str, tmp_path: Path) -> None:
    result = run(ALGORITHMS[name])
    loaded = ft.load_result(result.save(tmp_path / "run.ft"))
    assert loaded.digest() == result.digest()
    assert [to_json(report) for report in loaded.history] == [to_json(report) for report in result.history]
    for which in ("selected", "last"):
        assert same(loaded.at(which).shared, result.at(which).shared)
        assert same(loaded.at(which).server, result.at(which).server)
        assert loaded.at(which).now == result.at(which).now
        assert same(loaded.served(which), result.served(which))
        for client, _ in result.store.items():
            assert same(loaded.client_state(client, which), result.client_state(client, which))
    assert str(loaded.table()) == str(result.table())
    assert (loaded.costs, loaded.seconds, loaded.notes) == (result.costs, result.seconds, result.notes)
    assert loaded.scores is not None and result.scores is not None
    assert loaded.scores.summary() == result.scores.summary()


def test_a_loaded_result_saves_to_the_same_bytes(tmp_path: Path) -> None:
    path = run(ALGORITHMS["ditto"]).save(tmp_path / "run.ft")
    again = ft.load_result(path).save(tmp_path / "again.ft")
    assert path.read_bytes() == again.read_bytes()


def test_results_pickle_as_what_they_are_saved_as() -> None:
    result = run(ft.algorithms.fedavg(lr=lambda now: 0.1, steps=2))  # a lambda does not pickle, the result does
    copy = pickle.loads(pickle.dumps(result))
    assert same(copy.params, result.params) and copy.digest() == result.digest()
    assert same(pickle.loads(pickle.dumps(copy)).params, result.params)


def test_others_can_read_the_tensors(tmp_path: Path) -> None:
    result = run(ALGORITHMS["fedavg"])
    with safe_open(result.save(tmp_path / "run.ft"), "numpy") as file:
        (name,) = [n for n in file.keys() if n.endswith(" last/shared/head.weight")]  # noqa: SIM118
        assert np.array_equal(file.get_tensor(name), result.at("last").shared["head.weight"].numpy())


def test_every_flipped_byte_of_the_numbers_is_found(tmp_path: Path) -> None:
    path = run(ALGORITHMS["fedavg"]).save(tmp_path / "run.ft")
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in np.random.default_rng(0).integers(start, len(whole), 40).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError, match="damaged"):
            ft.load_result(path)
    path.write_bytes(whole[:-5])
    with pytest.raises(StoreError, match="safetensors"):
        ft.load_result(path)


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda about: about.clear(),
    "no summary": lambda about: about.update(summary=5),
    "no rounds": lambda about: about["snapshots"].pop("last"),
    "a position of another kind": lambda about: about["snapshots"]["last"]["now"].update(speed=3),
    "a server of another form": lambda about: about["snapshots"]["last"].update(server={"x": None}),
    "a report of another form": lambda about: about.update(history=["[]"]),
    "a number that fits nowhere": lambda about: about.update(
        history=[text.replace('"samples": [', '"samples": [1e999, ') for text in about["history"]]
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_whose_hash_fits_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    tensors = tensors_from_bytes(saved.read_bytes())
    about = json.loads(tensors["about.json"].numpy().tobytes())
    FORGED[name](about)
    tensors["about.json"] = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
    del tensors["sha256"]
    (tmp_path / "forged.ft").write_bytes(tensors_to_bytes({**tensors, "sha256": _hash(tensors)}))
    with pytest.raises(StoreError, match="must have the form of one"):
        ft.load_result(tmp_path / "forged.ft")


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"path must be a saved result. Got .*nothing"):
        ft.load_result(tmp_path / "nothing")
    loaded = ft.load_result(run(ALGORITHMS["ditto"]).save(tmp_path / "run.ft"))
    with pytest.raises(StoreError, match=r"client must be one that took part and whose tensors were saved. Got 99"):
        loaded.client_state(99)
    with pytest.raises(ConfigError, match="which must be 'selected' or 'last'"):
        loaded.at("first")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"model takes the run itself: .*load_state_dict"):
        loaded.model()


def test_clients_that_keep_nothing_have_an_empty_state(tmp_path: Path) -> None:
    result = run(ALGORITHMS["fedavg"])
    assert ft.load_result(result.save(tmp_path / "run.ft")).client_state(0) == result.client_state(0) == {}


def test_a_private_run_saves_nothing_of_its_clients(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    mean = ft.robust.private_mean(bound=1.0, noise=1.0)
    result = run(ft.algorithms.fedper(lr=0.1, steps=1, weighting="uniform"), aggregator=mean)
    assert any(state for _, state in result.store.items())
    loaded = ft.load_result(result.save(tmp_path / "run.ft"))
    assert loaded.personal == loaded.personal_selected == {}
    assert loaded.identity["data"] == loaded.summary["data"] == "withheld (private)"
    with pytest.raises(StoreError, match="whose tensors were saved"):
        loaded.client_state(0)
