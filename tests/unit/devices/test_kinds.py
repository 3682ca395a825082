"""Kinds of devices."""

from __future__ import annotations

import numpy as np
import pytest

from fedtempo import devices
from fedtempo.errors import ConfigError

CLIENTS = np.arange(4000)


def test_all_alike() -> None:
    traits = devices.constant(seconds_per_step=0.5, up=10.0, joules_per_step=2.0).traits(7, CLIENTS)
    assert set(traits.seconds_per_step) == {0.5} and set(traits.up) == {10.0} and np.isinf(traits.down).all()


def test_log_normal_speeds_have_the_median_and_the_spread_that_were_given() -> None:
    fleet = devices.log_normal(seconds_per_step=2.0, sigma=0.8, up=100.0, bandwidth_sigma=0.3, joules_per_step=1.0)
    traits = fleet.traits(0, CLIENTS)
    logs = np.log(traits.seconds_per_step / 2.0)
    assert abs(logs.mean()) < 0.05 and abs(logs.std() - 0.8) < 0.03
    assert abs(np.log(traits.up / 100.0).std() - 0.3) < 0.02
    np.testing.assert_allclose(traits.joules_per_step * 2.0, traits.seconds_per_step)
    assert abs(np.corrcoef(traits.up, traits.seconds_per_step)[0, 1]) < 0.1
    few = fleet.traits(0, CLIENTS[100:103])
    assert (few.seconds_per_step == traits.seconds_per_step[100:103]).all()  # nobody's speed depends on the others
    faster = devices.log_normal(flops_per_second=100.0, sigma=0.8).traits(0, CLIENTS).flops_per_second
    np.testing.assert_allclose(faster, 100.0 * 2.0 / traits.seconds_per_step)


def test_classes_have_their_shares() -> None:
    kinds = [(1, devices.constant(seconds_per_step=1.0)), (3, devices.log_normal(seconds_per_step=9.0, sigma=0.0))]
    speeds = devices.classes(kinds).traits(0, CLIENTS).seconds_per_step
    assert abs(np.mean(speeds == 1.0) - 0.25) < 0.02 and set(speeds) == {1.0, 9.0}


def test_phones_differ() -> None:
    traits = devices.phones(seconds_per_step=0.2).traits(0, CLIENTS)
    assert abs(np.median(traits.seconds_per_step) - 0.2) < 0.03
    assert np.quantile(traits.seconds_per_step, 0.95) > 6 * np.quantile(traits.seconds_per_step, 0.05)
    assert (traits.up < traits.down).mean() == 1.0


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: devices.constant(seconds_per_step=1.0, flops_per_second=1e9), "flops_per_second"),
        (lambda: devices.constant(seconds_per_step=float("nan")), "seconds_per_step"),
        (lambda: devices.constant(up=-1.0), "up"),
        (lambda: devices.log_normal(seconds_per_step=1.0, sigma=-1.0), "sigma"),
        (lambda: devices.classes([]), "of"),
        (lambda: devices.classes([(0, devices.constant())]), "of"),
        (lambda: devices.classes([(1, devices.constant().available(stays=3.0))]), "of"),
    ],
)
def test_wrong_settings_are_refused(make: object, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        make()  # type: ignore[operator]
