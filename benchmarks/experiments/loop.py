"""The experiments by hand in two processes, as lean as we know: the loop that FedTempo is compared with.

`python -m benchmarks.experiments.loop E1`: clients stay with a process, so that what they keep stays there too; a
model travels once per process and round, through shared memory. Gradients come from `autograd.grad`, updates are fused
over all tensors, convolutions are channels-last, and the allocator keeps its memory (`MALLOC`).
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection

import torch

from benchmarks.experiments.data import columns
from benchmarks.experiments.methods import METHODS, scored
from benchmarks.experiments.plan import Experiment, by_name, cohort, due
from benchmarks.experiments.site import Site, Tensors
from benchmarks.experiments.table import Rows, finish

WORKERS = 2


def work(pipe: Connection, experiment: Experiment, name: str, down: Tensors, up: Tensors) -> None:
    """One of the processes: sums of uploads and scores of its clients, as told."""
    torch.set_num_threads(1)
    site, method = Site(experiment, columns(experiment), lean=True), METHODS[name]
    _, first = method.first(site)
    kept: dict[int, Tensors] = {}
    sums = list(up.values())
    while True:
        try:
            order, clients = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if order == "score":
            pipe.send([scored(site, method, client, down, kept.get(client, first)) for client in clients])
            continue
        torch._foreach_zero_(sums)
        for client in clients:
            upload, kept[client] = method.client(site, client, down, kept.get(client, first))
            torch._foreach_add_(sums, [upload[n] for n in up])
        pipe.send(None)


def run(experiment: Experiment, name: str) -> tuple[Rows, Tensors]:
    """One method to its end: scores by evaluation, and the shared tensors."""
    context = multiprocessing.get_context("fork")
    method = METHODS[name]
    sent, _ = method.first(Site(experiment, columns(experiment), lean=True))
    down = {n: t.clone().share_memory_() for n, t in sent.items()}
    ups = [{n: torch.zeros_like(t).share_memory_() for n, t in sent.items()} for _ in range(WORKERS)]
    pipes, started = [], []
    for up in ups:
        here, there = context.Pipe()
        started.append(context.Process(target=work, args=(there, experiment, name, down, up), daemon=True))
        started[-1].start()
        pipes.append(here)

    def ask(order: str, clients: list[int]) -> list[list[list[float]]]:
        for place, pipe in enumerate(pipes):
            pipe.send((order, [client for client in clients if client % WORKERS == place]))
        return [pipe.recv() for pipe in pipes]

    rows: Rows = []
    for number in range(experiment.rounds):
        ask("train", cohort(experiment, number))
        mean = {n: sum(up[n] for up in ups) / experiment.cohort for n in down}
        for n, tensor in method.server(experiment, down, mean).items():
            down[n].copy_(tensor)
        if due(experiment, number):
            answers = ask("score", list(range(experiment.clients)))
            everybody = torch.tensor([user for answer in answers for user in answer])
            rows.append((number + 1, everybody.mean(0).tolist()))
    for process in started:
        process.terminate()
    return rows, {n: t.clone() for n, t in down.items()}


def main() -> None:
    """All methods of an experiment, one after the other."""
    torch.set_num_threads(1)
    experiment = by_name(sys.argv[1])
    finish(experiment, {name: run(experiment, name) for name in experiment.methods})


if __name__ == "__main__":
    main()
