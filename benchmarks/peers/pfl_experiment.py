"""One of pfl's workers in a whole experiment: its federated averaging, its local training, its metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.algorithm_utils import run_train_eval
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.data.user_state import DiskUserStateStorage
from pfl.exception import UserNotFoundError
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, TrainMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from torch import Tensor

from benchmarks.experiments.data import columns
from benchmarks.experiments.methods import METHODS, scored
from benchmarks.experiments.plan import Experiment, by_name, cohort, due, first_network
from benchmarks.experiments.site import Site, Tensors, as_tensor
from benchmarks.experiments.table import Rows, finish

STATES = "BENCH_PFL_STATES"
"""The environment variable that names the folder with what users keep; all workers share it."""


class Network(torch.nn.Module):
    """The experiment's network with the two functions pfl calls."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        self.network = first_network(experiment)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.network.train()
        return F.cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.network.eval()
        # One number per user: the table has the mean over users.
        return {"accuracy": Weighted.from_unweighted(float((self.network(x).argmax(1) == y).float().mean()))}


class WithBuffers(PyTorchModel):
    """pfl's model, which also averages the running means of BatchNorm."""

    def __init__(self, model: torch.nn.Module) -> None:
        floats = {n: b for n, b in model.named_buffers() if b.is_floating_point()}
        trained = [p for p in model.parameters() if p.requires_grad]
        server = torch.optim.SGD([*trained, *floats.values()], lr=1.0)
        super().__init__(model=model, local_optimizer_create=torch.optim.SGD, central_optimizer=server)
        self._variable_map |= floats


class User(Dataset):
    """A client's training rows in order, or its test rows."""

    def __init__(self, experiment: Experiment, data: tuple[Tensor, Tensor], client: int, part: str = "train") -> None:
        super().__init__((), user_id=str(client))
        self.experiment, self.data, self.client = experiment, data, client
        start = client * experiment.rows + (experiment.train if part == "test" else 0)
        self.place = slice(start, start + (experiment.test if part == "test" else experiment.train))

    def __len__(self) -> int:
        return self.place.stop - self.place.start

    def iter(self, batch_size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = (column[self.place] for column in self.data)
        return zip(x.split(batch_size or len(x)), y.split(batch_size or len(y)), strict=True)

    def test(self) -> User:
        """The same client's test rows."""
        return User(self.experiment, self.data, self.client, "test")


class Cohorts(FederatedDatasetBase):
    """Given cohorts, one after the other; every other client of a cohort is this worker's.

    pfl's own data set draws in step only where the workers divide a cohort: of five clients, one came twice.
    """

    def __init__(self, user: Callable[[int], User], cohorts: Iterator[list[int]]) -> None:
        super().__init__()
        self.user, self.cohorts = user, cohorts

    def __next__(self) -> tuple[User, int]:
        raise NotImplementedError("users come in cohorts")

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[User, int]]:
        workers = self._get_ops().distributed
        for client in next(self.cohorts)[workers.global_rank :: workers.world_size]:
            yield self.user(client), self._get_seed()


class Tuned(FederatedAveraging):
    """pfl's federated averaging; users of the validation population are scored before and after local training."""

    def simulate_one_user(
        self, model: PyTorchModel, user_dataset: User, central_context: CentralContext[Any, Any]
    ) -> tuple[Any, Metrics]:
        if central_context.population == Population.TRAIN:
            return super().simulate_one_user(model, user_dataset, central_context)
        self._initial_model_state = model.get_parameters(self._initial_model_state)
        metrics = model.evaluate(user_dataset.test(), lambda n: TrainMetricName(n, Population.VAL, False))
        if user_dataset.experiment.tunes:
            self.train_one_user(self._initial_model_state, model, user_dataset, central_context)
            metrics |= model.evaluate(user_dataset.test(), lambda n: TrainMetricName(n, Population.VAL, True))
            model.set_parameters(self._initial_model_state)
        return None, metrics


class Stateful(FederatedAveraging):
    """A method whose users keep something: the client's half in plain torch, as the other frameworks have it.

    pfl's own storage on disk holds what users keep, because a user may come to another worker in the next round. Its
    own SCAFFOLD cannot be taken: E3 clips the gradient together with control variates and weight decay.
    """

    def __init__(self, site: Site, name: str) -> None:
        super().__init__()
        self.site, self.name, self.method = site, name, METHODS[name]
        self.sent, self.first = self.method.first(site)
        self.storage = DiskUserStateStorage(os.environ[STATES])

    def simulate_one_user(
        self, model: PyTorchModel, user_dataset: User, central_context: CentralContext[Any, Any]
    ) -> tuple[Any, Metrics]:
        client, user = user_dataset.client, str(user_dataset.user_id)
        if central_context.population != Population.TRAIN:
            found = scored(self.site, self.method, client, self.sent, self.kept(user))
            names = [TrainMetricName("accuracy", Population.VAL, after) for after in (False, True)]
            return None, Metrics([(n, Weighted.from_unweighted(s)) for n, s in zip(names, found, strict=False)])
        upload, kept = self.method.client(self.site, client, self.sent, self.kept(user))
        self.storage.save_state(kept, user, self.name)
        return MappedVectorStatistics(upload), Metrics()

    def kept(self, user: str) -> Tensors:
        """What a user keeps."""
        try:
            return self.storage.load_state(user, self.name)
        except UserNotFoundError:
            return self.first

    def process_aggregated_statistics(
        self,
        central_context: CentralContext[Any, Any],
        aggregate_metrics: Metrics,
        model: PyTorchModel,
        statistics: MappedVectorStatistics,
    ) -> tuple[PyTorchModel, Metrics]:
        statistics.average()
        self.sent = self.method.server(self.site.experiment, self.sent, dict(statistics.items()))
        return model, Metrics()


class Scored(TrainingProcessCallback):
    """After the rounds in question, all users are simulated as a validation population."""

    def __init__(
        self, experiment: Experiment, algorithm: FederatedAveraging, backend: SimulatedBackend, settings: Any
    ) -> None:
        self.experiment, self.algorithm, self.backend, self.settings = experiment, algorithm, backend, settings
        self.rows: Rows = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        if due(self.experiment, central_iteration):
            params, train = self.settings
            context = CentralContext(
                central_iteration,
                True,
                self.experiment.clients,
                Population.VAL,
                params,
                replace(train, local_num_epochs=1),
            )
            ((_, found),) = run_train_eval(self.algorithm, self.backend, model, (context,))
            names = [TrainMetricName("accuracy", Population.VAL, after) for after in (False, True)]
            scores = [found[name].overall_value for name in names[: 1 + self.experiment.tunes]]
            self.rows.append((central_iteration + 1, scores))
        return False, Metrics()


def run(experiment: Experiment, name: str) -> tuple[Rows, dict[str, Tensor]]:
    """One method to its end."""
    x, y = (as_tensor(column) for column in columns(experiment))
    chosen = (cohort(experiment, number) for number in range(experiment.rounds))
    everybody = (list(range(experiment.clients)) for _ in range(experiment.rounds))
    training, scoring = (Cohorts(lambda client: User(experiment, (x, y), client), of) for of in (chosen, everybody))
    per_epoch = -(-experiment.train // experiment.batch)
    params = NNAlgorithmParams(experiment.rounds, experiment.rounds + 1, experiment.cohort, 0)
    train = NNTrainHyperParams(
        local_num_epochs=experiment.steps // per_epoch,
        local_learning_rate=experiment.lr,
        local_batch_size=experiment.batch,
    )
    backend, model = SimulatedBackend(training_data=training, val_data=scoring), WithBuffers(Network(experiment))
    algorithm = Tuned() if name == "FedAvg" else Stateful(Site(experiment, columns(experiment), lean=False), name)
    scores = Scored(experiment, algorithm, backend, (params, train))
    algorithm.run(params, backend, model, train, callbacks=[scores], send_metrics_to_platform=False)
    if isinstance(algorithm, Stateful):
        return scores.rows, algorithm.sent
    return scores.rows, {n.removeprefix("network."): t.detach() for n, t in model.variable_map.items()}


def main(name: str, first: bool = False) -> None:
    """All methods of an experiment, one after the other; the first worker prints the table."""
    torch.set_num_threads(1)
    np.random.seed(0)
    experiment = by_name(name)
    found = {method: run(experiment, method) for method in experiment.methods}
    if first:
        finish(experiment, found, "pfl", "torch")


if __name__ == "__main__":
    main(sys.argv[1])
