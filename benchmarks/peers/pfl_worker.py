"""One of pfl's workers. Where they meet is said by environment variables that pfl reads when it is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

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
from torch import Tensor

from benchmarks.handwritten import cohort
from benchmarks.peers.plan import batches, first_model, opened, tensor
from benchmarks.workloads import Workload, by_name

NEVER = 10**9


class Model(torch.nn.Module):
    """The workload's model with the two functions pfl calls."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.network = first_model(workload)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class User(Dataset):
    """A client in one round, with its batches in the agreed order."""

    def __init__(self, workload: Workload, columns: tuple[Tensor, Tensor], place: tuple[int, int]) -> None:
        super().__init__((), user_id=str(place[1]))
        self.workload, self.columns, self.place = workload, columns, place

    def __len__(self) -> int:
        return self.workload.samples

    def iter(self, batch_size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        number, client = self.place
        return batches(self.workload, *self.columns, client, number)


class Turn(TrainingProcessCallback):
    """Between rounds: the first worker waits for its turn, the others wait for the first."""

    def __init__(self, workload: Workload, begin: Callable[[Any], bool], done: Callable[[list[int]], None]) -> None:
        self.workload, self.begin, self.done = workload, begin, done

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.wait(model)
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.done(cohort(self.workload, central_iteration).tolist())
        return not self.wait(model), Metrics()

    def wait(self, model: PyTorchModel) -> bool:
        more = torch.tensor([int(self.begin(model.pytorch_model.network))])
        torch.distributed.broadcast(more, 0)
        return bool(more)


def users(workload: Workload) -> Iterator[tuple[int, int]]:
    """Round and client, one cohort after the other."""
    number = 0
    while True:
        yield from ((number, client) for client in cohort(workload, number).tolist())
        number += 1


def train(name: str, begin: Callable[[Any], bool], done: Callable[[list[int]], None]) -> None:
    """Federated averaging until the first worker's `begin` says no."""
    torch.set_num_threads(1)
    np.random.seed(0)
    workload = by_name(name)
    inputs, labels = (tensor(column) for column in opened(workload))
    module, sampler = Model(workload), users(workload)
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    data = FederatedDataset(lambda place: User(workload, (inputs, labels), place), lambda: next(sampler))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=NEVER,
            evaluation_frequency=NEVER,
            train_cohort_size=workload.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=workload.steps,
            local_learning_rate=workload.lr,
            local_batch_size=workload.batch,
        ),
        callbacks=[Turn(workload, begin, done)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    train(sys.argv[1], lambda network: True, lambda clients: None)
