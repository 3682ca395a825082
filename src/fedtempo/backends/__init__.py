"""Backends: the only modules that know how clients run."""

from fedtempo.backends.block import Backend, Trained, run_block
from fedtempo.backends.serial import serial
from fedtempo.backends.vectorised import vectorised

BACKENDS: dict[str, Backend] = {"serial": serial, "vectorised": vectorised}

__all__ = ["BACKENDS", "Backend", "Trained", "run_block", "serial", "vectorised"]
