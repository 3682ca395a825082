"""An experiment: every choice of a run, checked before anything is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.backends import Backend, Calibration, Choice, Cluster, choose, cluster_for, vectorised
from fedtempo.data.augment import Augment, PerClient, as_augment
from fedtempo.data.batches import Batching
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, DataError, ModelError, first_line, fits, is_count, is_number, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.federation import Federation
from fedtempo.federation.problem import Problem
from fedtempo.models.weights import build
from fedtempo.params import Params
from fedtempo.schedules import Schedule
from fedtempo.server.accounting import Guarantee
from fedtempo.server.admission import Admission
from fedtempo.server.cohort import Cohort, as_cohort
from fedtempo.server.faults import Faults
from fedtempo.server.policy import UploadPolicy
from fedtempo.server.robust import Aggregator, plain_mean
from fedtempo.tasks import PerSample, Task, as_task
from fedtempo.training.checks import (
    check_cohort,
    check_device,
    check_evaluation,
    check_model,
    check_rounds,
    check_schedules,
)
from fedtempo.training.private import check_private, guarantee


@dataclass(frozen=True)
class Experiment:
    """A federation and how it is to be run."""

    federation: Federation
    backend: Backend
    workers: int
    block: int
    cohort: Cohort
    rounds: int
    evaluation: Evaluation | None
    first_shared: Params
    quorum: int = 1
    over_selection: float = 0.0
    deadline: float | None = None
    """Seconds that real clients have for a round; whoever is later does not count. Simulated ones have all the time."""
    cluster: Cluster | None = None
    """The Ray cluster, where the clients run on one; `workers` is 0 for one worker per processor."""
    calibrates: bool = False
    """Whether the run finds out by itself if `workers` pay."""
    worker_timeout: float | None = None
    """Seconds of silence after which a worker counts as hung; None goes by the slowest block so far."""

    def ran_as(self, calibration: Calibration | None = None) -> str:
        """Which code runs the clients, and where, given what the run has found out."""
        if self.cluster is not None:
            return f"{self.backend.name} code on Ray"
        if calibration is None:
            return str(Choice(self.backend, 1 if self.calibrates else self.workers, self.block))
        return f"{Choice(self.backend, calibration.workers, self.block)} ({calibration})"

    def guarantee(self, rounds: int | None = None, releases: int | None = None) -> Guarantee | None:
        """What a private run guarantees its clients after so many rounds (all, by default); None for other runs."""
        return guarantee(self.federation, self.cohort, self.rounds if rounds is None else rounds, releases)

    def identity(self) -> dict[str, str]:
        """What must be the same for a stored run to be continued: every choice that decides its numbers."""
        federation = self.federation
        return {
            "version": version("fedtempo"),
            "seed": str(federation.problem.seed),
            "algorithm": repr(federation.algorithm),
            "model": _fingerprint(self.first_shared, federation.problem.model),
            "data": federation.problem.data.digest(),
            "loss": federation.problem.task.name,
            "batching": repr(federation.problem.batching),
            "augment": repr(federation.problem.augment),
            "dtype": str(federation.problem.dtype),
            "cohort": self.cohort.description,
            "rounds": str(self.rounds),
            "backend": self.backend.name,
            "block": str(self.block) if self.backend.name == vectorised.name else "any",
            "evaluation": repr(self.evaluation),
            "quorum": f"{self.quorum}, over-selection {self.over_selection}",
            "policy": repr(federation.policy),
        }


def _fingerprint(shared: Params, model: nn.Module) -> str:
    """A hash of the model's structure and of its first shared weights."""
    state = hashlib.sha256(repr(model).encode())
    for name, tensor in sorted(shared.items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def prepare(
    *,
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedData,
    algorithm: Algorithm,
    rounds: int,
    cohort: int | float | Schedule | Cohort = 1.0,
    cohorts: Sequence[Sequence[int]] | None = None,
    batch_size: int | None = 32,
    batches: str = "epochs",
    augment: Augment | PerClient | None = None,
    seed: int = 0,
    loss: str | Task | PerSample | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    init: Mapping[str, Tensor] | Literal["model"] | None = None,
    init_clients: Mapping[int, Mapping[str, Tensor]] | None = None,
    backend: str | Backend = "auto",
    workers: int | None = None,
    block: int | None = None,
    evaluation: Evaluation | None = Evaluation(),
    admission: Admission | None = None,
    faults: Faults | None = None,
    aggregator: Aggregator = plain_mean,
    quorum: int = 1,
    over_selection: float = 0.0,
    deadline: float | None = None,
    ray_address: str | None = None,
    ray_gpus: float | None = None,
    ray_loader: Callable[[], FederatedData] | None = None,
    worker_timeout: float | None = None,
) -> Experiment:
    """Check every setting and bind the pieces together; see `fedtempo.run` for their meaning."""
    _check_plain(data, algorithm, rounds, seed, dtype, device, block, workers)
    cluster = cluster_for(backend, ray_address, ray_gpus, ray_loader)
    batching, rule = Batching(batch_size, batches), as_cohort(cohort, cohorts)
    data.check()
    first = _model(model, seed, init).to(dtype=dtype, device=device)
    problem = Problem(first, data, _task(loss, data), batching, seed, dtype, device, augment=as_augment(augment))
    given = _given(init)
    federation = _with_starts(Federation(problem, algorithm), given, init_clients)
    draws_masks, independent = check_model(federation)
    problem = replace(problem, draws_masks=draws_masks, pads_batches=independent)
    federation = replace(federation, problem=problem)
    check_cohort(rule, federation, rounds)
    expected = rule.expected(federation.problem.now(0, 1.0), len(data.clients))
    check_schedules(federation, rounds, expected)
    check_evaluation(evaluation, federation)
    require(is_count(quorum) and quorum <= expected, "quorum", f"an int in [1, {expected:g}] (the cohort)", quorum)
    require(is_number(over_selection) and over_selection >= 0, "over_selection", "a number >= 0", over_selection)
    silent = worker_timeout is None or (is_number(worker_timeout) and worker_timeout > 0)
    require(silent, "worker_timeout", "a number > 0", worker_timeout)
    require(deadline is None or (is_number(deadline) and deadline > 0), "deadline", "a number > 0", deadline)
    federation = replace(federation, policy=_policy(admission, faults, aggregator))
    check_private(federation, rule, rounds, evaluation, quorum, over_selection)
    choice = choose(backend, 0 if cluster and workers is None else workers, block, first, expected)
    alone = choice.workers == 1 and cluster is None
    require(not (alone and faults and faults.kill), "faults.kill", "0 where no workers can be killed", faults)
    start = federation.first_shared(given)
    calibrates = choice.calibrates and not (faults and faults.kill)
    how = (choice.backend, choice.workers, choice.block, rule, rounds, evaluation)
    return Experiment(federation, *how, start, quorum, over_selection, deadline, cluster, calibrates, worker_timeout)


def _check_plain(
    data: Any, algorithm: Any, rounds: Any, seed: Any, dtype: Any, device: Any, block: Any, workers: Any
) -> None:
    """What can be said about each setting on its own."""
    check_rounds(rounds)
    check_device(device)
    require(isinstance(data, FederatedData), "data", "a FederatedData (split a table first)", data)
    require(isinstance(algorithm, Algorithm), "algorithm", "an Algorithm, such as fedavg(lr=0.1, steps=5)", algorithm)
    require(is_count(seed, 0), "seed", "an int >= 0", seed)
    require(isinstance(dtype, torch.dtype) and dtype.is_floating_point, "dtype", "a floating-point torch dtype", dtype)
    require(block is None or is_count(block), "block", "an int >= 1", block)
    require(workers is None or is_count(workers), "workers", "an int >= 1", workers)


def _model(model: nn.Module | Callable[[], nn.Module], seed: int, init: object) -> nn.Module:
    """The model with its first weights."""
    rule = "an nn.Module or a function that makes one"
    require(isinstance(model, nn.Module) or callable(model), "model", rule, model)
    try:
        first = build(model, seed, keep_weights=isinstance(init, str) and init == "model")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"the model cannot be made: {first_line(error)}") from error
    require(isinstance(first, nn.Module), "model", rule, first)
    return first


def _given(init: Mapping[str, Tensor] | Literal["model"] | None) -> Params | None:
    """The tensors of `init`, all finite."""
    if init is None or (isinstance(init, str) and init == "model"):
        return None
    require(isinstance(init, Mapping), "init", "a state dict, 'model' or None", init)
    for name, value in dict(init).items():
        holds = isinstance(value, Tensor) and not value.is_complex() and bool(torch.isfinite(value).all())
        require(holds, f"init[{name!r}]", "a tensor of finite numbers", value)
    return dict(init)


def _policy(admission: Admission | None, faults: Faults | None, aggregator: Aggregator) -> UploadPolicy | None:
    """What has to be looked at upload by upload; None where sums are enough."""
    require(admission is None or isinstance(admission, Admission), "admission", "an Admission", admission)
    require(faults is None or isinstance(faults, Faults), "faults", "a Faults", faults)
    require(isinstance(aggregator, Aggregator), "aggregator", "an Aggregator, such as robust.median()", aggregator)
    policy = UploadPolicy(admission or Admission(), faults or Faults(), aggregator)
    return policy if policy.needed else None


def _task(loss: str | Task | PerSample | None, data: FederatedData) -> Task:
    targets = None
    if "y" in data.columns:
        targets = torch.from_numpy(np.array(data.columns["y"][:2]))
    return as_task(loss, targets)


def _with_starts(
    federation: Federation, init: Params | None, init_clients: Mapping[int, Mapping[str, Tensor]] | None
) -> Federation:
    """Personal tensors given for everybody (in `init`) or for particular clients."""
    form = init_clients is None or fits(init_clients, Mapping[int, Mapping[str, Any]])
    require(form, "init_clients", "tensors by name, by client number", init_clients)
    names = federation.personal_names & set(init or {})
    if names and names != federation.personal_names:
        missing = min(federation.personal_names - names)
        raise ConfigError(f"init must hold all personal tensors or none. Got some, without {missing!r}.")
    template = dict(federation.problem.model.state_dict())
    common = {n: init[n].detach().clone().to(template[n].dtype) for n in names} if init and names else None
    given = {int(c): dict(tensors) for c, tensors in (init_clients or {}).items()}
    strangers = set(given) - set(range(len(federation.problem.data)))
    if strangers:
        raise DataError(f"init_clients must name clients in [0, {len(federation.problem.data)}). Got {min(strangers)}.")
    return replace(federation, common_start=common, given_clients=given)
