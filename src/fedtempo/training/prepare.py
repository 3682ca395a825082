"""From the user's settings to an `Experiment`: every setting is checked before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.backends import Backend, Choice, choose, cluster_for, parameters_of_a_step, vectorised
from fedtempo.data.augment import Augment, PerClient, as_augment
from fedtempo.data.batches import Batching
from fedtempo.data.federated import FederatedData
from fedtempo.devices import Devices, OwnDevices, as_devices
from fedtempo.errors import is_count, is_number, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.federation import Federation
from fedtempo.federation.problem import Problem
from fedtempo.metrics import Metric
from fedtempo.models.weights import put_on
from fedtempo.params import Params
from fedtempo.schedules import Now, Schedule
from fedtempo.server.admission import Admission
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.cohort import Cohort, as_cohort
from fedtempo.server.fault_injection import Faults
from fedtempo.server.policy import UploadPolicy
from fedtempo.server.robust import Aggregator, plain_mean
from fedtempo.support.accelerator import AUTO, device_of
from fedtempo.tasks import PerSample, Task, as_task, scored_on_next_tokens, with_metrics
from fedtempo.training.checks.compression import check_compression
from fedtempo.training.checks.devices import check_asynchrony, check_clock, with_devices
from fedtempo.training.checks.functions import check_functions
from fedtempo.training.checks.model import check_model
from fedtempo.training.checks.scoring import check_metrics, check_sample_weights, first_targets, fitted_task
from fedtempo.training.checks.settings import (
    check_aggregator,
    check_cohort,
    check_evaluation,
    check_personal,
    check_protocol,
    check_rounds,
    check_schedules,
    check_uploads_suffice,
)
from fedtempo.training.checks.vectorises import why_not_vectorised
from fedtempo.training.experiment import Experiment
from fedtempo.training.first_state import by_first_names, first_model, given_tensors, start_notes, with_starts
from fedtempo.training.private_runs import check_private


def prepare(
    *,
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedData,
    algorithm: Algorithm,
    rounds: int,
    cohort: int | float | Schedule | Callable[[Now], float] | Cohort = 1.0,
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
    _check_plain(data, algorithm, rounds, seed, dtype, block, workers, autocast, over_selection, worker_timeout)
    check_protocol(evaluation)
    asked_for, device = device, device_of(device)
    cluster = cluster_for(backend, ray_address, ray_gpus, ray_loader)
    batching, rule, given = Batching(batch_size, batches), as_cohort(cohort, cohorts), given_tensors(init)
    data.check()
    check_sample_weights(data)
    # Weights that are drawn depend on the run's seed alone, not on what the program drew before this call.
    first, origin = first_model(model, seed, init, data)
    given = by_first_names(given, first)
    task = with_metrics(as_task(loss, first_targets(data)), metrics, metric)
    pieces = (put_on(first, device, dtype), data, task, batching, seed, dtype, device)
    problem = Problem(*pieces, augment=as_augment(augment), autocast=autocast)
    federation = Federation(problem, fitted(algorithm, problem.model, data.clients))
    check_personal(federation)
    federation = _tried_on_a_batch(with_starts(federation, given, init_clients, origin), evaluation, model)
    federation = with_devices(federation, as_devices(devices), evaluation, federation.first_shared(given))
    expected = _check_rounds(federation, rule, rounds, evaluation, quorum)
    operations = check_functions(federation)
    if evaluation is not None:
        check_metrics(federation)
    federation = replace(federation, policy=_policy(admission, faults, aggregator))
    quorum = max(quorum, aggregator.fewest)
    _check_uploads(federation, rule, rounds, evaluation, quorum, over_selection)
    check_clock(federation, deadline, partial_work)
    start = federation.first_shared(given)
    federation = federation.with_averaged_optimizers(start).with_estimates()
    check_asynchrony(asynchrony, federation, rule, rounds, quorum, over_selection)
    # The backend comes last, because it depends on the model's size and the cohort. On Ray, 0 workers stands for one
    # per processor of the cluster.
    asked = 0 if cluster and workers is None else workers
    choice, obstacle = _choose_backend(federation, start, backend, asked, block, expected)
    kills = faults is not None and faults.kill > 0
    has_workers = choice.workers != 1 or cluster is not None
    require(has_workers or not kills, "faults.kill", "0 where no workers can be killed", faults)
    origin, notes = start_notes(federation, origin, given, obstacle, model)
    notes += (f"device: auto is {device!r} here",) if asked_for == AUTO else ()
    return Experiment(
        federation=federation,
        backend=choice.backend,
        workers=choice.workers,
        block=choice.block,
        cohort=rule,
        rounds=rounds,
        evaluation=evaluation,
        first_shared=start,
        quorum=quorum,
        over_selection=over_selection,
        deadline=deadline,
        partial_work=partial_work,
        asynchrony=asynchrony,
        cluster=cluster,
        # Killing workers needs workers, so such a run does not wait for a measurement to start them.
        calibrates=choice.calibrates and not kills,
        worker_timeout=worker_timeout,
        start=origin,
        notes=notes,
        operations=tuple(operations),
    )


def fitted(algorithm: Algorithm, model: nn.Module, clients: np.ndarray) -> Algorithm:
    """The algorithm whose server knows the model and the training clients, where it has to."""
    server = algorithm.server.fitted
    return algorithm if server is None else replace(algorithm, server=server(model, tuple(clients.tolist())))


def _tried_on_a_batch(federation: Federation, evaluation: Evaluation | None, model: object) -> Federation:
    """The federation with what only running the model on a batch tells: dropout masks, and rows that see each other."""
    facts = check_model(federation, evaluation, model)
    # A metric that the user asked for must fit the model's outputs. A default metric that does not fit is left out.
    if facts.next_tokens:
        known = replace(federation.problem, task=scored_on_next_tokens(federation.problem.task))
        federation = replace(federation, problem=known)
    task = fitted_task(federation, facts.outputs, facts.targets)
    problem = federation.problem.known_as(
        task=task,
        draws_masks=facts.draws_masks,
        pads_batches=facts.pads_batches,
        pads_scoring=facts.pads_scoring,
        head_of_body=facts.head_of_body,
        outputs_per_row=max(1, math.prod(facts.outputs[1:])),
        outputs_are=facts.outputs_are,
    )
    return replace(federation, problem=problem)


def _check_rounds(
    federation: Federation, cohort: Cohort, rounds: int, evaluation: Evaluation | None, quorum: int
) -> float:
    """Check what rounds will ask for; returns how many clients a round is expected to have."""
    check_cohort(cohort, federation, rounds)
    expected = cohort.expected(federation.problem.now(0, 1.0), len(federation.problem.data.clients))
    # Schedules may be the user's functions: try them over the whole run now rather than fail in round 900.
    check_schedules(federation, rounds, expected)
    check_evaluation(evaluation, federation, rounds)
    # A round may be expected to have less than one client, and may still have one.
    most = max(1.0, expected)
    require(is_count(quorum) and quorum <= most, "quorum", f"an int in [1, {most:g}] (the cohort)", quorum)
    return expected


def _check_uploads(
    federation: Federation,
    cohort: Cohort,
    rounds: int,
    evaluation: Evaluation | None,
    quorum: int,
    over_selection: float,
) -> None:
    """Check that what clients send suits the aggregator, a private mean and the compressor, where a run has them."""
    check_aggregator(federation)
    check_uploads_suffice(cohort, federation, rounds)
    check_private(federation, cohort, rounds, evaluation, quorum, over_selection)
    check_compression(federation)


def _choose_backend(
    federation: Federation, start: Params, backend: str | Backend, workers: int | None, block: int | None, cohort: float
) -> tuple[Choice, str | None]:
    """How and where clients run; and why not side by side, where `auto` would have but `vmap` cannot run the model."""
    problem = federation.problem
    rows = problem.batching.size or int(np.median(problem.sizes[problem.data.clients]))
    asked = (backend, workers, block, problem.model, cohort)
    choice = choose(*asked, device=problem.device, batch=rows, moved=parameters_of_a_step(federation))
    if backend != "auto" or choice.backend is not vectorised:
        return choice, None
    obstacle = why_not_vectorised(federation, start)
    if obstacle is None:
        return choice, None
    return choose(*asked, vectorises=False, device=problem.device, batch=rows), obstacle


def _check_plain(
    data: FederatedData,
    algorithm: Algorithm,
    rounds: int,
    seed: int,
    dtype: torch.dtype,
    block: int | None,
    workers: int | None,
    autocast: bool,
    over_selection: float,
    worker_timeout: float | None,
) -> None:
    """Check the settings that can be judged without looking at any other."""
    check_rounds(rounds)
    require(isinstance(data, FederatedData), "data", "a FederatedData (split a table first)", data)
    table = isinstance(data.bounds, np.ndarray) and data.bounds.ndim == 2 and data.bounds.shape[1] == 4
    require(table, "data.bounds", "an array with four positions per client, as from_clients makes it", data.bounds)
    require(isinstance(algorithm, Algorithm), "algorithm", "an Algorithm, such as fedavg(lr=0.1, steps=5)", algorithm)
    require(is_count(seed, 0), "seed", "an int >= 0", seed)
    rule = "a floating-point torch dtype, such as torch.float64"
    require(isinstance(dtype, torch.dtype) and dtype.is_floating_point, "dtype", rule, dtype)
    require(block is None or is_count(block), "block", "an int >= 1", block)
    require(workers is None or is_count(workers), "workers", "an int >= 1", workers)
    require(isinstance(autocast, bool), "autocast", "true or false", autocast)
    require(is_number(over_selection) and over_selection >= 0, "over_selection", "a number >= 0", over_selection)
    silent = worker_timeout is None or (is_number(worker_timeout) and worker_timeout > 0)
    require(silent, "worker_timeout", "a number > 0", worker_timeout)


def _policy(admission: Admission | None, faults: Faults | None, aggregator: Aggregator) -> UploadPolicy | None:
    """The rules that need every upload by itself; None where sums are enough, which is faster."""
    require(admission is None or isinstance(admission, Admission), "admission", "an Admission", admission)
    require(faults is None or isinstance(faults, Faults), "faults", "a Faults", faults)
    require(isinstance(aggregator, Aggregator), "aggregator", "an Aggregator, such as robust.median()", aggregator)
    policy = UploadPolicy(admission or Admission(), faults or Faults(), aggregator)
    return policy if policy.needed else None
