"""Checks before training: everything that can be wrong is found now, and named."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedtempo.dropout import seeded_dropout
from fedtempo.errors import ConfigError, ModelError, is_count, require
from fedtempo.federation import Federation
from fedtempo.local import Phase
from fedtempo.network import seeded, tensors_of
from fedtempo.params import Params, all_finite
from fedtempo.schedules import Now, Schedule, at_step
from fedtempo.tasks import IGNORED, Batch


def check_rounds(rounds: Any) -> None:
    """Rounds are counted from one up."""
    require(is_count(rounds), "rounds", "an int >= 1", rounds)


def check_schedules(federation: Federation, rounds: int, cohort: float) -> None:
    """Every rate is finite and not negative in every round, and every phase has its steps."""
    first = federation.now(0, cohort)
    sampled = sorted({*range(min(rounds, 200)), *np.linspace(0, rounds - 1, 200, dtype=int).tolist()})
    server = federation.algorithm.server.schedules
    for round_number in sampled:
        now = replace(first, round=round_number)
        for phase in federation.algorithm.phases:
            _check_phase(phase, now)
        for name, schedule in server:
            _check_rate(name, schedule, now)


def _check_phase(phase: Phase, now: Now) -> None:
    units = phase.length.units(now) * phase.length.times
    for step in range(min(max(units, 1), 1000)):
        here = at_step(now, step, max(units, 1), 1)
        for name, schedule in (("lr", phase.lr), *phase.rates, *phase.direction.schedules):
            _check_rate(name, schedule, here)


def _check_rate(name: str, schedule: Schedule, now: Now) -> None:
    value = schedule.at(now)
    lowest = "above 0" if name == "max_norm" else "at least 0"
    if value < 0 or (value == 0 and name == "max_norm"):
        raise ConfigError(f"{name} must be {lowest}. Got {value} at round {now.round}, step {now.step}.")


def check_model(federation: Federation) -> tuple[bool, bool]:
    """The model runs on the data and fits the labels. Returns (draws random masks, rows are independent)."""
    client = int(federation.data.clients[0])
    rows = {
        n: t[:1].expand(min(4, max(2, len(t))), *t.shape[1:]).contiguous()
        for n, t in federation.client_rows(client).items()
    }
    full = federation.client_rows(client)
    if len(next(iter(full.values()))) > 1:
        rows = {n: t[:4] for n, t in full.items()}
    params = tensors_of(federation.model, federation.dtype, federation.device)
    if not all_finite(params):
        raise ModelError("the model's first weights must be finite. Got NaN or infinity.")
    try:
        outputs = federation.network.forward(params, rows)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        shapes = {n: tuple(t.shape) for n, t in rows.items() if not n.startswith("_")}
        raise ModelError(f"the model does not run on a batch of shapes {shapes}: {_first_line(error)}") from error
    _check_outputs(federation, outputs, rows)
    masks = _draws_masks(federation, params, rows)
    independent = federation.task.per_sample and _rows_are_independent(federation, params, rows)
    if not independent:
        _check_single_rows(federation, params, rows)
    return masks, independent


def _check_single_rows(federation: Federation, params: Params, rows: Batch) -> None:
    """BatchNorm cannot train on one row; say so now if some client's last batch would be one."""
    single = {n: t[:1] for n, t in rows.items()}
    try:
        federation.network.forward({n: t.clone() for n, t in params.items()}, single, train=True)
    except ValueError as error:
        for client in federation.data.clients.tolist():
            for stage in federation.program.stages:
                batching, (_, count) = stage.batching(federation.batching), stage.rows(int(federation.sizes[client]))
                if batching.length(count, batching.per_epoch(count) - 1) == 1:
                    raise ModelError(
                        f"the model cannot train on a batch of one row, and client {federation.data.name_of(client)} "
                        f"would have one ({count} rows, batch_size {batching.size}): {_first_line(error)}"
                    ) from error


def _check_outputs(federation: Federation, outputs: torch.Tensor, rows: Batch) -> None:
    if not federation.task.classes:
        with contextlib.suppress(KeyError):
            _check_loss(federation, outputs, rows)
        return
    labels = federation.data.columns["y"]
    lowest, highest = int(np.where(labels == IGNORED, 0, labels).min()), int(labels.max())
    classes = outputs.shape[-1] if outputs.dim() >= 2 else 0
    own_heads = federation.data.outputs is not None and bool(federation.personal_names)
    if lowest < 0 or (highest >= classes and not own_heads):
        raise ModelError(
            f"the model's output must have one entry per class: labels run from {lowest} to {highest}, "
            f"the output has shape {tuple(outputs.shape)} for {len(outputs)} rows."
        )
    if own_heads:
        return
    _check_loss(federation, outputs, rows)


def _check_loss(federation: Federation, outputs: torch.Tensor, rows: Batch) -> None:
    try:
        federation.task.losses(outputs, rows.get("y", outputs))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        shapes = f"outputs {tuple(outputs.shape)}, targets {tuple(rows['y'].shape) if 'y' in rows else None}"
        raise ModelError(f"the loss {federation.task.name!r} does not fit: {shapes}: {_first_line(error)}") from error


def _draws_masks(federation: Federation, params: Params, rows: Batch) -> bool:
    """Whether training draws random numbers; those that no seed of ours can reach are refused."""
    plain = [_training_output(federation, params, rows, seed) for seed in (1, 2)]
    if torch.equal(*plain):
        return federation.network.dropout
    key = torch.zeros((), dtype=torch.int64, device=federation.device)
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
            return federation.network.forward(copies, rows, train=True)
        except ValueError as error:
            raise ModelError(f"the model cannot be trained on a small batch: {_first_line(error)}") from error


def _rows_are_independent(federation: Federation, params: Params, rows: Batch) -> bool:
    """Whether a row's output stays the same beside other rows; BatchNorm's does not, whatever the rows are."""
    if any(isinstance(m, _BatchNorm) for m in federation.model.modules()):
        return False
    more = {n: torch.cat([t, _unlike(t[:1])]) for n, t in rows.items()}
    with seeded_dropout(torch.zeros((), dtype=torch.int64, device=federation.device)):
        # Masks depend on the batch's shape, so only the rows' influence on each other in evaluation can be compared.
        train = not federation.network.dropout
        alone, beside = (_output(federation, params, batch, train) for batch in (rows, more))
    return bool(torch.allclose(alone, beside[: len(alone)], rtol=1e-5, atol=1e-6))


def _unlike(row: torch.Tensor) -> torch.Tensor:
    return row * 1.5 + 0.5 if row.is_floating_point() else row


def _output(federation: Federation, params: Params, rows: Batch, train: bool) -> torch.Tensor:
    return _training_output(federation, params, rows, 1) if train else federation.network.forward(params, rows)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
