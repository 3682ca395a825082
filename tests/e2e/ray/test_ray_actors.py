"""Ray actors: the serial run's bits, whatever happens to an actor, and nothing left behind."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.backends import Order, RayActors, ray_actors, serial
from fedtempo.backends.ray_cluster import loopback, started
from fedtempo.client.objectives import Received
from fedtempo.config import read, settings_of
from fedtempo.schedules import decaying_k
from fedtempo.training.loop import drained
from fedtempo.training.prepare import prepare
from fedtempo.training.round import Run, blocks_of
from fedtempo.training.storage.in_memory import MemoryStore
from tests import zoo
from tests.breaking import Fatal, Unlucky
from tests.one_weight import ledger_of
from tests.own_module import own_project
from tests.slow import slow_but
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of this machine for all tests of this module, with two processors and a GPU that is not there."""
    ray = pytest.importorskip("ray")
    with (
        tempfile.TemporaryDirectory(prefix="ft") as folder,
        started(ray, loopback, num_cpus=2, num_gpus=1, _temp_dir=folder),
    ):
        yield ray


def run(kind: str = "mlp", name: str = "fedavg", **settings: Any) -> ft.Result:
    usual = {"rounds": 3, "cohort": 5, "batch_size": 4, "seed": 3, "block": 1, "evaluation": None}
    return ft.run(model=zoo.model(kind), data=zoo.data(kind), algorithm=zoo.ALGORITHMS[name], **{**usual, **settings})


ALGORITHMS = {
    "FedDecay": a.feddecay(lr=0.1, beta=0.6, steps=5),
    "FedNAR(SCAFFOLD)": a.fednar(a.scaffold(lr=0.1, steps=5), weight_decay=0.01, max_norm=1.0),
    "PFLEGO": a.pflego(head_lr=0.1, server_lr=0.2, steps=5),
    "FedAdam with decaying K": a.fedadam(lr=0.1, steps=decaying_k(8, 0.8)),
}


def mean_output(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(outputs.mean())


PLACES = [(name, actors) for name in ALGORITHMS for actors in (1, 2)]


@pytest.mark.parametrize(
    "place",
    slow_but([("PFLEGO", 1)], PLACES, "each actor loads torch, for seconds; test_processes adds up sums of two"),
)
def test_actors_give_the_serial_bits(place: tuple[str, int], digits: ft.data.FederatedData, cluster: Any) -> None:
    name, actors = place
    own = ft.Metric(mean_output, higher_is_better=True, per="client")
    settings = {"rounds": 3, "cohort": 8, "seed": 4, "evaluation": ft.Evaluation(every=3), "metrics": ["auroc", own]}
    here, there = (
        ft.run(model=ft.models.mlp(64, [32], 10), data=digits, algorithm=ALGORITHMS[name], **settings, **where)
        for where in ({"backend": "serial"}, {"backend": "ray", "workers": actors})
    )
    assert here.digest() == there.digest()
    assert [r.loss for r in here.history] == [r.loss for r in there.history]
    assert here.scores.summary() == there.scores.summary()


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_an_address_takes_any_code_to_ray(cluster: Any) -> None:
    here, there = run(backend="vectorised", block=3), run(backend="vectorised", block=3, ray_address="auto")
    assert here.digest() == there.digest()
    assert there.experiment.backend.name == "vectorised"
    assert there.experiment.cluster is not None


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_a_loader_gives_actors_their_data(cluster: Any) -> None:
    def load() -> ft.data.FederatedData:
        return zoo.data("mlp")

    assert run(backend="ray", ray_loader=load, rounds=1).digest() == run(backend="serial", rounds=1).digest()


class Hanging(torch.nn.Module):
    """A model that stops its process for good, once, where a file says so."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Path(self.marker).exists():
            Path(self.marker).unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        output: torch.Tensor = self.layer(x)
        return output


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_an_actor_that_hangs_is_replaced_and_the_bits_stay(tmp_path: Path, cluster: Any) -> None:
    results = []
    for backend in ("serial", "ray"):
        torch.manual_seed(0)
        settings = {"rounds": 2, "cohort": 5, "batch_size": 4, "block": 1, "evaluation": None, "backend": backend}
        rounds = ft.train(
            model=Hanging(str(tmp_path / "hang")),
            data=zoo.data("mlp"),
            algorithm=zoo.ALGORITHMS["fedavg"],
            worker_timeout=3.0,
            **settings,
        )
        next(rounds)
        if backend == "ray":
            (tmp_path / "hang").touch()
        results.append(drained(rounds))
    assert not (tmp_path / "hang").exists()
    assert results[0].digest() == results[1].digest()
    assert sum(report.measurements.get("workers_replaced", 0) for report in results[1].history) == 1


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_an_actor_killed_three_times_changes_nothing(tmp_path: Path, cluster: Any) -> None:
    markers = [tmp_path / str(number) for number in range(3)]
    results = []
    for backend in ("serial", "ray"):
        torch.manual_seed(0)
        settings = {"rounds": 3, "cohort": 5, "batch_size": 4, "block": 1, "evaluation": None, "backend": backend}
        model = Fatal(*map(str, markers))
        for marker in markers if backend == "ray" else []:
            marker.touch()
        results.append(ft.run(model=model, data=zoo.data("mlp"), algorithm=zoo.ALGORITHMS["scaffold"], **settings))
    assert not any(marker.exists() for marker in markers)
    assert results[0].digest() == results[1].digest()
    assert sum(report.measurements.get("workers_replaced", 0) for report in results[1].history) == 3


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_an_error_in_an_actor_names_the_client(cluster: Any) -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((8, 6)), rng.integers(0, 4, 8)) for _ in range(6)]
    rows[4][0][:] = 100.0
    data = ft.data.FederatedData.from_clients(rows, names=["a", "b", "c", "d", "e", "f"])
    settings = {"rounds": 2, "cohort": 6, "batch_size": 4, "evaluation": None, "backend": "ray"}
    with pytest.raises(ft.TrainingError, match=r"client 4 \(e\), round 0: .*these rows are bad"):
        ft.run(model=Unlucky(RuntimeError), data=data, algorithm=zoo.ALGORITHMS["fedavg"], **settings)


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_a_gpu_that_torch_cannot_use_is_said(cluster: Any) -> None:
    with pytest.raises(ft.ConfigError, match="ray_gpus must be 0 where torch has no GPU"):
        run(backend="ray", ray_gpus=0.5)


def test_workers_have_our_priority(cluster: Any) -> None:
    """At Ray's own they would wait for everybody else who computes."""
    assert cluster.get(cluster.remote(lambda: os.nice(0)).remote()) == os.nice(0)


def test_a_full_cluster_is_told_without_starting_a_worker(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "ROOM_WITHIN_SECONDS", 0.5)
    taken = cluster.util.placement_group([{"CPU": 1.0}, {"CPU": 1.0}])
    assert taken.wait(PATIENCE)
    try:
        with pytest.raises(ft.TrainingError, match="the Ray cluster had no room for a worker in"):
            run(backend="ray", workers=1)
    finally:
        cluster.util.remove_placement_group(taken)


def test_a_connection_is_not_given_up_for_another(cluster: Any) -> None:
    with pytest.raises(ft.ConfigError, match="ray_address must be left out where the program is connected"):
        run(backend="ray", ray_address="127.0.0.1:1")


def test_what_cannot_be_sent_is_said(cluster: Any) -> None:
    held = (number for number in ())
    model = zoo.model("mlp")
    model.register_forward_hook(lambda module, inputs, output: held and None)
    federation = experiment(4).federation
    federation = replace(federation, problem=replace(federation.problem, model=model))
    with pytest.raises(ft.ConfigError, match="must be able to send"), RayActors(federation, serial, 1):
        pass


class Weighed(RayActors):
    """Actors whose messages are weighed by Ray's own serialiser."""

    bytes_down = 0
    bytes_up = 0

    def _size(self, value: Any) -> int:
        context = self._ray._private.worker.global_worker.get_serialization_context()
        return int(context.serialize(value).total_bytes)

    def _put(self, value: Any) -> Any:
        self.bytes_down += self._size(value)
        return super()._put(value)

    def _ask(self, slot: int, method: str, *message: Any) -> Any:
        self.bytes_down += sum(self._size(part) for part in message)
        return super()._ask(slot, method, *message)

    def _got(self, reference: Any) -> Any:
        value = super()._got(reference)
        self.bytes_up += self._size(value)
        return value


def experiment(cohort: int, clients: int = 400) -> Any:
    rng = np.random.default_rng(0)
    data = ft.data.FederatedData.from_clients([(rng.standard_normal((4, 6)), [0, 1, 2, 3]) for _ in range(clients)])
    return prepare(
        model=ft.models.mlp(6, [2000], 4),
        data=data,
        algorithm=a.fedavg(lr=0.1, steps=1),
        rounds=1,
        cohort=cohort,
        batch_size=4,
        evaluation=None,
        block=1,
    )


def weighed(cohort: int) -> tuple[int, int, int]:
    """Bytes that start the actors, then those down and up in a round."""
    chosen = experiment(cohort)
    federation = chosen.federation
    order = Order(Received(chosen.first_shared, {}), federation.problem.now(0, cohort))
    with Weighed(federation, serial, 2) as engine:
        beginning = engine.bytes_down
        engine.bytes_down = engine.bytes_up = 0
        run = Run(chosen, engine, MemoryStore(), ledger_of(chosen))
        total = engine.train(order, blocks_of(run, federation.problem.data.clients[:cohort]))
    assert total.clients == cohort
    return beginning, engine.bytes_down, engine.bytes_up


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_what_travels_does_not_grow_with_the_cohort(cluster: Any) -> None:
    parameters = sum(p.numel() for p in experiment(16).federation.problem.model.parameters())
    _, few_down, few_up = weighed(16)
    _, many_down, many_up = weighed(320)
    assert many_up == pytest.approx(few_up, rel=0.01)
    assert few_down > 4 * parameters
    assert many_down - few_down < 304 * 100  # who is asked is all that is said more


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_actors_add_up_so_that_few_sums_come_back(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = sum(p.numel() for p in experiment(16).federation.problem.model.parameters())
    _, _, all_of_them = weighed(16)
    monkeypatch.setattr(ray_actors, "MOST_SUMS", 2)
    _, _, two = weighed(16)
    assert two < 2 * 16 * parameters + 20_000 < all_of_them
    assert run(backend="ray", name="scaffold").digest() == run(backend="serial", name="scaffold").digest()


@pytest.mark.slow("new actors load torch, for seconds; the same mechanism runs every time in worker processes")
def test_mapped_data_are_opened_and_not_sent(tmp_path: Path, cluster: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((40_000, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    columns = {"x": np.load(tmp_path / "x.npy", mmap_mode="r"), "y": np.zeros(40_000, np.int64)}
    starts = np.arange(0, 40_000, 10)
    data = ft.data.FederatedData(columns, np.stack([starts, starts + 8, starts + 8, starts + 10], axis=1))
    settings = {"rounds": 2, "cohort": 5, "batch_size": 4, "algorithm": zoo.ALGORITHMS["fedavg"], "evaluation": None}
    chosen = prepare(model=zoo.model("mlp"), data=data, **settings)
    with Weighed(chosen.federation, serial, 1) as engine:
        assert (
            engine.bytes_down < columns["y"].nbytes + data.bounds.nbytes + 100_000 < rows.nbytes + columns["y"].nbytes
        )
    one, other = (ft.run(model=zoo.model("mlp"), data=data, backend=b, **settings) for b in ("serial", "ray"))
    assert one.digest() == other.digest()


@pytest.mark.slow("new actors load torch, for seconds; own code reaches worker processes every time")
def test_own_code_of_a_file_reaches_the_actors(cluster: Any, tmp_path: Path) -> None:
    with own_project(tmp_path) as path:
        here = ft.run(**settings_of(read(path, ["backend=serial"])))
        there = ft.run(**settings_of(read(path, ["backend=ray", "workers=2"])))
    assert there.digest() == here.digest()
