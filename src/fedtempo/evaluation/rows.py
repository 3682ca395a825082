"""Scores of clients on their own rows.

Many clients predict at once, on rows that are padded to the longest. What is ours and a mean over rows is added up
right there. Everything else (a user's loss or metric, a number of all rows) is called client by client, on outputs
that are cut to the client's own rows first: code of a user never sees a row that only pads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtempo.backends import Trained
from fedtempo.backends.backend import in_float64_together
from fedtempo.backends.memory import is_out_of_memory
from fedtempo.client.phase import Carry
from fedtempo.data.parts import Part
from fedtempo.errors import FedTempoError, TrainingError
from fedtempo.federation.federation import Federation
from fedtempo.metrics import IGNORED, Metric
from fedtempo.params import tree_map
from fedtempo.support.user_errors import what_failed
from fedtempo.tasks import SAMPLE_WEIGHT, Batch, Task, hide_padded_outputs, mean_loss, weighed

Sums = dict[str, tuple[Tensor, Tensor]]
"""By metric: a sum over rows, and the sum of the rows' weights."""
OF_ROWS = ("y", SAMPLE_WEIGHT)
"""Columns that losses and metrics take beside the outputs."""


class Unread(NamedTuple):
    """What some users' scores are computed from, before anything of it is read from a device."""

    lanes: np.ndarray
    """Which of the users they are."""
    counts: np.ndarray
    """How many rows each has."""
    sums: Sums
    losses: dict[int, Tensor]
    """Losses that are no means over rows, of those users who have rows, by their place here."""
    found: dict[str, np.ndarray]
    """Metrics that are computed on the host."""

    def tensors(self) -> list[Tensor]:
        """All that has to be read."""
        return [*(t for pair in self.sums.values() for t in pair), *self.losses.values()]


def unread_scores(federation: Federation, trained: Trained, part: Part) -> list[Unread]:
    """What loss and metrics of each client on its rows of the part follow from.

    Nothing here waits for a device, except for metrics that are computed on the host.
    """
    counts = federation.problem.data.sizes(part)[trained.clients]
    groups = _together(counts, federation.problem.pads_scoring)
    found = [_score_named(federation, _only(trained, lanes), part, counts[lanes], lanes) for lanes in groups]
    # Users without rows stand in no group.
    nobody = np.setdiff1d(np.arange(len(counts)), np.concatenate([np.empty(0, np.int64), *groups]))
    return [*found, Unread(nobody, counts[nobody], {}, {}, {})]


def read_scores(federation: Federation, users: Sequence[Sequence[Unread]]) -> dict[str, np.ndarray]:
    """The scores of several blocks of users in a row, 0 where one has no rows; a device is waited for once."""
    names = ("loss", *federation.problem.task.scores)
    read = iter(in_float64_together([t for block in users for each in block for t in each.tensors()]))
    blocks = []
    for block in users:
        scores = {name: np.zeros(sum(len(each.lanes) for each in block)) for name in names}
        for each in block:
            for name, values in _values(federation, each, read).items():
                scores[name][each.lanes] = np.where(each.counts > 0, values, 0.0)
        blocks.append(scores)
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def _values(federation: Federation, unread: Unread, read: Iterator[np.ndarray]) -> dict[str, np.ndarray]:
    """Each user's scores from the arrays that were read for them."""
    task = federation.problem.task
    found = {name: _finished(task.scores.get(name), next(read), next(read)) for name in unread.sums}
    if unread.losses:
        found["loss"] = np.zeros(len(unread.lanes))
        for lane in unread.losses:
            found["loss"][lane] = next(read)
    return {**found, **unread.found}


def _score_named(federation: Federation, trained: Trained, part: Part, counts: np.ndarray, lanes: np.ndarray) -> Unread:
    """As `_score_lanes`; what the model raises, which is the user's code, becomes an error that names a client."""
    try:
        return _score_lanes(federation, trained, part, counts, lanes)
    except FedTempoError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        clients = trained.clients
        if len(clients) > 1:
            # Side by side it cannot be told whose rows fail: they are the first that fail by themselves.
            for lane in np.flatnonzero(counts)[:, None]:
                _score_named(federation, _only(trained, lane), part, counts[lane], lane)
        one = f"client {federation.problem.data.name_of(int(clients[0]))}"
        who = one if len(clients) == 1 else f"clients {clients[0]} to {clients[-1]}"
        raise TrainingError(f"scoring {who} failed: {what_failed(error)}") from error


def _together(counts: np.ndarray, pads: bool) -> list[np.ndarray]:
    """Groups of clients that predict together: all, or one group per number of rows where padding changes outputs."""
    if not counts.any():
        return []
    if pads:
        return [np.arange(len(counts))]
    return [np.flatnonzero(counts == count) for count in np.unique(counts[counts > 0])]


def _only(trained: Trained, lanes: np.ndarray) -> Trained:
    """Some of the clients."""
    if len(lanes) == len(trained.clients):
        return trained

    def chosen(t: Tensor) -> Tensor:
        return t[torch.as_tensor(lanes, device=t.device)]

    shapes = [trained.shapes[lane] for lane in lanes.tolist()] if trained.shapes else []
    return trained._replace(clients=trained.clients[lanes], carry=tree_map(chosen, trained.carry), shapes=shapes)


def _score_lanes(federation: Federation, trained: Trained, part: Part, counts: np.ndarray, lanes: np.ndarray) -> Unread:
    task = federation.problem.task
    batch = _padded_rows(federation, trained, part, counts)
    # Means over rows are summed for all clients at once, and padded rows count 0. Other metrics (AUROC, F1) would see
    # the padding, so they get each client's own rows.
    apart = [metric for metric in task.scores.values() if not metric.vectorised]
    needs_outputs = bool(apart) or not task.rows_apart

    def client(carry: Carry, rows: Batch) -> tuple[Sums, Tensor]:
        problem = federation.problem
        outputs = federation.algorithm.serving.predict(problem.network, carry.shared, carry.personal, rows, False)
        outputs = hide_padded_outputs(outputs, rows)
        # Outputs of all rows of all clients may be large, so they are returned only if somebody needs them.
        return _sums(task, outputs, rows), outputs if needs_outputs else outputs.new_zeros(())

    with torch.no_grad():
        sums, outputs = trained.each(client, batch)
        if not needs_outputs:
            return Unread(lanes, counts, sums, {}, {})
        losses, found = _one_by_one(federation, trained, counts, apart, outputs, batch)
    return Unread(lanes, counts, sums, losses, found)


def _padded_rows(federation: Federation, trained: Trained, part: Part, counts: np.ndarray) -> Batch:
    """Every client's rows of the part, padded. A client without rows gets another client's, with weight 0."""
    problem, width = federation.problem, int(counts.max())
    local = np.minimum(np.arange(width), np.maximum(counts - 1, 0)[:, None])
    empty = counts == 0
    batch = problem.rows(
        np.where(empty, trained.clients[~empty][0], trained.clients), np.where(empty[:, None], 0, local), part
    )
    if problem.task.own and problem.task.targets is not None:  # training gives the model the column as it is
        batch["y"] = problem.task.targets(batch)
    batch["_rows"] = torch.from_numpy(np.arange(width) < counts[:, None]).to(problem.device)
    if trained.shapes and problem.data.outputs is not None:
        batch["_outputs"] = torch.as_tensor(problem.data.outputs[trained.clients], device=problem.device)
    return batch


def _sums(task: Task, outputs: Tensor, batch: Batch) -> Sums:
    """Sums over one client's rows, for the loss and for those of our metrics that are means over rows."""
    targets = batch.get("y", outputs)
    sums: Sums = {}
    if task.rows_apart:
        sums["loss"] = weighed(task, task.losses(outputs, targets).to(torch.float64), targets, batch)
    rows = batch["_rows"]
    if task.classes and not targets.is_floating_point():
        rows = rows & (targets != IGNORED).reshape(len(rows), -1).any(-1)
    # As in `Metric.of_client`: a model that has diverged has the worst score, and is not left out.
    diverged = ((outputs.isnan() | (outputs == math.inf)).reshape(len(rows), -1).any(-1) & rows).any()
    rows = rows.to(torch.float64)
    for name, metric in task.scores.items():
        if not metric.vectorised:
            continue
        # Perplexity needs the loss, which is there already.
        known = metric.fn is task.losses and "loss" in sums and SAMPLE_WEIGHT not in batch
        counts = rows if metric.weights is None else rows * metric.weights(targets)
        total, count = sums["loss"] if known else ((metric.fn(outputs, targets) * rows).sum(), counts.sum())
        sums[name] = torch.where(diverged, metric.worst, total), count
    return sums


def _finished(metric: Metric | None, totals: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means over rows; undefined where no row counts."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        means = np.asarray(totals / counts)
        if metric is None or metric.finish is None:
            return means
        return np.where(means == metric.worst, metric.worst, metric.finish(means))


def _one_by_one(
    federation: Federation, trained: Trained, counts: np.ndarray, apart: list[Metric], outputs: Tensor, batch: Batch
) -> tuple[dict[int, Tensor], dict[str, np.ndarray]]:
    """Losses and metrics that must see exactly one client's rows, computed client by client.

    Losses are computed where the model is, metrics on the host.
    """
    problem, task = federation.problem, federation.problem.task
    losses: dict[int, Tensor] = {}
    found = {metric.name: np.zeros(len(counts)) for metric in apart}
    here = (outputs.cpu(), {name: batch[name].cpu() for name in OF_ROWS if name in batch}) if apart else (outputs, {})
    for lane in np.flatnonzero(counts).tolist():
        count, client = int(counts[lane]), int(trained.clients[lane])
        classes = int(problem.data.outputs[client]) if "_outputs" in batch else None  # type: ignore[index]
        try:
            if not task.rows_apart:
                own = {name: batch[name][lane, :count] for name in OF_ROWS if name in batch}
                loss = mean_loss(task, _own_outputs(outputs[lane], count, classes), own)
                losses[lane] = loss.to(torch.float64).reshape(())
            own = {name: values[lane, :count] for name, values in here[1].items()}
            for metric in apart:
                predicted = _own_outputs(here[0][lane], count, classes)
                found[metric.name][lane] = metric.of_client(*_labelled(task, predicted, own))
        except FedTempoError:
            raise
        # A loss or a metric may be the user's code and may raise anything. The error has to name the client.
        except Exception as error:
            what = what_failed(error)
            raise TrainingError(f"scoring client {problem.data.name_of(client)} failed: {what}") from error
    return losses, found


def _own_outputs(outputs: Tensor, count: int, classes: int | None) -> Tensor:
    """One client's outputs, without padded rows and without padded classes."""
    outputs = outputs[:count] if count < len(outputs) else outputs
    return outputs if classes is None else outputs[..., :classes]


def _labelled(task: Task, outputs: Tensor, rows: Batch) -> tuple[Tensor, Tensor]:
    """Outputs and targets of the rows that have a label, as copies, because a metric may change its arguments."""
    targets = rows.get("y", outputs)
    if task.classes and targets.dim() == 1:
        labelled = targets != IGNORED
        outputs, targets = outputs[labelled], targets[labelled]
    return outputs.detach().clone(), targets.detach().clone()
