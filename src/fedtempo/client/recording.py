"""A function of tensors, recorded once as a list of torch operations and replayed from then on.

A small network's step spends most of its time between operations: in modules, in torch's tape, in choosing derivatives.
A replay skips all of that. The same operations in the same order give the same bits. A function whose operations could
change from call to call is refused, with the reason.

>>> double = record(lambda x: [x + x], [torch.ones(2)])
>>> double([torch.arange(2.0)])
[tensor([0., 2.])]
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedtempo.client.calls import NOWHERE, Call, needed, pooled_first, shared_registers, unchanging

UNREPEATABLE = {
    torch.Tag.data_dependent_output: "reads numbers out of a tensor",
    torch.Tag.dynamic_output_shape: "makes a tensor whose shape depends on numbers",
    torch.Tag.nondeterministic_seeded: "draws random numbers",
}
"""Operations after which Python may have looked at numbers, or that draw some themselves."""
READS = frozenset(
    getattr(Tensor, name)
    for name in (
        "tolist",
        "numpy",
        "item",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "__array__",
        "__contains__",
    )
)
"""Functions by which Python gets at a tensor's numbers; some of them do so without any operation of torch."""
_ATEN = torch.ops.aten
ALIAS = _ATEN.detach.default
TRANSPOSE = _ATEN.t.default
SHAPED = frozenset({_ATEN.ones_like.default, _ATEN.zeros_like.default})
"""Operations whose result follows from the shapes alone: where nobody writes over it, one result serves all replays."""
LARGEST_KEPT = 1024
"""Numbers of such a result that is kept at most."""
BINDINGS: dict[Any, Callable[..., Any]] = {
    _ATEN.t.default: torch.t,
    _ATEN.mm.default: torch.mm,
    _ATEN.bmm.default: torch.bmm,
    _ATEN.addmm.default: torch.addmm,
    _ATEN.relu.default: torch.relu,
    _ATEN.mul.Tensor: torch.mul,
    _ATEN.sum.dim_IntList: torch.sum,
    _ATEN.view.default: Tensor.view,
    _ATEN.unsqueeze.default: torch.unsqueeze,
    _ATEN.transpose.int: torch.transpose,
    _ATEN._log_softmax.default: torch._log_softmax,
}
"""Python functions that call the same operation with the same arguments, a microsecond sooner than `torch.ops` does."""


class Recording:
    """Operations on registers, to be replayed on other tensors of the same shapes."""

    def __init__(self, calls: Sequence[Call], constants: dict[int, Any], inputs: int, outputs: Sequence[int]) -> None:
        places = shared_registers(calls, {*constants, *range(1, inputs + 1), *outputs})
        self._program = [
            (call.function, _fetch([places[a] for a in call.arguments]), _placed(places, call.results))
            for call in calls
        ]
        self._registers: list[Any] = [None] * (max(places.values()) + 1)
        for register, value in constants.items():
            self._registers[places[register]] = value
        self._inputs = slice(1, inputs + 1)
        self._outputs = [places[register] for register in outputs]

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the function would have returned."""
        # A fresh copy for every call: results must not outlive the call, and a call may happen inside another.
        registers = self._registers.copy()
        registers[self._inputs] = inputs
        for function, arguments, results in self._program:
            if isinstance(results, int):
                registers[results] = function(*arguments(registers))
            else:
                for place, value in zip(results, function(*arguments(registers)), strict=True):
                    registers[place] = value
        return [registers[place] for place in self._outputs]


class Refusal(NamedTuple):
    """Why a function is not recorded."""

    reason: str


def record(function: Callable[..., list[Tensor]], inputs: Sequence[Tensor]) -> Recording | Refusal:
    """The operations of `function(*inputs)`, or why they cannot be replayed on other numbers.

    Refused are functions that read numbers out of tensors, draw at random (by torch, Python or numpy) or use tensors
    that are not inputs. Python state that the function changes cannot be seen here; the caller has to watch for that.
    """
    drawn = _generators()
    with _Reading() as reading, _Tape(inputs) as tape:
        outputs = function(*inputs)
    if reading.reason is not None:
        return Refusal(reading.reason)
    if _generators() != drawn:
        return Refusal("draws from Python's or numpy's random generator")
    recording = tape.recording(outputs)
    if isinstance(recording, Refusal):
        return recording
    return recording if same(outputs, recording(inputs)) else Refusal("does not compute the same twice")


def same(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether tensors are equal to the bit; a NaN equals a NaN."""
    return all(_equal(a, b) for a, b in zip(ones, others, strict=True))


def _equal(one: Tensor, other: Tensor) -> bool:
    if torch.equal(one, other):
        return True
    both = (torch.nan_to_num(t, 0.0, math.inf, -math.inf) for t in (one, other))
    return one.is_floating_point() and torch.equal(one.isnan(), other.isnan()) and torch.equal(*both)


def _generators() -> tuple[int, bytes]:
    """Where Python's and numpy's global generators stand."""
    return hash(random.getstate()), np.random.get_state()[1].tobytes()  # type: ignore[index]


class _Reading(TorchFunctionMode):
    """Notices when Python reads a tensor's numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            self.reason = f"reads numbers out of a tensor ({func.__name__})"
        return func(*args, **(kwargs or {}))


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation that torch dispatches. Backward passes are included: they consist of operations, too."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = {id(tensor): register for register, tensor in enumerate(inputs, 1)}
        self._inputs = len(inputs)
        self._next = len(inputs) + 1
        self._constants: dict[int, Any] = {}
        self._calls: list[Call] = []
        self._transposed: dict[int, int] = {}
        self._shaped: dict[int, Tensor] = {}
        self._alive: list[Any] = [*inputs]
        """Keep every tensor alive so that `id()` is not reused."""
        self._reason = None if len(self._known) == len(inputs) else "gets one tensor for two inputs"

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation and note it."""
        result = func(*args, **(kwargs or {}))
        self._alive += [args, result]
        if self._reason is None:
            self._reason = self._note(func, args, kwargs or {}, result)
        return result

    def recording(self, outputs: Sequence[Tensor]) -> Recording | Refusal:
        """What was noted, without what the outputs do not need."""
        if self._reason is None and any(id(tensor) not in self._known for tensor in outputs):
            self._reason = "returns a tensor that no operation of torch made"
        if self._reason is not None:
            return Refusal(self._reason)
        registers = [self._known[id(tensor)] for tensor in outputs]
        calls = pooled_first(needed(self._calls, registers), registers, self._next)
        kept = unchanging(calls, self._shaped, registers)
        calls = [call for call in calls if call.results not in kept]
        return Recording(calls, {**self._constants, **kept}, self._inputs, registers)

    def _note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> str | None:
        """Note an operation; the reason if it cannot be repeated."""
        for tag, reason in UNREPEATABLE.items():
            if tag in func.tags:
                return f"{reason} ({func.name()})"
        if any(id(tensor) not in self._known for tensor in _tensors(args)):
            return f"uses a tensor that is neither its input nor made from it ({func.name()})"
        if any(True for _ in _tensors(kwargs.values())):
            return f"passes tensors by name ({func.name()})"
        # A detached tensor and a matrix transposed twice are the same numbers in the same memory: nothing to replay.
        if func is ALIAS or self._undoes(func, args):
            origin = self._known[id(args[0])]
            self._known[id(result)] = origin if func is ALIAS else self._transposed[origin]
            return None
        arguments = tuple(self._register(argument) for argument in args)
        operation = getattr(func, "_op", func)  # what `func` itself calls, one Python frame further on
        function = partial(operation, **kwargs) if kwargs else BINDINGS.get(func, operation)
        several = isinstance(result, (tuple, list))
        results = tuple(self._result(one) for one in result) if several else self._result(result)
        fresh = all(returned.alias_info is None for returned in func._schema.returns)
        self._calls.append(Call(func, function, arguments, results, func._schema.is_mutable, fresh))
        if func in SHAPED and result.numel() <= LARGEST_KEPT and isinstance(results, int):
            self._shaped[results] = result
        if func is TRANSPOSE and isinstance(results, int):
            self._transposed[results] = arguments[0]
        return None

    def _undoes(self, func: Any, args: Sequence[Any]) -> bool:
        return func is TRANSPOSE and self._known[id(args[0])] in self._transposed

    def _register(self, argument: Any) -> int:
        """Where an argument is found: a tensor, a list of tensors put together for the purpose, or a constant."""
        if isinstance(argument, Tensor):
            return self._known[id(argument)]
        register = self._new()
        if any(True for _ in _tensors([argument])):
            self._calls.append(Call(None, _listed, tuple(self._register(one) for one in argument), register))
        else:
            self._constants[register] = argument
        return register

    def _result(self, result: Any) -> int:
        """A new register, unless the result is an argument written over."""
        if not isinstance(result, Tensor) or id(result) in self._known:
            return NOWHERE
        return self._known.setdefault(id(result), self._new())

    def _new(self) -> int:
        self._next += 1
        return self._next - 1


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _listed(*values: Any) -> list[Any]:
    return list(values)


def _placed(places: dict[int, int], results: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return places[results] if isinstance(results, int) else tuple(places[register] for register in results)


def _fetch(places: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The values at some places, always as a tuple."""
    if len(places) == 1:
        return lambda registers: (registers[places[0]],)
    return itemgetter(*places) if places else lambda registers: ()
