"""Checks before training: everything that can be wrong is found now, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedtempo.client.dropout import seeded_dropout
from fedtempo.client.network import tensors_of
from fedtempo.client.phase import Phase
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, first_line, is_count, require, shown
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.serving import served_phases
from fedtempo.federation.federation import Federation
from fedtempo.models.weights import seeded
from fedtempo.params import Params, all_finite
from fedtempo.schedules import Now, Schedule, at_step
from fedtempo.server.cohort import FIXED, Cohort
from fedtempo.tasks import IGNORED, Batch
from fedtempo.training.check_scoring import check_loss_fits

MOST = 1_000_000_000
"""The largest count that makes sense for rounds, rows of a batch and clients."""
MOST_STEPS = 1_000_000
"""The most local steps or epochs of a phase in one round; every step is planned before it is taken."""
SOME_CLIENTS = 4
PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_rounds(rounds: Any) -> None:
    """Rounds are counted from one up."""
    require(is_count(rounds) and rounds <= MOST, "rounds", f"an int in [1, {MOST}]", rounds)


def check_device(device: Any) -> None:
    """The device exists here and can hold numbers."""
    rule = "a device that torch can use here, such as 'cpu'"
    require(isinstance(device, (str, torch.device)), "device", rule, device)
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device must be {rule}. Got {shown(device)}: {first_line(error)}.") from error


def check_cohort(rule: Cohort, federation: Federation, rounds: int) -> None:
    """Every round's cohort can be drawn; cohorts that were written down name training clients, each once."""
    clients = federation.problem.data.clients
    written = rule.description.startswith(FIXED)
    for round_number in range(min(rounds, 10_000)) if written else sampled_rounds(rounds):
        now = federation.problem.now(round_number, 1.0)
        expected = rule.expected(now, len(clients))
        require(0 < expected <= len(clients), "cohort", f"at most {len(clients)} (the training clients)", expected)
        if written:
            rule.choose(clients, now, federation.problem.seed)


def check_evaluation(protocol: Any, federation: Federation) -> None:
    """The protocol is one, its fine-tuning can be run on this model, and its rate is a rate."""
    require(protocol is None or isinstance(protocol, Evaluation), "evaluation", "an Evaluation or None", protocol)
    if protocol is None:
        return
    validates = bool(federation.problem.data.sizes("validation").any())
    rule = "left out where no rows are for validation: nothing says that a round is better"
    require(protocol.patience is None or validates, "evaluation.patience", rule, protocol.patience)
    (now,) = federation.problem.places(federation.problem.now(0, 1.0), federation.problem.data.clients[:1])
    try:
        for newcomers in (False, True):
            phases, as_kept = served_phases(federation, protocol, now, newcomers)
            federation.compile(phases, as_kept=as_kept)
            for phase in phases:
                _check_phase(phase, now, _largest(federation))
    except ConfigError as error:
        raise ConfigError(f"evaluation: {error}") from error


def check_schedules(federation: Federation, rounds: int, cohort: float) -> None:
    """Every rate is finite and not negative in every round, and every phase has its steps."""
    first = federation.problem.now(0, cohort)
    server = federation.algorithm.server.schedules
    # Where schedules can tell clients apart, some clients stand for all.
    places = federation.problem.places(first, federation.problem.data.clients[:SOME_CLIENTS])
    for round_number in sampled_rounds(rounds):
        now = replace(first, round=round_number)
        phases = federation.algorithm.phases
        for place in set(places):
            for phase in (*phases, *(phase.beside for phase in phases if phase.beside is not None)):
                _check_phase(phase, replace(place, round=round_number), _largest(federation))
        for name, schedule in server:
            _check_rate(name, schedule, now, _largest(federation))


def sampled_rounds(rounds: int) -> list[int]:
    """The first rounds, and some of the later ones where there are many."""
    return sorted({*range(min(rounds, 200)), *np.linspace(0, rounds - 1, 200, dtype=int).tolist()})


def _largest(federation: Federation) -> float:
    return float(torch.finfo(federation.problem.dtype).max)


def _check_phase(phase: Phase, now: Now, largest: float) -> None:
    unit = phase.length.unit
    units = _number(unit, now, lambda: phase.length.units(now)) * phase.length.times
    require(units <= MOST_STEPS, f"{unit} in round {now.round}", f"at most {MOST_STEPS}", units)
    for step in range(min(max(units, 1), 1000)):
        here = at_step(now, step, max(units, 1), 1)
        for name, schedule in (("lr", phase.lr), *phase.rates, *phase.direction.schedules):
            _check_rate(name, schedule, here, largest)


def _check_rate(name: str, schedule: Schedule, now: Now, largest: float) -> None:
    value = _number(name, now, lambda: schedule.at(now))
    lowest = "above 0" if name == "max_norm" else "at least 0"
    if value < 0 or (value == 0 and name == "max_norm"):
        raise ConfigError(f"{name} must be {lowest}. Got {value} at round {now.round}, step {now.step}.")
    if value > largest:
        raise ConfigError(f"{name} must be at most {largest:.3g}, the largest of its dtype. Got {value}.")


def _number(name: str, now: Now, rule: Callable[[], Any]) -> Any:
    """The value of a schedule. An error in it is reported now, with its name, and not in the middle of the run."""
    try:
        return rule()
    except FedTempoError:
        raise
    except Exception as error:
        what = f"{type(error).__name__} ({first_line(error)}) at round {now.round}, step {now.step}"
        raise ConfigError(f"{name} must be a number in every round. Got {what}.") from error


class ModelFacts(NamedTuple):
    """What a trial on a few rows shows about a model."""

    draws_masks: bool
    pads_batches: bool
    pads_scoring: bool
    outputs: torch.Size
    targets: torch.Size


def check_model(federation: Federation) -> ModelFacts:
    """The model runs on the data, its outputs fit the labels, and the loss is a loss."""
    _check_pieces(federation)
    full = federation.problem.client_rows(int(federation.problem.data.clients[0]))
    rows = {n: t[:4] if len(t) > 1 else t.expand(2, *t.shape[1:]).contiguous() for n, t in full.items()}
    params = tensors_of(federation.problem.model, federation.problem.dtype, federation.problem.device)
    if not all_finite(params.values()):
        raise ModelError("the model's first weights must be finite. Got NaN or infinity.")
    weights = set(federation.problem.network.parameters)
    leaves = {n: p.clone().requires_grad_(n in weights and p.is_floating_point()) for n, p in params.items()}
    try:
        outputs = federation.problem.network.forward(leaves, rows)
    except FedTempoError:
        raise
    except Exception as error:
        shapes = {n: tuple(t.shape) for n, t in rows.items() if not n.startswith("_")}
        raise ModelError(f"the model does not run on a batch of shapes {shapes}: {first_line(error)}") from error
    _check_outputs(federation, outputs, rows)
    masks = _draws_masks(federation, params, rows)
    independent = federation.problem.task.rows_apart and _rows_are_independent(federation, params, rows)
    if not independent:
        _check_single_rows(federation, params, rows)
    _check_given_clients(federation)
    predicts_apart = _rows_are_independent(federation, params, rows, train=False)
    return ModelFacts(masks, independent, predicts_apart, outputs.shape, rows.get("y", outputs).shape)


def _check_pieces(federation: Federation) -> None:
    """What the parts of a federation must be before the model can be tried."""
    phases, size = federation.algorithm.phases, federation.problem.batching.size
    holds = isinstance(phases, tuple) and bool(phases) and all(isinstance(p, Phase) for p in phases)
    require(holds, "algorithm.phases", "a tuple of one or more Phases", phases)
    dtype, model = federation.problem.dtype, federation.problem.model
    require(dtype in PRECISIONS, "dtype", "one of " + ", ".join(map(str, PRECISIONS)), dtype)
    require(size is None or size <= MOST, "batch_size", f"None or an int in [1, {MOST}]", size)
    if not any(True for _ in model.parameters()):
        raise ModelError(f"the model must have parameters to train. Got {type(model).__name__} with none.")
    if federation.problem.data.outputs is not None:
        _check_own_classes(federation)
    _ = federation.program  # binds every phase to the model: a selector that matches nothing is found here


def _check_own_classes(federation: Federation) -> None:
    """Where every client has its own number of classes, it has one for each client and the labels keep to it."""
    data, outputs = federation.problem.data, federation.problem.data.outputs
    assert outputs is not None
    if len(outputs) != len(data):
        raise DataError(f"outputs must hold one number per client ({len(data)}). Got {len(outputs)}.")
    for client in range(len(data)):
        labels = [data.columns["y"][data.positions(client, part)] for part in ("train", "validation", "test")]
        highest = max((int(each.max()) for each in labels if len(each)), default=0)
        if outputs[client] <= highest:
            raise DataError(
                f"outputs of client {data.name_of(client)} must be above its highest label, {highest}. "
                f"Got {outputs[client]}."
            )


def _check_given_clients(federation: Federation) -> None:
    """Personal tensors given for particular clients have the names and shapes of theirs, and are numbers."""
    if not federation.given_clients:
        return
    shared = federation.first_shared()
    plain = replace(federation, given_clients=None)
    for client, given in federation.given_clients.items():
        own = plain.first_personal(client, shared)
        for name, value in given.items():
            field = f"init_clients[{client}][{name!r}]"
            known = f"only personal tensors (here: {', '.join(own) or 'none'})"
            require(name in own, f"the names of init_clients[{client}]", known, name)
            require(isinstance(value, torch.Tensor), field, "a tensor", value)
            shape = tuple(own[name].shape)
            require(tuple(value.shape) == shape, field, f"of shape {shape}", tuple(value.shape))
            require(all_finite([value]), field, "finite", "NaN or infinity")


def _check_single_rows(federation: Federation, params: Params, rows: Batch) -> None:
    """BatchNorm cannot train on one row; say so now if some client's last batch would be one."""
    single = {n: t[:1] for n, t in rows.items()}
    try:
        federation.problem.network.forward({n: t.clone() for n, t in params.items()}, single, train=True)
    except ValueError as error:
        for client in federation.problem.data.clients.tolist():
            for stage in federation.program.stages:
                batching, (_, count) = (
                    stage.phase.batching(federation.problem.batching),
                    stage.phase.rows(int(federation.problem.sizes[client])),
                )
                if batching.length(count, batching.per_epoch(count) - 1) == 1:
                    name = federation.problem.data.name_of(client)
                    raise ModelError(
                        f"the model cannot train on a batch of one row, and client {name} "
                        f"would have one ({count} rows, batch_size {batching.size}): {first_line(error)}"
                    ) from error


def _check_outputs(federation: Federation, outputs: torch.Tensor, rows: Batch) -> None:
    """One output per row and, for classes, one entry for each of them; a loss that the weights can lower."""
    task, count = federation.problem.task, len(next(iter(rows.values())))
    shape = f"shape {tuple(outputs.shape)} for {count} rows"
    if task.rows_apart and (outputs.dim() == 0 or len(outputs) != count):
        raise ModelError(f"the model's output must have one entry per row. Got {shape}.")
    if not outputs.is_floating_point():
        raise ModelError(f"the model's output must be floating-point. Got {outputs.dtype}.")
    own_heads = federation.problem.data.outputs is not None and bool(federation.personal_names)
    if task.classes:
        _check_classes(federation, outputs, rows, own_heads)
    if not own_heads:
        check_loss_fits(federation, outputs, rows)


def _check_classes(federation: Federation, outputs: torch.Tensor, rows: Batch, own_heads: bool) -> None:
    labels = federation.problem.data.columns["y"]
    lowest, highest = int(np.where(labels == IGNORED, 0, labels).min()), int(labels.max())
    tokens = federation.problem.task.name == "language"
    fits = outputs.shape[:-1] == rows["y"].shape and outputs.dim() >= (3 if tokens else 2)
    classes = outputs.shape[-1] if fits else 0
    if lowest < 0 or (highest >= classes and not own_heads):
        raise ModelError(
            f"the model's output must have one entry per class: labels of shape {tuple(rows['y'].shape)} "
            f"run from {lowest} to {highest}, the output has shape {tuple(outputs.shape)}."
        )


def _draws_masks(federation: Federation, params: Params, rows: Batch) -> bool:
    """Whether training draws random numbers; those that no seed of ours can reach are refused."""
    # Under two seeds of torch a model without random draws gives equal outputs. Inside `seeded_dropout` a model whose
    # only draws are dropout does, too. What still differs draws in a way that we cannot repeat.
    plain = [_training_output(federation, params, rows, seed) for seed in (1, 2)]
    if torch.equal(*plain):
        return federation.problem.network.dropout
    key = torch.zeros((), dtype=torch.int64, device=federation.problem.device)
    ours = []
    for seed in (1, 2):
        with seeded_dropout(key):
            ours.append(_training_output(federation, params, rows, seed))
    if not torch.equal(*ours):
        raise ModelError("the model must draw random numbers by dropout only. Got others, which cannot be repeated.")
    return True


def _training_output(federation: Federation, params: Params, rows: Batch, seed: int) -> torch.Tensor:
    copies = {n: t.clone() for n, t in params.items()}
    with seeded(seed, "probe"), torch.no_grad():
        try:
            return federation.problem.network.forward(copies, rows, train=True)
        except ValueError as error:
            raise ModelError(f"the model cannot be trained on a small batch: {first_line(error)}") from error


def _rows_are_independent(federation: Federation, params: Params, rows: Batch, train: bool = True) -> bool:
    """Whether a row's output stays the same beside other rows. With BatchNorm it never does in training."""
    if train and any(isinstance(m, _BatchNorm) for m in federation.problem.model.modules()):
        return False
    more = {n: torch.cat([t, _unlike(t[:1])]) for n, t in rows.items()}
    with seeded_dropout(torch.zeros((), dtype=torch.int64, device=federation.problem.device)):
        # Masks depend on the batch's shape, so only the rows' influence on each other in evaluation can be compared.
        train = train and not federation.problem.network.dropout
        alone, beside = (_output(federation, params, batch, train) for batch in (rows, more))
    if alone.dim() == 0 or len(alone) != len(next(iter(rows.values()))):
        return False
    return bool(torch.allclose(alone, beside[: len(alone)], rtol=1e-5, atol=1e-6))


def _unlike(row: torch.Tensor) -> torch.Tensor:
    return row * 1.5 + 0.5 if row.is_floating_point() else row


def _output(federation: Federation, params: Params, rows: Batch, train: bool) -> torch.Tensor:
    return _training_output(federation, params, rows, 1) if train else federation.problem.network.forward(params, rows)
