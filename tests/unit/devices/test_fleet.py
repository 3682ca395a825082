"""Devices as values: what they print, who is there, and functions of the user's."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo import devices
from fedtempo.devices.fleet import Availability, uniforms
from fedtempo.errors import ConfigError
from fedtempo.support.identity import identity_of

CLIENTS = np.arange(2000)


def test_draws_depend_on_seed_client_and_purpose_alone() -> None:
    (drawn,) = uniforms(1, CLIENTS, 1, "joins")
    (shuffled,) = uniforms(1, CLIENTS[::-1], 1, "joins")
    assert (drawn == shuffled[::-1]).all()
    assert ((drawn > 0) & (drawn < 1)).all() and abs(drawn.mean() - 0.5) < 0.02
    assert (drawn != uniforms(2, CLIENTS, 1, "joins")[0]).all()
    assert (drawn != uniforms(1, CLIENTS, 1, "class")[0]).all()


def test_availability_by_time_zone_and_by_joining() -> None:
    rule = Availability((0.0, 12.0), (0.0, 12.0), stays=100.0, joins=50.0)
    zones = rule.applied(devices.constant().traits(0, CLIENTS), 0, CLIENTS).time_zone
    assert set(zones.tolist()) == {0.0, 12.0} and 900 < np.count_nonzero(zones) < 1100
    joined = rule.joined_at(0, CLIENTS)
    assert joined.min() > 0 and joined.max() < 50 and abs(joined.mean() - 25) < 1
    first, second = (rule.stays_for(0, CLIENTS, round_number) for round_number in (0, 1))
    assert abs(first.mean() - 100) < 8 and (first != second).all()  # whoever left comes back
    assert np.isinf(Availability().stays_for(0, CLIENTS, 0)).all()


def test_devices_print_as_the_call_that_made_them() -> None:
    fleet = devices.constant(seconds_per_step=0.5).available(hours=(22, 6), stays=60.0)
    assert repr(fleet) == "constant(seconds_per_step=0.5).available(hours=(22.0, 6.0), stays=60.0)"
    assert fleet.may_be_away and not devices.phones().may_be_away
    assert identity_of(fleet.identity()) == identity_of(fleet.identity())
    others = (devices.constant(seconds_per_step=0.6), devices.constant(seconds_per_step=0.5), devices.phones())
    assert len({identity_of(each.identity()) for each in (fleet, *others)}) == 4


def test_a_function_of_the_users_is_devices() -> None:
    def mine(seed: int, clients: np.ndarray) -> dict[str, np.ndarray]:
        return {"seconds_per_step": 1.0 + clients, "opens": clients % 3}

    fleet = devices.as_devices(mine)
    assert fleet is not None and fleet.may_be_away
    assert fleet.traits(0, [4, 1]).seconds_per_step.tolist() == [5.0, 2.0]
    assert fleet.traits(0, [4, 1]).opens.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("wrong", [3, lambda seed, clients: 3, lambda seed, clients: {"up": np.ones(7)}])
def test_what_are_no_devices_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="devices"):
        devices.as_devices(wrong).traits(0, [0, 1])  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize(
    "settings",
    [{"hours": (1, 1)}, {"hours": (0, 30)}, {"time_zones": ()}, {"time_zones": (99,)}, {"stays": 0}, {"joins": -1}],
)
def test_wrong_availability_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        devices.constant().available(**settings)  # type: ignore[arg-type]
