"""`python -m benchmarks.peers.run_blazefl_experiment E1`: whole experiments in BlazeFL.

Its process pool with tensors in shared memory. What a client keeps lies in a file of its own from round to round, as
BlazeFL keeps the state of a client's random numbers.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from blazefl.core import IPCMode, ProcessPoolClientTrainer, SHMHandle
from torch import Tensor

from benchmarks.experiments.data import columns
from benchmarks.experiments.methods import METHODS, scored
from benchmarks.experiments.plan import Experiment, by_name, cohort, due
from benchmarks.experiments.site import Site, Tensors, packed, unpacked
from benchmarks.experiments.table import Rows, finish

WORKERS = 2
INHERITED: dict[str, Any] = {}
"""The site, made before the pools are forked."""


@dataclass
class Down:
    """What the server sends, for a round of this method or for scoring its users."""

    parameters: Tensor
    method: str
    scores: bool


@dataclass
class Up:
    """What a client sends: its upload, or its scores."""

    parameters: Tensor | SHMHandle


class Trainer(ProcessPoolClientTrainer[Up, Down, Path]):
    """A client's configuration is the file with what it keeps."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.folder = experiment, folder
        self.num_parallels, self.device, self.device_count = WORKERS, "cpu", 0
        self.share_dir, self.ipc_mode = folder, IPCMode.SHARED_MEMORY
        self.cache: list[Up] = []
        self.manager = mp.Manager()
        self.stop_event = self.manager.Event()
        self.width = 0

    def get_client_config(self, cid: int) -> Path:
        return self.folder / f"{cid}.pt"

    def prepare_uplink_package_buffer(self) -> Up:
        return Up(torch.empty(self.width))

    def uplink_package(self) -> list[Up]:
        package, self.cache = self.cache, []
        return package

    @staticmethod
    def worker(  # type: ignore[override]
        config: Path, payload: Down, device: str, stop_event: threading.Event, *, shm_buffer: Up | None = None
    ) -> Up:
        site, (first_sent, first_kept) = INHERITED["site"], INHERITED[payload.method]
        method, client = METHODS[payload.method], int(config.stem)
        sent = unpacked(payload.parameters, first_sent)
        kept = torch.load(config) if config.exists() else first_kept
        assert shm_buffer is not None and isinstance(shm_buffer.parameters, Tensor)
        if payload.scores:
            shm_buffer.parameters.copy_(torch.tensor(scored(site, method, client, sent, kept)))
            return Up(SHMHandle())
        upload, kept = method.client(site, client, sent, kept)
        if kept:
            torch.save(kept, config)
        shm_buffer.parameters.copy_(packed(upload))
        return Up(SHMHandle())


def run(experiment: Experiment, name: str, folder: Path) -> tuple[Rows, Tensors]:
    """One method to its end."""
    first, _ = INHERITED[name]
    sent, method, rows = dict(first), METHODS[name], []
    trainer = Trainer(experiment, folder)

    def asked(clients: list[int], scores: bool, width: int) -> Tensor:
        trainer.width = width
        trainer.local_process(Down(packed(sent), name, scores), clients)
        return torch.stack([package.parameters for package in trainer.uplink_package()])

    for number in range(experiment.rounds):
        uploads = asked(cohort(experiment, number), False, sum(t.numel() for t in sent.values()))
        sent = method.server(experiment, sent, unpacked(uploads.mean(0), first))
        if due(experiment, number):
            scores = asked(list(range(experiment.clients)), True, 1 + experiment.tunes)
            rows.append((number + 1, scores.mean(0).tolist()))
    return rows, sent


def main() -> None:
    """All methods of an experiment, one after the other."""
    torch.set_num_threads(1)
    experiment = by_name(sys.argv[1])
    site = Site(experiment, columns(experiment), lean=False)
    INHERITED["site"] = site
    found = {}
    for name in experiment.methods:
        INHERITED[name] = METHODS[name].first(site)
    for name in experiment.methods:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run(experiment, name, Path(folder))
    finish(experiment, found, "blazefl", "torch")


if __name__ == "__main__":
    main()
