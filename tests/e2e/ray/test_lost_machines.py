"""A cluster of several machines: one is lost, one joins, a client ends its worker. Real raylets on loopback."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.backends.ray_cluster import QUIET
from fedtempo.training.loop import drained
from tests import zoo
from tests.waiting import allowed, until

pytestmark = [
    pytest.mark.slow("each starts several raylets, whose actors load torch"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: fedtempo[ray]"),
    # Ray leaves the log files of its processes to the collector, and warns of its later versions.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and two machines of one processor each, all on loopback, and a driver that is connected to the head."""
    for name, value in {**QUIET, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    import ray
    from ray.cluster_utils import Cluster

    here = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**here, "include_dashboard": False})
    cluster.others = [cluster.add_node(**here) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


class Slow(torch.nn.Module):
    """Takes a fiftieth of a second, so that a machine is lost in the middle of a round."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        output: torch.Tensor = self.layer(x)
        return output


class Deadly(Slow):
    """Ends its process on rows that hold a hundred."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.max()) >= 100.0 and "RAY_JOB_ID" in os.environ:
            os._exit(9)
        output: torch.Tensor = self.layer(x)
        return output


def settings(model: type[torch.nn.Module], **others: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    usual = {"model": model(), "init": "model", "data": zoo.data("mlp"), "algorithm": zoo.ALGORITHMS["scaffold"]}
    return {**usual, "rounds": 5, "cohort": 5, "batch_size": 4, "block": 1, "evaluation": None, **others}


def test_a_lost_machine_costs_seconds_and_no_bit(machines: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It took ten minutes an actor: the run waited for a place on the machine that was gone."""
    rounds = ft.train(**settings(Slow), backend="ray", workers=3)
    next(rounds)
    killer = threading.Timer(0.05, machines.remove_node, [machines.others[0], False])
    began = time.monotonic()
    killer.start()
    next(rounds)
    next(rounds)
    assert time.monotonic() - began < allowed(15.0)
    killer.join()
    result = drained(rounds)
    assert result.digest() == ft.run(**settings(Slow), backend="serial").digest()
    assert any("Its blocks go to the" in record.message for record in caplog.records)


def test_a_machine_that_joins_is_used(machines: Any) -> None:
    """The fourth worker has no place at first."""
    import ray

    from fedtempo.backends import ray_actors

    rounds = ft.train(**settings(Slow, rounds=60), backend="ray", workers=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_actors, "ROOM_WITHIN_SECONDS", 1.0)
        next(rounds)
    machines.add_node(num_cpus=1, node_ip_address="127.0.0.1")

    def has_four() -> bool:
        next(rounds)
        return ray.available_resources().get("CPU", 0.0) == 0.0 and ray.cluster_resources()["CPU"] == 4.0

    assert until(has_four)
    rounds.close()


def test_a_client_that_ends_its_worker_is_named_and_the_run_goes_on(machines: Any) -> None:
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((8, 6)), rng.integers(0, 4, 8)) for _ in range(6)]
    clients[4][0][0, 0] = 100.0
    data = ft.data.FederatedData.from_clients(clients)
    result = ft.run(**settings(Deadly, data=data, cohort=6, rounds=2, block=3), backend="ray", workers=3)
    for report in result.history:
        assert [failure.client for failure in report.failures] == [4]
        assert "it ended or stopped its worker" in report.failures[0].reason
        assert len(report.clients) == 5
