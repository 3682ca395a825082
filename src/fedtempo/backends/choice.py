"""How clients run by default: model and batch pick the backend and the block size, timing picks the number of workers.

Vectorised and serial code differ in the last bits, and so do vectorised blocks of different sizes. If a clock chose
them, two runs of one experiment could differ. So fixed rules choose them. They come from measurements on a grid of
models, batch sizes and cohorts (`benchmarks/grid.py`, printed in docs/benchmarks.md).
The number of workers changes no bit, so a clock may choose it (`calibration.py`).
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import nn

from fedtempo.backends.backend import Backend
from fedtempo.backends.calibration import Calibrated
from fedtempo.backends.engine import Engine, InProcess
from fedtempo.backends.memory import lanes_in
from fedtempo.backends.processes import Processes
from fedtempo.backends.ray_actors import RayActors
from fedtempo.backends.ray_cluster import Cluster
from fedtempo.backends.serial import serial
from fedtempo.backends.start import start_method
from fedtempo.backends.vectorised import vectorised
from fedtempo.errors import unknown
from fedtempo.federation.device_rows import free_memory
from fedtempo.federation.federation import Federation
from fedtempo.support.threads import usable_processors

BACKENDS: dict[str, Backend] = {"serial": serial, "vectorised": vectorised}
BACKEND_NAMES = (*BACKENDS, "processes", "ray", "auto")
VECTORISED_BELOW = 100_000
"""Models with fewer parameters than this run side by side by default. Larger ones are faster one by one."""
VECTORISED_HEADS_BELOW = 250_000
"""The same where most steps train a head on features that are computed once, as PFLEGO's do, and there are no
convolutions."""
MOST_CHANNEL_ROWS = 128
"""With convolutions, side by side pays only for little work a step: the most channels of a layer times the rows of a
batch. Clients with kernels of their own are a grouped convolution, which is slower for each number than a plain one."""
LANES_IN_CACHE = 2_000_000
"""Parameters of all lanes of a vectorised block together: about what stays in the processor's cache."""
MOST_LANES = 512
"""Lanes of a vectorised block at most, however small the model is."""
MOST_LANES_OF_CONVOLUTIONS = 100
"""The same with convolutions. Their time grows with the lanes from here on, so a larger block would only leave a worker
without one."""
SMALLEST_SUM = 100_000
"""Parameters that a serial block adds up at least, so that the work per block outweighs its message to a worker."""
MOST_IN_A_SUM = 64
"""Clients of a serial block at most, so that workers get equal shares."""


class Choice(NamedTuple):
    """How clients run. All of it can be given by hand, and is settled before the first round but for `calibrates`."""

    backend: Backend
    workers: int
    block: int
    calibrates: bool = False
    """Whether `workers` is only an upper limit, and the first round measures whether workers save time."""

    def __str__(self) -> str:
        where = "in this process" if self.workers == 1 else f"in {self.workers} processes"
        clients = "1 client" if self.block == 1 else f"{self.block} clients"
        return f"{self.backend.name} code {where}, {clients} to a block"


def choose(
    backend: str | Backend,
    workers: int | None,
    block: int | None,
    model: nn.Module,
    cohort: float,
    vectorises: bool = True,
    device: str = "cpu",
    batch: int | None = None,
    moved: float | None = None,
) -> Choice:
    """The choice for a run: what the user set, and defaults for the rest by model, rows of a batch and processors.

    `moved` is what `parameters_of_a_step` says; by default a step moves all parameters. An accelerator is fastest with
    many clients side by side, in one process, as many as its memory holds.
    """
    parameters = sum(p.numel() for p in model.parameters())
    if backend == "auto" and torch.device(device).type != "cpu":
        code = vectorised if vectorises else serial
        free = free_memory(device)
        size = block_size(parameters, code) if free is None or code is serial else lanes_in(free, parameters)
        return Choice(code, workers or 1, block or size)
    channel_rows = _channels(model) * (batch or 1)
    code = choose_backend(backend, parameters, channel_rows, moved) if vectorises else serial
    size = block or equal_blocks(block_size(parameters, code, bool(_channels(model))), cohort)
    if workers is None and backend == "auto":
        # A cohort that fits into one block cannot be shared between workers.
        most = _processors() if cohort > size else 1
        return Choice(code, most, size, most > 1)
    return Choice(code, choose_workers(backend, workers), size)


def _channels(model: nn.Module) -> int:
    """The most channels that a convolution of the model makes; 0 where it has none."""
    # Convolutions over sequences count as dense layers: side by side they stay ahead up to eight times as many rows.
    return max((layer.out_channels for layer in model.modules() if isinstance(layer, nn.Conv2d)), default=0)


def parameters_of_a_step(federation: Federation) -> float:
    """The parameters that take part in a local step, on average over the first round of a client of middling size.

    Where the features of a fixed body are computed once, these are the head's alone.
    """
    problem = federation.problem
    middle = problem.median_client
    samples, (now,) = int(problem.sizes[middle][0]), problem.places(problem.now(0, 1.0), middle)
    sizes = {name: p.numel() for name, p in problem.model.named_parameters()}
    moved = taken = 0
    for stage in federation.program.stages:
        steps = len(stage.positions(now, samples, problem.batching))
        batching, rows = stage.phase.batching(problem.batching), stage.phase.rows(samples)[1]
        on_features = stage.reuses_features and stage.needs_all_rows(steps, rows, batching)
        moved += steps * sum(size for name, size in sizes.items() if not on_features or name in stage.trained)
        taken += steps
    return moved / taken if taken else float(sum(sizes.values()))


def choose_backend(
    backend: str | Backend, parameters: int, channel_rows: int = 0, moved: float | None = None
) -> Backend:
    """The backend of this name; `auto` looks at the model and the batch: `channel_rows` are channels times rows."""
    if isinstance(backend, Backend):
        return backend
    if backend == "auto":
        small = parameters < VECTORISED_BELOW and channel_rows <= MOST_CHANNEL_ROWS
        heads = moved is not None and moved < VECTORISED_BELOW and parameters < VECTORISED_HEADS_BELOW
        together = small or (heads and not channel_rows)
        return BACKENDS["vectorised" if together else "serial"]
    if backend not in BACKEND_NAMES:
        raise unknown("backend", backend, BACKEND_NAMES)
    return BACKENDS["serial" if backend in ("processes", "ray") else backend]


def choose_workers(backend: str | Backend, workers: int | None) -> int:
    """How many processes share the work: one, unless asked for more by number or by the name `processes`."""
    if workers is not None:
        return workers
    return max(2, _processors()) if backend == "processes" else 1


def _processors() -> int:
    """Processors this process may use; one where worker processes cannot be started."""
    return 1 if start_method() is None else usable_processors()


def engine_for(
    federation: Federation,
    backend: Backend,
    workers: int,
    cluster: Cluster | None = None,
    calibrate_for: int | None = None,
    worker_timeout: float | None = None,
    inherited: tuple[object, ...] = (),
) -> AbstractContextManager[Engine]:
    """The engine that runs the blocks. `calibrate_for`: rounds of a run that measures first whether workers pay.

    `inherited` are values that workers get at their start, because they may hold functions that cannot be sent later.
    """
    if cluster is not None:
        return RayActors(federation, backend, workers, cluster, worker_timeout)
    if calibrate_for is not None:
        return Calibrated(federation, backend, workers, calibrate_for, worker_timeout, inherited)
    if workers > 1:
        return Processes(federation, backend, workers, worker_timeout, inherited)
    return nullcontext(InProcess(federation, backend))


def equal_blocks(most: int, cohort: float) -> int:
    """Clients per block, at most `most`, so that a cohort of several blocks is cut into equal ones.

    Two workers finish blocks of 10 and 10 before one of them has finished one of 12. A cohort that fits into one block
    leaves the size as it is: users are scored in blocks of this size too.

    >>> equal_blocks(12, 20), equal_blocks(12, 5)
    (10, 12)
    """
    return math.ceil(cohort / math.ceil(cohort / most)) if cohort > most else most


def block_size(parameters: int, backend: Backend = vectorised, convolves: bool = False) -> int:
    """Clients per block.

    A vectorised block has as many copies of the model as stay near the cache. A serial block is small, so that workers
    share a cohort evenly.
    """
    if backend.name == vectorised.name:
        most = MOST_LANES_OF_CONVOLUTIONS if convolves else MOST_LANES
        return int(min(most, max(4, LANES_IN_CACHE // max(parameters, 1))))
    return int(min(MOST_IN_A_SUM, max(1, SMALLEST_SUM // max(parameters, 1))))
