"""The loops by hand, as lean as we know how to write them: nothing of ours, and nothing that torch does not need.

No optimizer object: `autograd.grad`, then one `torch._foreach` update. Convolutions in the channels-last layout. The
rows of a client's epoch are put in order once. Data are tensors that forked workers share; every process has one thread
and keeps the memory it has freed; a model travels once per worker and round.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.workloads import Workload


class Client:
    """One model, used for one client after the other."""

    def __init__(self, workload: Workload, inputs: np.ndarray, labels: np.ndarray) -> None:
        torch.manual_seed(0)
        self.workload = workload
        self.inputs, self.labels = _tensor(inputs), _tensor(labels)
        self.model = workload.model()
        for parameter in self.model.parameters():
            parameter.data = _channels_last(parameter.data)
        self.parameters = list(self.model.parameters())

    def train(self, shared: list[Tensor], clients: np.ndarray, seed: int) -> list[Tensor]:
        """The sum of the weights these clients end with."""
        total = [torch.zeros_like(p) for p in shared]
        for client in clients.tolist():
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, shared)
            self._steps(client, seed)
            with torch.no_grad():
                torch._foreach_add_(total, self.parameters)
        return total

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """One step of plain SGD."""
        loss = F.cross_entropy(self.model(inputs), labels)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-self.workload.lr)

    def _steps(self, client: int, seed: int) -> None:
        w = self.workload
        rows = slice(client * w.samples, (client + 1) * w.samples)
        inputs, labels = self.inputs[rows], self.labels[rows]
        generator = torch.Generator().manual_seed(seed * 1_000_003 + client)
        left = w.steps
        while left:
            order = torch.randperm(w.samples, generator=generator)[: left * w.batch]
            # One copy of all the rows that this epoch needs; its batches are slices of it.
            for x, y in zip(inputs[order].split(w.batch), labels[order].split(w.batch), strict=True):
                self.step(x, y)
                left -= 1


def _channels_last(parameter: Tensor) -> Tensor:
    """A convolution kernel in the layout in which it is fastest; other tensors as they are."""
    if parameter.dim() != 4:
        return parameter
    if parameter.shape[1] > 1:
        return parameter.contiguous(memory_format=torch.channels_last)
    # With one input channel torch sees no difference, so the strides are written out.
    _, _, height, width = parameter.shape
    return parameter.contiguous().as_strided(parameter.shape, (height * width, 1, width, 1))


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory, which the next step needs again."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD


def _tensor(array: np.ndarray) -> Tensor:
    """A tensor on the same memory; torch warns about read-only maps, which nobody writes to here."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


def cohort(workload: Workload, round_number: int) -> np.ndarray:
    """Who takes part."""
    rng = np.random.default_rng((7, round_number))
    return np.sort(rng.choice(workload.clients, workload.cohort, replace=False))


@contextmanager
def sequential(workload: Workload, inputs: np.ndarray, labels: np.ndarray) -> Iterator[Iterator[None]]:
    """One process, one client after the other."""

    def rounds() -> Iterator[None]:
        keep_freed_memory()
        client = Client(workload, inputs, labels)
        shared = [p.detach().clone() for p in client.parameters]
        number = 0
        while True:
            chosen = cohort(workload, number)
            shared = [t / len(chosen) for t in client.train(shared, chosen, number)]
            number += 1
            yield

    yield rounds()


@contextmanager
def processes(workload: Workload, inputs: np.ndarray, labels: np.ndarray, workers: int = 2) -> Iterator[Iterator[None]]:
    """Persistent forked workers, half of the cohort each; weights travel through shared memory."""
    context = multiprocessing.get_context("fork")
    torch.manual_seed(0)
    first = [p.detach().clone() for p in workload.model().parameters()]
    down = [p.clone().share_memory_() for p in first]
    up = [[torch.zeros_like(p).share_memory_() for p in first] for _ in range(workers)]
    pipes, started = [], []
    for index in range(workers):
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, workload, inputs, labels, down, up[index]), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        started.append(process)

    def rounds() -> Iterator[None]:
        number = 0
        while True:
            chosen = cohort(workload, number)
            for pipe, part in zip(pipes, np.array_split(chosen, workers), strict=True):
                pipe.send((part, number))
            for pipe in pipes:
                pipe.recv()
            for place, parts in enumerate(zip(*up, strict=True)):
                down[place].copy_(sum(parts[1:], parts[0]) / len(chosen))
            number += 1
            yield

    try:
        yield rounds()
    finally:
        for pipe in pipes:
            pipe.close()
        for process in started:
            process.join(5)


def _serve(
    pipe: Connection, workload: Workload, inputs: np.ndarray, labels: np.ndarray, down: list[Tensor], up: list[Tensor]
) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    client = Client(workload, inputs, labels)
    while True:
        try:
            chosen, number = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        for into, total in zip(up, client.train(down, chosen, number), strict=True):
            into.copy_(total)
        pipe.send(None)
