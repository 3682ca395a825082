"""Backends: the only modules that know how clients run."""

from fedtempo.backends.block import Backend, Block, Trained, run_blocks
from fedtempo.backends.engine import Engine, InProcess
from fedtempo.backends.processes import Processes
from fedtempo.backends.serial import serial
from fedtempo.backends.vectorised import vectorised

BACKENDS: dict[str, Backend] = {"serial": serial, "vectorised": vectorised}

__all__ = [
    "BACKENDS",
    "Backend",
    "Block",
    "Engine",
    "InProcess",
    "Processes",
    "Trained",
    "run_blocks",
    "serial",
    "vectorised",
]
