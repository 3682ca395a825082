"""pfl: two worker processes over torch.distributed, as its guide to fast simulations recommends.

`python -m benchmarks.peers.run_pfl W1`. The second worker is a copy of this process with another rank.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

WORKERS = 2
RANK = int(os.environ.setdefault("PFL_WORKER_RANK", "0"))


def _free_addresses() -> str:
    """Addresses on this machine that nobody uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ",".join(f"127.0.0.1:{port}" for port in ports)


# pfl reads the addresses when its torch part is imported.
os.environ.setdefault("PFL_WORKER_ADDRESSES", _free_addresses())
os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")


def start_others() -> list[subprocess.Popen[bytes]]:
    """The workers after the first; they share this process's log."""
    command = [sys.executable, "-m", "benchmarks.peers.run_pfl", *sys.argv[1:]]
    return [
        subprocess.Popen(command, env={**os.environ, "PFL_WORKER_RANK": str(rank)}, stdin=subprocess.DEVNULL)
        for rank in range(1, WORKERS)
    ]


def train(name: str, begin: Callable[[Any], bool], done: Callable[[list[int]], None]) -> None:
    """Federated averaging until `begin` says no."""
    import numpy as np
    import torch
    import torch.nn.functional as F
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    from benchmarks.handwritten import cohort
    from benchmarks.peers.plan import batches, first_model, opened, tensor
    from benchmarks.workloads import by_name

    torch.set_num_threads(1)
    workload = by_name(name)
    inputs, labels = (tensor(column) for column in opened(workload))

    class Model(torch.nn.Module):
        """The workload's model with the two functions pfl calls."""

        def __init__(self) -> None:
            super().__init__()
            self.network = first_model(workload)

        def loss(self, x: Any, y: Any) -> Any:
            return F.cross_entropy(self.network(x), y)

        def metrics(self, x: Any, y: Any) -> dict[str, Any]:
            return {}

    class User(Dataset):
        """A client in one round, with its batches in the agreed order."""

        def __init__(self, place: tuple[int, int]) -> None:
            super().__init__((), user_id=str(place[1]))
            self.place = place

        def __len__(self) -> int:
            return workload.samples

        def iter(self, batch_size: int | None) -> Iterator[Any]:
            number, client = self.place
            return batches(workload, inputs, labels, client, number)

    def users() -> Iterator[tuple[int, int]]:
        number = 0
        while True:
            yield from ((number, client) for client in cohort(workload, number).tolist())
            number += 1

    class Turn(TrainingProcessCallback):
        """Between rounds: the first worker waits for its turn, the others wait for the first."""

        def on_train_begin(self, *, model: Any) -> Any:
            self.wait(model)
            return Metrics()

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            done(cohort(workload, central_iteration).tolist())
            return not self.wait(model), Metrics()

        def wait(self, model: Any) -> bool:
            more = torch.tensor([int(begin(model.pytorch_model.network))])
            torch.distributed.broadcast(more, 0)
            return bool(more)

    np.random.seed(0)
    module, sampler = Model(), users()
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    data = FederatedDataset(User, lambda: next(sampler))
    rounds = NNAlgorithmParams(
        central_num_iterations=10**9,
        evaluation_frequency=10**9,
        train_cohort_size=workload.cohort,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_num_epochs=None,
        local_num_steps=workload.steps,
        local_learning_rate=workload.lr,
        local_batch_size=workload.batch,
    )
    FederatedAveraging().run(
        algorithm_params=rounds,
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=local,
        callbacks=[Turn()],
        send_metrics_to_platform=False,
    )


def first_worker(turns: Any) -> None:
    """Take turns with the driver."""
    others = start_others()
    told = False

    def begin(network: Any) -> bool:
        nonlocal told
        if not told:
            turns.ready(f"torch.distributed (gloo), {WORKERS} worker processes", "pfl", "torch")
            told = True
        return bool(turns.begin(lambda: [p.detach().numpy() for p in network.parameters()]))

    train(sys.argv[1], begin, turns.done)
    for other in others:
        other.wait(10)


def main() -> None:
    """The worker that this process is."""
    if RANK:
        train(sys.argv[1], lambda _: True, lambda _: None)
    else:
        from benchmarks.peers.turns import serve

        serve(first_worker)


if __name__ == "__main__":
    main()
