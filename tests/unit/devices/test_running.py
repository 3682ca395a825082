"""The devices of a run: seconds and joules of a client's work, and a million clients in little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fedtempo import devices
from fedtempo.devices import RunningDevices
from fedtempo.devices.running import PIECE
from fedtempo.errors import DataError

TWO = np.array([0, 1])


def running(**traits: float) -> RunningDevices:
    return RunningDevices(devices.constant(**traits), 0, bytes_down=100, bytes_up=50, row_flops=10.0)  # type: ignore[arg-type]


def test_work_is_download_steps_and_upload() -> None:
    fleet = running(seconds_per_step=2.0, down=50.0, up=5.0, latency=1.0, joules_per_step=3.0, joules_per_byte=0.5)
    work = fleet.work(fleet.traits(TWO), np.array([4.0, 1.0]), np.zeros(2), np.array([0, 100]))
    # Download: 1 + 100/50, or 1 + 200/50 where 100 bytes go down for the first time. Upload: 1 + 50/5.
    assert [part.tolist() for part in work.seconds] == [[3.0, 5.0], [8.0, 2.0], [11.0, 11.0]]
    assert [part.tolist() for part in work.joules] == [[50.0, 100.0], [12.0, 3.0], [25.0, 25.0]]
    assert work.arrivals().tolist() == [22.0, 18.0]
    assert work.spent(np.array([22.0, 18.0])).tolist() == [87.0, 128.0]
    # After 7 s the first has downloaded and taken half of its steps, the second has finished its step.
    assert work.spent(np.array([7.0, 7.0])).tolist() == [56.0, 103.0]
    assert fleet.transfer(fleet.traits(TWO)).tolist() == [14.0, 14.0]


def test_operations_a_second_are_a_speed() -> None:
    fleet = running(flops_per_second=5.0)
    traits = fleet.traits(TWO)
    assert fleet.seconds_per_step(traits, np.array([1, 4])).tolist() == [2.0, 8.0]
    work = fleet.work(traits, np.array([1.0, 1.0]), np.array([10.0, 40.0]), np.zeros(2))
    assert work.seconds[1].tolist() == [2.0, 8.0]


def test_who_joins_late_or_sleeps_is_waited_for() -> None:
    fleet = RunningDevices(devices.constant().available(hours=(6, 18), joins=1e6), 3, 1, 1)
    clients = np.arange(50)
    joined = fleet.devices.availability.joined_at(3, clients)
    waits = fleet.waits(clients, 1000.0)
    there = 1000.0 + waits + 1e-6
    assert (there >= joined).all()
    assert all(fleet.available(clients[[c]], float(there[c]))[0] for c in clients)
    assert not fleet.available(clients, 1000.0).any()


def test_what_a_file_or_a_function_lacks_is_known_before_training(tmp_path: Path) -> None:
    """Every client is asked for, also the last of many; of our own kinds one is enough."""
    (tmp_path / "trace.csv").write_text("client,up\n" + "".join(f"{c},1e5\n" for c in range(PIECE + 9)))
    fleet = devices.trace(tmp_path / "trace.csv")
    mixed = devices.classes([(0.5, fleet), (0.5, devices.constant())])
    for kind in (fleet, mixed):
        RunningDevices(kind, 0, 1, 1).checked(np.arange(PIECE + 9))
        with pytest.raises(DataError, match="client"):
            RunningDevices(kind, 0, 1, 1).checked(np.arange(PIECE + 30))
    asked: list[int] = []
    own = devices.as_devices(lambda seed, clients: asked.extend(clients.tolist()) or {"up": 1.0})
    assert own is not None
    RunningDevices(own, 0, 1, 1).checked(np.arange(100))
    assert asked == list(range(100)) and not devices.phones().is_own


def test_the_traits_of_few_clients_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = RunningDevices(devices.phones().available(hours=(6, 18), time_zones=(0, 8)), 3, 1, 1)
    kept = fleet.checked(np.array([7, 2, 9]))
    for clients in ([2, 9], [7], [2, 3], [40]):  # of strangers, such as new users, they are drawn
        expected = fleet.traits(np.array(clients))
        assert all(
            (mine == theirs).all() for mine, theirs in zip(kept.traits(np.array(clients)), expected, strict=True)
        )
    monkeypatch.setattr(devices.Devices, "traits", lambda *given: pytest.fail("drawn again"))
    assert len(kept.traits(np.array([9, 2, 9])).up) == 3
    assert kept == fleet


def test_a_million_devices_cost_less_than_a_hundred_megabytes() -> None:
    fleet = RunningDevices(devices.phones().available(hours=(20, 6), time_zones=(0, 8, 16), joins=60.0), 0, 1000, 1000)
    clients = np.arange(1_000_000)
    tracemalloc.start()
    there = fleet.available(clients, 3600.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.3 < there.mean() < 0.7
    assert peak < 100e6
