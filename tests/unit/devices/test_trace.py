"""Devices from a CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtempo import devices
from fedtempo.errors import FedTempoError


def written(folder: Path, text: str) -> Path:
    path = folder / "devices.csv"
    path.write_text(text)
    return path


def test_each_client_has_its_row(tmp_path: Path) -> None:
    path = written(tmp_path, "client,seconds_per_step,up,opens,closes\n7,0.5,100,8,20\n3,0.25,50,0,24\n")
    fleet = devices.trace(path)
    traits = fleet.traits(0, [3, 7])
    assert traits.seconds_per_step.tolist() == [0.25, 0.5] and traits.up.tolist() == [50.0, 100.0]
    assert traits.opens.tolist() == [0.0, 8.0] and fleet.may_be_away
    with pytest.raises(FedTempoError, match="client 5"):
        fleet.traits(0, [3, 5])


def test_without_clients_every_client_draws_a_row(tmp_path: Path) -> None:
    path = written(tmp_path, "seconds_per_step,latency\n1,0.1\n2,0.2\n3,0.3\n")
    traits = devices.trace(path).traits(0, range(300))
    assert {(s, la) for s, la in zip(traits.seconds_per_step, traits.latency, strict=True)} == {
        (1.0, 0.1),
        (2.0, 0.2),
        (3.0, 0.3),
    }
    assert not devices.trace(path).may_be_away


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "columns"),
        ("seconds_per_step\n", "rows"),
        ("seconds_per_stp\n1\n", "seconds_per_stp"),
        ("seconds_per_step,up\n1,x\n", "numbers"),
        ("seconds_per_step,up\n1\n", "numbers"),
        ("seconds_per_step\n-1\n", "seconds_per_step"),
        ("seconds_per_step,latency\n1,nan\n", "latency"),
        ("client,up\n1,1\n1,2\n", "client"),
        ("client\n1\n", "columns"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_wrong_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(FedTempoError, match=says):
        devices.trace(written(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedTempoError, match="CSV"):
        devices.trace(tmp_path / "none.csv")
