"""Three ways to compute an objective's gradient: torch's tape, `torch.func` under `vmap`, and a recording of either.

A recording gives the bits of what it recorded; tape and `vmap` agree to rounding. The backend chooses, so a step does
not know which one it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from fedtempo.client.graphs import Function, Graph, captured
from fedtempo.client.objectives import Value
from fedtempo.client.recording import Refusal, record, same
from fedtempo.errors import TrainingError
from fedtempo.params import Params
from fedtempo.randomness import scramble
from fedtempo.tasks import Batch

ValueOf = Callable[[Params, Params, Batch], Value]
"""The objective at (parameters to train, the model's other tensors, batch)."""
GradientOf = Callable[[ValueOf, Params, Params, Batch], tuple[Params, Value]]
"""The objective's gradient with respect to the parameters to train, and its value."""

MOST_RECORDINGS = 128
"""Recordings that one stage may hold. Without a limit, batches of ever new shapes would fill the memory."""
MOST_GRAPHS = 8
"""Recordings of a stage that become CUDA graphs. Each of them keeps device memory of its own."""
RECORDED_DEVICES = ("cpu", "cuda")
"""Where steps are recorded: on a processor, and where a recording can become a graph."""
FIRST_COMPARED = 4
"""Replays of unknown code that are all compared with the original."""


def by_autograd(value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> tuple[Params, Value]:
    """Gradients for one client, by torch's tape: faster than `torch.func` where there is nothing to vectorise."""
    # Detached leaves are new tensors on the same memory: the client's own tensors never require gradients.
    leaves = {n: p.detach().requires_grad_() for n, p in params.items()}
    value = value_of(leaves, frozen, batch)
    gradients = torch.autograd.grad(value.total, list(leaves.values()), materialize_grads=True)
    buffers = {n: b.detach() for n, b in value.buffers.items()}
    return dict(zip(leaves, gradients, strict=True)), Value(value.total.detach(), value.loss.detach(), buffers)


def by_transform(value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> tuple[Params, Value]:
    """Gradients as a function transform, for use under `vmap`."""

    def scalar(p: Params) -> tuple[Tensor, tuple[Tensor, Params]]:
        value = value_of(p, frozen, batch)
        return value.total, (value.loss, value.buffers)

    gradients, (total, (loss, buffers)) = torch.func.grad_and_value(scalar, has_aux=True)(params)
    return gradients, Value(total, loss, buffers)


def by_transform_together(value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> tuple[Params, Value]:
    """Gradients of clients that are stacked along the first dimension of every tensor."""
    gradients, value = vmap(partial(by_transform, value_of))(params, frozen, batch)
    return gradients, value


class _AcrossLanes(torch.autograd.Function):
    """A function of stacked tensors that can be called from inside `vmap`, where each lane sees its own entry."""

    @staticmethod
    def forward(function: Callable[..., Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        """Without `vmap` the inputs are a stack of one."""
        return tuple(t[0] for t in function(*(t.unsqueeze(0) for t in inputs)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: the results are gradients already."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """Call the function with the whole stack."""
        stacked = [
            t.unsqueeze(0).expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
            for t, d in zip(inputs, in_dims[1:], strict=True)
        ]
        outputs = tuple(function(*stacked))
        return outputs, (0,) * len(outputs)


class _Flat:
    """A gradient function as one of tensors in a fixed order, which recordings and `vmap` need: names stay outside."""

    def __init__(self, way: GradientOf, value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> None:
        self._way, self._value_of = way, value_of
        self._parts = params, frozen, batch
        self.inputs = [*params.values(), *frozen.values(), *batch.values()]
        self.buffers: tuple[str, ...] = ()
        """The names of the buffers among the outputs; known after a call."""

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        gives = iter(inputs)
        params, frozen, batch = ({name: next(gives) for name in part} for part in self._parts)
        gradients, value = self._way(self._value_of, params, frozen, batch)
        self.buffers = tuple(value.buffers)
        return _unnamed(gradients, value)


def _unnamed(gradients: Params, value: Value) -> list[Tensor]:
    return [value.total, value.loss, *gradients.values(), *value.buffers.values()]


def _named(outputs: Sequence[Tensor], params: Params, buffers: Sequence[str]) -> tuple[Params, Value]:
    """The reverse of `_unnamed`."""
    total, loss, *others = outputs
    statistics = dict(zip(buffers, others[len(params) :], strict=True))
    return dict(zip(params, others, strict=False)), Value(total, loss, statistics)


def in_stack(together: GradientOf, plain_value_of: ValueOf) -> GradientOf:
    """A gradient function for stacked clients, in a form that one lane inside `vmap` can call, at any point."""

    def gradient_of(value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> tuple[Params, Value]:
        flat = _Flat(together, plain_value_of, params, frozen, batch)
        outputs = _AcrossLanes.apply(flat, *flat.inputs)  # type: ignore[no-untyped-call]
        return _named(outputs, params, flat.buffers)

    return gradient_of


WHOLE = ("_key", "_outputs")
"""Columns of a batch that have no row dimension: the dropout key and the client's number of classes."""


def in_pieces(way: GradientOf, pieces: int, counts: Callable[[Batch], Tensor]) -> GradientOf:
    """A gradient function that passes a batch through the model in pieces and returns the whole batch's gradient.

    `counts` says what each row counts in the loss. Each piece has its own dropout masks, and BatchNorm sees one piece
    at a time.
    """

    def gradient_of(value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> tuple[Params, Value]:
        total = counts(batch).sum()
        gradients: list[Params] = []
        values: list[Value] = []
        weights: list[Tensor] = []
        for piece in _cut(batch, pieces):
            gradient, value = way(value_of, params, frozen, piece)
            # Running statistics of one piece are the start of the next, as if the pieces were batches in a row.
            frozen = {**frozen, **value.buffers}
            gradients.append(gradient)
            values.append(value)
            weights.append(counts(piece).sum() / total)

        def mean(parts: list[Tensor]) -> Tensor:
            # The mean of a piece in which no row counts is no number, and says nothing.
            weighed = [torch.where(w > 0, w.to(p.dtype) * p, 0.0) for w, p in zip(weights, parts, strict=True)]
            return sum(weighed[1:], weighed[0])

        all_of_it, loss = mean([v.total for v in values]), mean([v.loss for v in values])
        return {n: mean([g[n] for g in gradients]) for n in params}, Value(all_of_it, loss, values[-1].buffers)

    return gradient_of


def _cut(batch: Batch, pieces: int) -> list[Batch]:
    """The pieces of a batch that have rows."""
    rows = {n: t for n, t in batch.items() if n not in WHOLE}
    count = len(next(iter(rows.values())))
    size = -(-count // pieces)
    cut = []
    for number, start in enumerate(range(0, count, size)):
        whole = {n: batch[n] for n in WHOLE if n in batch}
        # The first piece keeps the batch's key, so that one piece draws the masks of an undivided batch.
        if "_key" in whole and number:
            whole["_key"] = scramble(whole["_key"] + number)
        cut.append({**{n: t[start : start + size] for n, t in rows.items()}, **whole})
    return cut


Layout = tuple[object, ...]


class _Remembered(NamedTuple):
    """How gradients for batches of one layout are computed: by replaying a recording, or not."""

    recording: Function | Refusal
    buffers: tuple[str, ...] = ()


class Replayed:
    """A way to compute gradients, recorded when shapes repeat and replayed from then on; the bits are the same.

    This is sound only if the objective depends on nothing but its arguments: the parameters, the other tensors and the
    batch. Torch's layers and ours are known to be like that. Other code is watched: `unchanged` says whether its Python
    state is as it was, and replays are compared with the original, always at first and ever more rarely later.
    """

    def __init__(self, way: GradientOf, unchanged: Callable[[], bool] | None = None) -> None:
        self._way = way
        self._unchanged = unchanged
        self._remembered: dict[Layout, _Remembered | None] = {}
        self._replays: dict[Layout, int] = {}

    @property
    def refusals(self) -> list[str]:
        """Why steps were not recorded, each reason once."""
        found = (r.recording.reason for r in self._remembered.values() if r and isinstance(r.recording, Refusal))
        return list(dict.fromkeys(found))

    def __call__(self, value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> tuple[Params, Value]:
        """The gradient and the value."""
        inputs = [*params.values(), *frozen.values(), *batch.values()]
        # Strides belong to the key: torch picks its kernels by them, and another kernel may round differently.
        layout = (*batch, *((t.shape, t.stride(), t.dtype) for t in inputs))
        remembered = self._remembered.get(layout)
        if remembered is None:
            return self._meet(layout, value_of, params, frozen, batch)
        if isinstance(remembered.recording, Refusal):
            return self._way(value_of, params, frozen, batch)
        outputs = remembered.recording(inputs)
        if self._unchanged is not None:
            outputs = self._compared(layout, outputs, value_of, params, frozen, batch)
        return _named(outputs, params, remembered.buffers)

    def _meet(
        self, layout: Layout, value_of: ValueOf, params: Params, frozen: Params, batch: Batch
    ) -> tuple[Params, Value]:
        """Compute the gradient of a layout without a recording: note it the first time, record it the second.

        Recording costs several steps. A shape that comes only once would not pay that back. The recorded step itself
        is the first to be replayed.
        """
        if layout in self._remembered:
            self._remembered[layout] = self._remember(value_of, params, frozen, batch)
            return self(value_of, params, frozen, batch)
        if len(self._remembered) < MOST_RECORDINGS:
            device = next(iter(params.values())).device.type
            recorded = device in RECORDED_DEVICES
            self._remembered[layout] = None if recorded else _Remembered(Refusal(f"runs on {device!r}"))
        return self._way(value_of, params, frozen, batch)

    def _remember(self, value_of: ValueOf, params: Params, frozen: Params, batch: Batch) -> _Remembered:
        flat = _Flat(self._way, value_of, params, frozen, batch)
        recording = record(flat, flat.inputs)
        if self._unchanged is not None and not self._unchanged():
            recording = Refusal("changes attributes of the model while it runs")
        if isinstance(recording, Refusal):
            return _Remembered(recording)
        graphs = sum(isinstance(known.recording, Graph) for known in self._remembered.values() if known)
        return _Remembered(captured(recording, flat.inputs) if graphs < MOST_GRAPHS else recording, flat.buffers)

    def _compared(
        self, layout: Layout, outputs: list[Tensor], value_of: ValueOf, params: Params, frozen: Params, batch: Batch
    ) -> list[Tensor]:
        """The outputs, after a comparison with the original where one is due."""
        count = self._replays[layout] = self._replays.get(layout, 0) + 1
        if count > FIRST_COMPARED and count & (count - 1):  # later on only at powers of two
            return outputs
        gradients, value = self._way(value_of, params, frozen, batch)
        original = _unnamed(gradients, value)
        if same(original, outputs):
            return outputs
        if count > FIRST_COMPARED:
            # Earlier replays have been used already, so the run cannot fall back to the original: it has to stop.
            raise TrainingError(
                f"run stopped: after {count} equal steps the model computes something else for the same shapes. Its "
                "forward must depend on its inputs and weights alone, not on what it remembers in Python."
            )
        self._remembered[layout] = _Remembered(Refusal("computes other operations for other numbers"))
        return original
