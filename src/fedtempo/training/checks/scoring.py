"""Checks before training: the loss and the metrics fit the model's outputs, and sample weights are weights."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from fedtempo.data.federated import FederatedData
from fedtempo.data.parts import Part
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, first_line, shown
from fedtempo.federation.federation import Federation
from fedtempo.metrics import Metric
from fedtempo.params import Params
from fedtempo.support.room import require_room
from fedtempo.tasks import SAMPLE_WEIGHT, Batch, Task, row_counts, with_fitting_metrics


class UnrepeatableError(ConfigError):
    """A loss or a metric of the user's gives another number for the same outputs and targets."""


ROWS_READ = 4096
COPIES_OF_OUTPUTS = 4
"""Of a user's outputs while they are scored: as they are, as probabilities, in float64."""
MOST_TRIED = 10_000_000
"""Numbers that a metric is tried on: of a model with many outputs not all rows of a user."""
"""Rows of the targets that are looked at to guess the task."""


def first_targets(data: FederatedData) -> torch.Tensor | None:
    """Some targets, by which a task is chosen; None where there are none."""
    return torch.from_numpy(np.array(data.columns["y"][:ROWS_READ])) if "y" in data.columns else None


def check_sample_weights(data: FederatedData) -> None:
    """Sample weights are one number >= 0 per row, and not all 0 for any client."""
    if SAMPLE_WEIGHT not in data.columns:
        return
    column = data.columns[SAMPLE_WEIGHT]
    if column.ndim != 1:
        raise DataError(f"column {SAMPLE_WEIGHT!r} must hold one number per row. Got rows of shape {column.shape[1:]}.")
    if _is_stand_in(column):
        return
    everybody = [*data.clients.tolist(), *data.held_out.tolist()]
    for client, part in itertools.product(everybody, get_args(Part)):
        own = column[data.positions(client, part)]
        if len(own) and ((own < 0).any() or not own.any()):
            rule = "numbers >= 0, not all of them 0"
            found = f"{float(own.min()):g} as the smallest of client {data.name_of(client)}, {part} rows"
            raise DataError(f"column {SAMPLE_WEIGHT!r} must hold {rule}. Got {found}.")


def check_loss_fits(federation: Federation, outputs: torch.Tensor, rows: Batch) -> None:
    """The loss is one number, or one per row, finite, and can be lowered by the weights."""
    task = federation.problem.task
    targets = rows.get("y", outputs)
    _check_nothing_to_train(task)
    losses = _losses_of(task, outputs, targets)
    before = _state_of(task.losses)  # by now what is computed once is there: a cache is no memory of calls
    rule = f"the loss {task.name!r} must be"
    wanted = [(len(targets),)] if task.rows_apart else [(), (len(targets),)]
    if not isinstance(losses, torch.Tensor) or tuple(losses.shape) not in wanted:
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise ModelError(f"{rule} a tensor with one number, or one per row ({len(targets)}). Got {shape}.")
    if not losses.requires_grad:
        raise ModelError(f"{rule} a function of the model's weights. Got one without a gradient.")
    if not bool(torch.isfinite(losses).all()):
        raise ModelError(f"{rule} finite on the first client's first rows. Got {shown(losses.detach().tolist())}.")
    _call_on_others(task.losses, outputs, targets)
    again = task.losses(outputs.detach(), targets)
    if not torch.equal(again, losses.detach()) or _state_of(task.losses) != before:
        numbers = f"{float(losses.detach().mean()):g} and then {float(again.mean()):g}"
        # All clients share the function, and a recorded step does not call it again.
        found = "a state that a call changes" if torch.equal(again, losses.detach()) else numbers
        raise UnrepeatableError(f"{rule} the same for the same outputs and targets, always. Got {found}.")
    if losses.dim() == 0:
        most = max(phase.accumulate for phase in federation.algorithm.phases)
        _check_pieces_make_it(task, most, outputs.detach(), targets, float(losses.detach()))
    if losses.dim() == 0 and tuple(outputs.shape) == (len(targets), 1) and targets.dim() == 1:
        _warn_if_rows_are_paired(task, outputs.detach(), targets, float(losses.detach()))


def _losses_of(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """What the loss returns. One that raises, pairs rows with other rows' targets or writes into them is refused."""
    written = outputs._version + targets._version
    try:
        with _Broadcasts(outputs, targets) as broadcasts:
            losses = task.losses(outputs, targets)
    except FedTempoError:
        raise
    except Exception as error:
        if task.classes and targets.is_floating_point():
            rule = "needs targets that are integers, y.astype(int)"
            raise ModelError(f"the loss {task.name!r} {rule}. Got {targets.dtype}.") from error
        shapes = f"outputs {tuple(outputs.shape)}, targets {tuple(targets.shape)}"
        raise ModelError(f"the loss {task.name!r} does not fit: {shapes}: {first_line(error)}") from error
    if broadcasts.found:
        raise ModelError(_in_words(broadcasts, f"the loss {task.name!r}", outputs, targets))
    if outputs._version + targets._version != written:
        rule = "leave outputs and targets as they are: 2 * outputs and not outputs.mul_(2)"
        raise ModelError(f"the loss {task.name!r} must {rule}. Got a write into them.")
    return losses


def check_own_pieces(federation: Federation, params: Params, rows: Batch) -> None:
    """Where batches pass in pieces, the loss that a model makes is the mean over them."""
    problem, pieces = federation.problem, max(phase.accumulate for phase in federation.algorithm.phases)
    if pieces == 1 or not problem.task.own:
        return
    size = -(-len(rows["y"]) // pieces)
    parts = [{n: t[start : start + size] for n, t in rows.items()} for start in range(0, len(rows["y"]), size)]
    with torch.no_grad():
        given = {n: t.clone() for n, t in params.items()}
        whole, *losses = (problem.network.loss(problem.task, given, part) for part in (rows, *parts))
    counts = [float(row_counts(problem.task, part).sum()) for part in parts]
    value = sum(count * float(loss) for count, loss in zip(counts, losses, strict=True) if count) / sum(counts)
    if not np.isclose(value, float(whole), rtol=1e-2 if problem.network.autocast else 1e-4):
        rule = "1 for the model's own loss, which is not the mean of its pieces"
        raise ConfigError(f"accumulate must be {rule}. Got {pieces}.")


def _check_nothing_to_train(task: Task) -> None:
    """Refuse a loss with parameters: clients train the model's, and those of the loss would silently stay unchanged."""
    loss = task.losses
    own = [n for n, p in loss.named_parameters() if p.requires_grad] if isinstance(loss, nn.Module) else []
    if own:
        rule = "without parameters to train: put them into the model, which may make its loss itself (loss='own'), or"
        raise ModelError(f"the loss {task.name!r} must be {rule} freeze them by requires_grad_(False). Got {own[0]!r}.")


def _call_on_others(function: Callable[[torch.Tensor, torch.Tensor], object], outputs: Any, targets: Any) -> None:
    """Call it with outputs of the same kind for other rows and classes: what it remembers shows at its next call."""
    others = [outputs.detach().roll(1, 0)] if outputs.dim() else []
    others += [outputs.detach().roll(shift, -1) for shift in (1, 2, 3)] if outputs.dim() > 1 else []
    for each in others:
        with contextlib.suppress(Exception):  # these are not the model's, and it need not take them
            function(each, targets.clone())


def _state_of(loss: object) -> list[tuple[str, object]]:
    """What a function or an object remembers in attributes and variables, as far as it can be compared."""
    simple = (int, float, str, bool, tuple, list, dict, set)
    owner = loss.__self__ if inspect.ismethod(loss) else loss
    tensors = dict(owner.named_buffers()) if isinstance(owner, nn.Module) else {}
    found = {**getattr(owner, "__dict__", {}), **tensors, **_variables_of(loss)}
    kept = [(n, repr(v)) for n, v in found.items() if isinstance(v, simple) and n[:1] != "_"]
    # A tensor is another one, or has been written over.
    return kept + [(n, (id(t), t._version)) for n, t in found.items() if isinstance(t, torch.Tensor)]


def _variables_of(function: object) -> dict[str, Any]:
    """The variables outside of a function that it uses, with those of the functions among them."""
    if not inspect.isroutine(function) or inspect.isbuiltin(function):
        return {}
    used = inspect.getclosurevars(function)
    # A function of a module is a user's own part or the whole of torch: only values are looked at there.
    inner = {f"{n}.{m}": v for n, f in used.nonlocals.items() for m, v in _variables_of(f).items() if f is not function}
    return {**used.globals, **used.nonlocals, **inner}


def _check_pieces_make_it(
    task: Task, pieces: int, outputs: torch.Tensor, targets: torch.Tensor, together: float
) -> None:
    """Where batches pass in pieces, a loss of one number is the mean over them: a sum, or one of all pairs, is not."""
    if pieces == 1:
        return
    size = -(-len(targets) // pieces)
    parts = zip(torch.split(outputs, size), torch.split(targets, size), strict=True)
    value = sum(len(t) * float(task.losses(o, t)) for o, t in parts) / len(targets)
    if not np.isclose(value, together, rtol=1e-4):
        rule = f"1 for the loss {task.name!r}, which is not the mean of its pieces: return one number per row instead"
        raise ConfigError(f"accumulate must be {rule}. Got {pieces}.")


def _warn_if_rows_are_paired(task: Task, outputs: torch.Tensor, targets: torch.Tensor, together: float) -> None:
    """Outputs (n, 1) minus targets (n,) are n times n numbers: torch pairs every output with every target."""
    alone = [float(task.losses(o, t)) for o, t in zip(torch.split(outputs, 1), torch.split(targets, 1), strict=True)]
    # Not an error: a loss may compare all rows on purpose, as one that ranks them does.
    if not np.isclose(np.mean(alone), together, rtol=1e-4):
        shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
        warnings.warn(
            f"the loss {task.name!r} of {shapes} is not the mean over rows. If it should be, "
            "give outputs the targets' shape: outputs.squeeze(1).",
            UserWarning,
            stacklevel=2,
        )


class _Broadcasts(TorchFunctionMode):
    """Notices an operation on outputs (n, 1) and targets (n), which torch silently broadcasts to n by n numbers."""

    def __init__(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        super().__init__()
        one_each = targets.dim() == 1 and len(targets) > 1 and outputs.shape == (len(targets), 1)
        self._pair = (outputs, targets) if one_each and targets.is_floating_point() else None
        self.found = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using a target size")  # what is found here is said in one line
            result = func(*args, **(kwargs or {}))
        given = [id(value) for value in (*args, *(kwargs or {}).values())]
        if self._pair is not None and all(id(tensor) in given for tensor in self._pair):
            size = len(self._pair[1])
            square = isinstance(result, torch.Tensor) and result.shape == (size, size)
            # A loss of torch's takes its mean at once, so its result does not show it.
            if square or getattr(func, "__module__", "") == F.__name__:
                self.found = getattr(func, "__name__", str(func))
        return result


def _in_words(broadcasts: _Broadcasts, what: str, outputs: torch.Tensor, targets: torch.Tensor) -> str:
    shapes = f"{tuple(outputs.shape)} and {tuple(targets.shape)} in {broadcasts.found}"
    return f"{what} must compare each row with its own target: use outputs.squeeze(-1). Got shapes {shapes}."


def fitted_task(federation: Federation, outputs: torch.Size, targets: torch.Size) -> Task:
    """The task with the metrics that say something about such outputs; what was asked for must be among them."""
    data = federation.problem.data
    if data.outputs is not None and len(outputs) > len(targets):
        outputs = torch.Size([*outputs[:-1], int(data.outputs.max())])
    return with_fitting_metrics(federation.problem.task, outputs, targets, _a_number(data))


def _a_number(data: FederatedData) -> float | None:
    """A target that can be no class and no label; None where there is none."""
    targets = first_targets(data)
    if targets is None or not targets.is_floating_point():
        return None
    others = targets[(targets != 0) & (targets != 1)]
    return float(others[0]) if len(others) else None


def check_metrics(federation: Federation) -> None:
    """Every metric can be computed for the first user who will be scored."""
    problem = federation.problem
    data, task = problem.data, problem.task
    if not task.scores or data.outputs is not None or _is_stand_in(data.columns.get("y")):
        return
    part = next((part for part in ("validation", "test") if data.sizes(part)[data.clients].any()), "train")
    client = int(data.clients[data.sizes(part)[data.clients] > 0][0])
    rows = problem.client_rows(client, part)
    # A deployment's server knows how many rows its nodes have, and holds none of them.
    held = len(next(iter(data.columns.values())))
    most = min(held, max(int(data.sizes(each)[data.clients].max()) for each in get_args(Part)))
    needed = COPIES_OF_OUTPUTS * most * problem.outputs_per_row * problem.dtype.itemsize
    require_room(needed, f"scoring a user of {most:,} rows with {problem.outputs_per_row:,} outputs each")
    tried = max(1, MOST_TRIED // problem.outputs_per_row)
    if tried < len(next(iter(rows.values()))):
        rows = {name: values[:tried] for name, values in rows.items()}
    shared = federation.first_shared()
    with torch.no_grad():
        own = federation.first_personal(client, shared)
        outputs = federation.algorithm.serving.predict(problem.network, shared, own, rows, False).cpu()
    targets = rows.get("y", outputs).cpu()
    for metric in task.scores.values():
        _try(metric, outputs.clone(), targets.clone(), data.name_of(client))


def _try(metric: Metric, outputs: torch.Tensor, targets: torch.Tensor, client: str) -> None:
    copies = outputs.clone(), targets.clone()  # a metric may change its arguments
    try:
        with _Broadcasts(outputs, targets) as broadcasts:
            first = metric.of_client(outputs, targets)
        if broadcasts.found:
            raise ModelError(_in_words(broadcasts, f"metric {metric.name!r}", outputs, targets))
        _call_on_others(metric.of_client, *copies)
        second = metric.of_client(*copies)
        if first != second and not (np.isnan(first) and np.isnan(second)):
            rule = "the same for the same outputs and targets, so that a run can be repeated"
            raise UnrepeatableError(f"metric {metric.name!r} must be {rule}. Got {first:g} and then {second:g}.")
        if metric.vectorised:
            torch.vmap(metric.fn)(outputs.unsqueeze(0), targets.unsqueeze(0))
    except FedTempoError:
        raise
    except Exception as error:  # a metric is the user's code and may raise anything
        what = f"{type(error).__name__}: {first_line(error)}"
        rule = f"computable for every user; return float('nan') where it is undefined. Got, for client {client}, {what}"
        raise ConfigError(f"metric {metric.name!r} must be {rule}") from error


def _is_stand_in(column: np.ndarray | None) -> bool:
    """Whether the numbers are only there for their shape: a deployment's server knows how many rows there are."""
    strides = getattr(column, "strides", None)
    return column is None or (len(column) > 1 and strides is not None and strides[0] == 0)
