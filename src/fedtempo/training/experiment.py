"""An experiment: every choice of a run, checked before anything is trained.

`prepare` turns the user's settings into an `Experiment`, or refuses them. `training/loop.py` trains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
from fedtempo.devices import Devices, OwnDevices, as_devices
from fedtempo.errors import ConfigError, is_count, is_number, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.federation import Federation
from fedtempo.federation.problem import Problem
from fedtempo.metrics import Metric
from fedtempo.models.weights import KEPT, Start
from fedtempo.params import Params
from fedtempo.schedules import Schedule
from fedtempo.server.accounting import Guarantee
from fedtempo.server.admission import Admission
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.cohort import Cohort, as_cohort
from fedtempo.server.faults import Faults
from fedtempo.server.policy import UploadPolicy
from fedtempo.server.robust import Aggregator, plain_mean
from fedtempo.support.identity import Unstable, identity_of
from fedtempo.tasks import PerSample, Task, as_task, with_metrics
from fedtempo.training.attempt import why_not_vectorised
from fedtempo.training.check_compression import check_compression
from fedtempo.training.check_devices import check_asynchrony, check_clock, with_devices
from fedtempo.training.check_model import check_model
from fedtempo.training.check_scoring import check_metrics, check_sample_weights, first_targets, fitted_task
from fedtempo.training.checks import (
    check_cohort,
    check_device,
    check_evaluation,
    check_rounds,
    check_schedules,
)
from fedtempo.training.first_state import first_model, given_tensors, start_notes, with_starts
from fedtempo.training.private import check_private, guarantee

CONTENT = " (content)"
"""Ends the names of identity fields that are hashes and stand beside a field in words."""


@dataclass(frozen=True)
class Experiment:
    """A federation and how it is to be run. `backend`, `workers` and `block` are settled: nothing here says "auto"."""

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
    """Seconds that clients have for a round; later answers do not count. Without devices nobody simulated is late."""
    partial_work: bool = False
    """Whether simulated clients stop at the deadline and send what they have."""
    asynchrony: Asynchrony | None = None
    """How uploads are taken as they come; None waits for whole cohorts."""
    cluster: Cluster | None = None
    """The Ray cluster, where the clients run on one; `workers` is 0 for one worker per processor."""
    calibrates: bool = False
    """Whether the first round measures if `workers` save time; if not, clients run in this process."""
    worker_timeout: float | None = None
    """Seconds of silence after which a worker counts as hung; None goes by the slowest block so far."""
    start: Start = KEPT
    """Where the first weights come from."""
    notes: tuple[str, ...] = ()
    """What was decided for the user and might surprise, a line each."""

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

    def describe(self) -> dict[str, str]:
        """Every choice that decides the run's numbers, in words."""
        federation = self.federation
        words = {
            "version": version("fedtempo"),
            "seed": str(federation.problem.seed),
            "algorithm": repr(federation.algorithm),
            "start": self.start.words,
            "loss": ("the model's own, " if federation.problem.task.own else "") + federation.problem.task.name,
            "metrics": f"{federation.problem.task.metric} of {list(federation.problem.task.scores.values())}",
            "batching": repr(federation.problem.batching),
            "augment": repr(federation.problem.augment),
            "dtype": str(federation.problem.dtype) + (", autocast" if federation.problem.autocast else ""),
            "cohort": self.cohort.description,
            "rounds": str(self.rounds),
            "backend": self.backend.name,
            "block": str(self.block) if self.backend.name == vectorised.name else "any",
            "evaluation": repr(self.evaluation),
            "quorum": f"{self.quorum}, over-selection {self.over_selection}",
            "policy": repr(federation.policy),
        }
        # Only where there are some: a run without them is the same run as before there was a clock.
        if federation.problem.devices is not None:
            partial = ", partial work" if self.partial_work else ""
            words["devices"] = f"{federation.problem.devices.devices!r}, deadline {self.deadline}{partial}"
        if self.asynchrony is not None:
            words["asynchrony"] = repr(self.asynchrony)
        # A function prints with its address, which is another one in every process.
        return {name: re.sub(r" at 0x[0-9a-f]+", "", text) for name, text in words.items()}

    def identity(self, strict: bool = True) -> dict[str, str]:
        """What must be equal for a stored run to be continued: every choice, in words and by a hash of its content.

        The content is code and values: of the algorithm, the model, the data, the loss and the metrics. A part without
        a stable identity, such as a function that captures a list, is an error. Without `strict` its field says "not
        stable".
        """
        contents = {name: _content(part, name.removesuffix(CONTENT), strict) for name, part in self._parts()}
        return {**self.describe(), **contents}

    def _parts(self) -> Iterator[tuple[str, object]]:
        federation, problem = self.federation, self.federation.problem
        # Field by field, so that the error names the part that differs. Name and settings are in `describe` already.
        for part in fields(federation.algorithm):
            if part.name not in ("name", "settings"):
                yield f"algorithm.{part.name}{CONTENT}", getattr(federation.algorithm, part.name)
        yield "model", (problem.model, self.first_shared)
        yield "data", problem.data
        yield f"init_clients{CONTENT}", (federation.common_start, federation.given_clients)
        yield f"loss{CONTENT}", problem.task
        yield f"augment{CONTENT}", problem.augment
        yield f"cohort{CONTENT}", self.cohort
        yield f"evaluation{CONTENT}", self.evaluation
        yield f"policy{CONTENT}", federation.policy
        if problem.devices is not None:
            yield f"devices{CONTENT}", problem.devices.devices.identity()


def _content(part: object, name: str, strict: bool) -> str:
    try:
        return identity_of(part, name)[:32]
    except Unstable as error:
        if not strict:
            return "not stable"
        raise ConfigError(f"out must be left out for a run that a new process could not recognise: {error}") from None


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
    metrics: Sequence[str | Metric] | None = None,
    metric: str | Metric | None = None,
    dtype: torch.dtype = torch.float32,
    autocast: bool = False,
    device: str = "cpu",
    init: Mapping[str, Tensor] | Literal["model", "seed"] | None = None,
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
    devices: Devices | OwnDevices | None = None,
    partial_work: bool = False,
    asynchrony: Asynchrony | None = None,
    ray_address: str | None = None,
    ray_gpus: float | None = None,
    ray_loader: Callable[[], FederatedData] | None = None,
    worker_timeout: float | None = None,
) -> Experiment:
    """Check every setting and bind the pieces together; see `fedtempo.run` for their meaning.

    The order is from cheap to expensive and from general to particular: settings on their own, then data, model and
    task, then the model on a real batch, then what depends on the cohort, last the backend.
    """
    _check_plain(data, algorithm, rounds, seed, dtype, device, block, workers)
    cluster = cluster_for(backend, ray_address, ray_gpus, ray_loader)
    batching, rule = Batching(batch_size, batches), as_cohort(cohort, cohorts)
    data.check()
    # Weights that are drawn depend on the run's seed alone, not on what the program drew before this call.
    first, origin = first_model(model, seed, init, data)
    first = first.to(dtype=dtype, device=device)
    require(isinstance(autocast, bool), "autocast", "true or false", autocast)
    check_sample_weights(data)
    task = with_metrics(as_task(loss, first_targets(data)), metrics, metric)
    pieces = (first, data, task, batching, seed, dtype, device)
    problem = Problem(*pieces, augment=as_augment(augment), autocast=autocast)
    given = given_tensors(init)
    federation = with_starts(Federation(problem, fitted(algorithm, first, data.clients)), given, init_clients, origin)
    # Only running the model on a batch tells whether it draws dropout masks and whether its rows influence each other.
    # What is found out goes into the problem, so the federation is rebuilt on it.
    draws_masks, pads_batches, pads_scoring, outputs, targets = check_model(federation)
    # A metric that the user asked for must fit the model's outputs. A default metric that does not fit is left out.
    task = fitted_task(federation, outputs, targets)
    problem = replace(problem, task=task, draws_masks=draws_masks, pads_batches=pads_batches, pads_scoring=pads_scoring)
    federation = replace(federation, problem=problem)
    if evaluation is not None:
        check_metrics(federation)
    federation = with_devices(federation, as_devices(devices), evaluation, federation.first_shared(given))
    check_cohort(rule, federation, rounds)
    expected = rule.expected(federation.problem.now(0, 1.0), len(data.clients))
    # Schedules may be the user's functions: try them over the whole run now rather than fail in round 900.
    check_schedules(federation, rounds, expected)
    check_evaluation(evaluation, federation)
    require(is_count(quorum) and quorum <= expected, "quorum", f"an int in [1, {expected:g}] (the cohort)", quorum)
    require(is_number(over_selection) and over_selection >= 0, "over_selection", "a number >= 0", over_selection)
    silent = worker_timeout is None or (is_number(worker_timeout) and worker_timeout > 0)
    require(silent, "worker_timeout", "a number > 0", worker_timeout)
    federation = replace(federation, policy=_policy(admission, faults, aggregator))
    check_private(federation, rule, rounds, evaluation, quorum, over_selection)
    check_compression(federation)
    check_clock(federation, deadline, partial_work)
    start = federation.first_shared(given)
    federation = federation.with_averaged_optimizers(start).with_estimates()
    check_asynchrony(asynchrony, federation, rule, rounds, quorum, over_selection)
    # The backend comes last: it depends on the model's size and the cohort, and "auto" falls back to serial code for a
    # model that `vmap` cannot run. On Ray, 0 workers stands for one per processor of the cluster.
    asked = (backend, 0 if cluster and workers is None else workers, block, first, expected)
    rows = batch_size or int(np.median(federation.problem.sizes[data.clients]))
    choice = choose(*asked, device=device, batch=rows)
    obstacle = why_not_vectorised(federation, start) if backend == "auto" and choice.backend is vectorised else None
    choice = choose(*asked, vectorises=False, device=device, batch=rows) if obstacle else choice
    # Killing workers needs workers, so such a run does not wait for a measurement to start them.
    alone = choice.workers == 1 and cluster is None
    require(not (alone and faults and faults.kill), "faults.kill", "0 where no workers can be killed", faults)
    calibrates = choice.calibrates and not (faults and faults.kill)
    how = (choice.backend, choice.workers, choice.block, rule, rounds, evaluation)
    rules = (quorum, over_selection, deadline, partial_work, asynchrony)
    words = start_notes(federation, origin, given, obstacle)
    return Experiment(federation, *how, start, *rules, cluster, calibrates, worker_timeout, *words)


def fitted(algorithm: Algorithm, model: nn.Module, clients: np.ndarray) -> Algorithm:
    """The algorithm whose server knows the model and the training clients, where it has to."""
    server = algorithm.server.fitted
    return algorithm if server is None else replace(algorithm, server=server(model, tuple(clients.tolist())))


def _check_plain(
    data: Any, algorithm: Any, rounds: Any, seed: Any, dtype: Any, device: Any, block: Any, workers: Any
) -> None:
    """Check the settings that can be judged without looking at any other."""
    check_rounds(rounds)
    check_device(device)
    require(isinstance(data, FederatedData), "data", "a FederatedData (split a table first)", data)
    require(isinstance(algorithm, Algorithm), "algorithm", "an Algorithm, such as fedavg(lr=0.1, steps=5)", algorithm)
    require(is_count(seed, 0), "seed", "an int >= 0", seed)
    require(isinstance(dtype, torch.dtype) and dtype.is_floating_point, "dtype", "a floating-point torch dtype", dtype)
    require(block is None or is_count(block), "block", "an int >= 1", block)
    require(workers is None or is_count(workers), "workers", "an int >= 1", workers)


def _policy(admission: Admission | None, faults: Faults | None, aggregator: Aggregator) -> UploadPolicy | None:
    """The rules that need every upload by itself; None where sums are enough, which is faster."""
    require(admission is None or isinstance(admission, Admission), "admission", "an Admission", admission)
    require(faults is None or isinstance(faults, Faults), "faults", "a Faults", faults)
    require(isinstance(aggregator, Aggregator), "aggregator", "an Aggregator, such as robust.median()", aggregator)
    policy = UploadPolicy(admission or Admission(), faults or Faults(), aggregator)
    return policy if policy.needed else None
