"""Which backend, how many workers, how large a block."""

from __future__ import annotations

import os

from fedtempo.backends.block import Backend
from fedtempo.backends.engine import Engine, InProcess
from fedtempo.backends.processes import Processes
from fedtempo.backends.serial import serial
from fedtempo.backends.vectorised import vectorised
from fedtempo.errors import unknown
from fedtempo.federation import Federation

BACKENDS: dict[str, Backend] = {"serial": serial, "vectorised": vectorised}
BACKEND_NAMES = (*BACKENDS, "processes", "auto")
VECTORISED_BELOW = 200_000
"""Models with fewer parameters than this run side by side by default; larger ones gain nothing from it."""


def choose_backend(backend: str | Backend, parameters: int) -> Backend:
    """The backend of this name; `auto` looks at the model's size."""
    if isinstance(backend, Backend):
        return backend
    if backend == "auto":
        return BACKENDS["vectorised" if parameters < VECTORISED_BELOW else "serial"]
    if backend not in BACKEND_NAMES:
        raise unknown("backend", backend, BACKEND_NAMES)
    return BACKENDS["serial" if backend == "processes" else backend]


def choose_workers(backend: str | Backend, workers: int | None) -> int:
    """How many processes share the work: one, unless asked for more by number or by the name `processes`."""
    if workers is not None:
        return workers
    return max(2, os.cpu_count() or 1) if backend == "processes" else 1


def engine_for(federation: Federation, backend: Backend, workers: int) -> Engine:
    """Where blocks are worked on."""
    return InProcess(federation, backend) if workers == 1 else Processes(federation, backend, workers)


def block_size(parameters: int) -> int:
    """Clients per block: as many copies of the model as stay near the cache. Depends on nothing else, on purpose."""
    return int(min(1024, max(4, 2_000_000 // max(parameters, 1))))
