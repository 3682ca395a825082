"""A function of tensors, recorded once as the list of torch's operations and replayed from then on.

Most of a small network's step is spent between its operations: modules, torch's tape, the choice of a derivative.
A recording has none of that, and the same operations in the same order give the same bits.

>>> double = record(lambda x: [x + x], [torch.ones(2)])
>>> double([torch.arange(2.0)])
[tensor([0., 2.])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNREPEATABLE = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
)
"""Operations after which Python may have looked at numbers, or that draw some themselves."""
ALIAS = torch.ops.aten.detach.default
TRANSPOSE = torch.ops.aten.t.default
NOWHERE = 0
"""The register of results that nobody reads."""


class _Call(NamedTuple):
    """One operation: what to call, the registers of its arguments, and where its result or results go."""

    function: Callable[..., Any]
    arguments: tuple[int, ...]
    results: int | tuple[int, ...]
    writes: bool = False
    """Whether it changes an argument, so that it counts even if nobody reads its result."""

    @property
    def written(self) -> tuple[int, ...]:
        return (self.results,) if isinstance(self.results, int) else self.results


class Recording:
    """Operations on registers, to be replayed on other tensors of the same shapes."""

    def __init__(self, calls: Sequence[_Call], constants: dict[int, Any], inputs: int, outputs: Sequence[int]) -> None:
        places = _shared_registers(calls, {*constants, *range(1, inputs + 1), *outputs})
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
        registers = self._registers.copy()
        registers[self._inputs] = inputs
        for function, arguments, results in self._program:
            if isinstance(results, int):
                registers[results] = function(*arguments(registers))
            else:
                for place, value in zip(results, function(*arguments(registers)), strict=True):
                    registers[place] = value
        return [registers[place] for place in self._outputs]


def record(function: Callable[..., list[Tensor]], inputs: Sequence[Tensor]) -> Recording | None:
    """The operations of `function(*inputs)`; None where they cannot be replayed on other numbers.

    Of the function it is taken for granted that Python's part of it depends on the shapes alone.
    """
    with _Tape(inputs) as tape:
        outputs = function(*inputs)
    recording = tape.recording(outputs)
    if recording is None:
        return None
    again = recording(inputs)
    alike = all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    return recording if alike else None


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation below torch's tape of derivatives."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = {id(tensor): register for register, tensor in enumerate(inputs, 1)}
        self._inputs = len(inputs)
        self._next = len(inputs) + 1
        self._constants: dict[int, Any] = {}
        self._calls: list[_Call] = []
        self._transposed: dict[int, int] = {}
        self._alive: list[Any] = [*inputs]
        """Tensors are known by their identity, which is theirs alone only as long as they live."""
        self._repeatable = len(self._known) == len(inputs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation and note it."""
        result = func(*args, **(kwargs or {}))
        self._alive += [args, result]
        if self._repeatable:
            self._repeatable = self._note(func, args, kwargs or {}, result)
        return result

    def recording(self, outputs: Sequence[Tensor]) -> Recording | None:
        """What was noted, without what the outputs do not need."""
        if not self._repeatable or any(id(tensor) not in self._known for tensor in outputs):
            return None
        registers = [self._known[id(tensor)] for tensor in outputs]
        return Recording(_needed(self._calls, registers), self._constants, self._inputs, registers)

    def _note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> bool:
        """Whether the operation can be repeated."""
        unknown = any(id(tensor) not in self._known for tensor in _tensors(args))
        if unknown or any(tag in func.tags for tag in UNREPEATABLE) or any(True for _ in _tensors(kwargs.values())):
            return False
        if func is ALIAS or self._undoes(func, args):
            origin = self._known[id(args[0])]
            self._known[id(result)] = origin if func is ALIAS else self._transposed[origin]
            return True
        arguments = tuple(self._register(argument) for argument in args)
        operation = getattr(func, "_op", func)  # what `func` itself calls, one Python frame further on
        function = partial(operation, **kwargs) if kwargs else operation
        several = isinstance(result, (tuple, list))
        results = tuple(self._result(one) for one in result) if several else self._result(result)
        self._calls.append(_Call(function, arguments, results, func._schema.is_mutable))
        if func is TRANSPOSE and isinstance(results, int):
            self._transposed[results] = arguments[0]
        return True

    def _undoes(self, func: Any, args: Sequence[Any]) -> bool:
        return func is TRANSPOSE and self._known[id(args[0])] in self._transposed

    def _register(self, argument: Any) -> int:
        """Where an argument is found: a tensor, a list of tensors put together for the purpose, or a constant."""
        if isinstance(argument, Tensor):
            return self._known[id(argument)]
        register = self._new()
        if any(True for _ in _tensors([argument])):
            self._calls.append(_Call(_listed, tuple(self._register(one) for one in argument), register))
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


def _needed(calls: Sequence[_Call], outputs: Iterable[int]) -> list[_Call]:
    """The calls whose results are read, or that write over something."""
    read = set(outputs)
    kept = []
    for call in reversed(calls):
        if call.writes or not read.isdisjoint(call.written):
            read.update(call.arguments)
            kept.append(call)
    return kept[::-1]


def _shared_registers(calls: Sequence[_Call], kept: set[int]) -> dict[int, int]:
    """A place for every register. A result takes the place of one that is not read any more, whose memory is freed."""
    last = {register: index for index, call in enumerate(calls) for register in call.arguments}
    places = {NOWHERE: NOWHERE}
    for register in sorted(kept):
        places[register] = len(places)
    free, following = [], len(places)
    for index, call in enumerate(calls):
        free += [places[r] for r in sorted({*call.arguments} - kept) if last[r] == index]
        for register in call.written:
            if register not in last and register not in kept:
                places[register] = NOWHERE
            elif register not in places:
                places[register] = free.pop() if free else following
                following = max(following, places[register] + 1)
    return places


def _placed(places: dict[int, int], results: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return places[results] if isinstance(results, int) else tuple(places[register] for register in results)


def _fetch(places: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The values at some places, always as a tuple."""
    if len(places) == 1:
        return lambda registers: (registers[places[0]],)
    return itemgetter(*places) if places else lambda registers: ()
