"""Devices: how fast clients compute and send, what energy that takes, and when they are there."""

from collections.abc import Callable

from fedtempo.devices.fleet import Availability, Devices, OwnDevices, as_devices
from fedtempo.devices.kinds import classes, constant, log_normal, phones
from fedtempo.devices.running import RunningDevices
from fedtempo.devices.trace import trace
from fedtempo.devices.traits import Traits

DEVICES: dict[str, Callable[..., Devices]] = {
    "constant": constant,
    "log_normal": log_normal,
    "classes": classes,
    "phones": phones,
    "trace": trace,
}
"""The kinds of devices that an experiment file may name."""

__all__ = [
    "Availability",
    "DEVICES",
    "Devices",
    "OwnDevices",
    "RunningDevices",
    "Traits",
    "as_devices",
    "classes",
    "constant",
    "log_normal",
    "phones",
    "trace",
]
