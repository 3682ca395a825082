"""The loops a careful person writes by hand: plain modules, torch's own SGD, state averaging, nothing of ours.

Data are tensors that forked workers share; every process has one thread; a model travels once per worker and round.
"""

from __future__ import annotations

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
    """One model and one optimizer, used for one client after the other."""

    def __init__(self, workload: Workload, inputs: np.ndarray, labels: np.ndarray) -> None:
        torch.manual_seed(0)
        self.workload = workload
        self.inputs, self.labels = _tensor(inputs), _tensor(labels)
        self.model = workload.model()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=workload.lr)

    def train(self, shared: list[Tensor], clients: np.ndarray, seed: int) -> list[Tensor]:
        """The sum of the weights these clients end with."""
        total = [torch.zeros_like(p) for p in shared]
        for client in clients.tolist():
            with torch.no_grad():
                for mine, theirs in zip(self.parameters, shared, strict=True):
                    mine.copy_(theirs)
            self._steps(client, seed)
            with torch.no_grad():
                for into, mine in zip(total, self.parameters, strict=True):
                    into.add_(mine)
        return total

    def _steps(self, client: int, seed: int) -> None:
        w = self.workload
        rows = slice(client * w.samples, (client + 1) * w.samples)
        inputs, labels = self.inputs[rows], self.labels[rows]
        generator = torch.Generator().manual_seed(seed * 1_000_003 + client)
        order = torch.randperm(w.samples, generator=generator)
        place = 0
        for _ in range(w.steps):
            if place >= w.samples:
                order, place = torch.randperm(w.samples, generator=generator), 0
            index = order[place : place + w.batch]
            place += w.batch
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(inputs[index]), labels[index]).backward()
            self.optimizer.step()


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
    client = Client(workload, inputs, labels)
    while True:
        try:
            chosen, number = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        for into, total in zip(up, client.train(down, chosen, number), strict=True):
            into.copy_(total)
        pipe.send(None)
