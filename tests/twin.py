"""A device for tests: `device="twin"`, on a machine that has only a processor.

Its tensors lie in host memory, where torch's own kernels for the processor compute on them, so a run on it gives the
numbers of a run on the processor. In all else it is as strict as a graphics card: operations refuse tensors of the
processor beside its own, `numpy()` refuses its tensors, memory can run out, a fork cannot use it, and the device can
be lost. `watched()` counts every time the host waits for it or copies to it, and names the line.

Torch has room for one such device in a process and cannot take it back, and a process that has computed gradients
cannot have one any more. So a test runs a function in a process of its own, by `on_twin`.
"""

from __future__ import annotations

import copyreg
import multiprocessing
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils import backend_registration

from tests.waiting import PATIENCE

T = TypeVar("T")

NAME, KEY = "twin", "PrivateUse1"
OLDEST_TORCH = (2, 11)
"""The first torch in which such a device can be written in Python."""
MIXED = "Expected all tensors to be on the same device, but found at least two devices, twin:0 and {}! (in {})"
PROCESSOR = torch.device("cpu")

COPIES, WAITS, OPERATIONS = "copies to the device", "waits", "operations"
"""A wait: the host reads a number or a tensor, or an operation's result has a shape that depends on numbers."""


def is_possible() -> bool:
    """Whether this torch lets Python define a device."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return version >= OLDEST_TORCH and hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def on_twin(function: Callable[..., T], *arguments: object, timeout: float = PATIENCE) -> T:
    """What a function of a module returns in a process whose torch has the device; what it raises is raised here."""
    if not is_possible():
        pytest.skip(f"a device in Python needs torch {'.'.join(map(str, OLDEST_TORCH))}; this is {torch.__version__}")
    # A server that has loaded everything and computed nothing is forked for every call.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.twin", "tests.zoo"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, function, arguments))
    process.start()
    there.close()
    try:
        answered = here.poll(timeout)
        assert answered, f"no answer after {timeout} seconds"
        good, answer = here.recv()
    except EOFError:
        good, answer = False, "the process died"
    finally:
        process.kill()
        process.join()
        here.close()
    assert good, answer
    found: T = answer
    return found


def _answer(pipe: Any, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    install()
    try:
        answer = True, function(*arguments)
    except BaseException:
        answer = False, traceback.format_exc()
    pipe.send(answer)


class Watch:
    """How often what happened, by kind and by (kind, line, operation)."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes = 0
        """Bytes that were copied to the device."""
        self.lines: Counter[tuple[str, str, str]] = Counter()

    @property
    def waits(self) -> int:
        """How often the host waited for the device."""
        return self.counts[WAITS]

    @property
    def copies(self) -> int:
        """How often something was copied to the device."""
        return self.counts[COPIES]

    def __str__(self) -> str:
        rows = [f"{count:6d} {kind} at {line} ({what})" for (kind, line, what), count in self.lines.most_common()]
        return "\n".join([f"{self.waits} waits, {self.copies} copies of {self.bytes} bytes", *rows])


class Twin:
    """The state of the device in this process."""

    def __init__(self) -> None:
        self.capacity, self.used, self.allocations = 2**40, 0, 0
        self.fails: range = range(0)
        """Numbers of the allocations that find no memory."""
        self.has_float64, self.lost, self.started, self.inherited = True, False, False, False
        self.generator = torch.Generator()
        self.place = PROCESSOR  # until torch knows the device
        self.watches: list[Watch] = []
        self.lock = threading.Lock()

    def use(self) -> None:
        """Every operation begins here."""
        if self.inherited:
            raise RuntimeError(
                "Cannot re-initialize twin in forked subprocess. To use twin with multiprocessing, you must use the"
                " 'spawn' start method"
            )
        if self.lost:
            raise torch.AcceleratorError("twin error: the device is lost")
        self.started = True

    def allocate(self, size: int) -> None:
        """Take memory for new numbers."""
        if size > 0:
            self.allocations += 1
            if self.allocations in self.fails or self.used + size > self.capacity:
                free = self.capacity - self.used
                raise torch.OutOfMemoryError(f"twin out of memory. Tried to allocate {size} bytes. {free} are free.")
        self.used += size

    def tell(self, kind: str, what: str, size: int = 0) -> None:
        """Count an event."""
        for watch in self.watches:
            with self.lock:
                watch.counts[kind] += 1
                if kind != OPERATIONS:
                    watch.bytes += size
                    watch.lines[kind, _project_line(), what] += 1


TWIN = Twin()


def _project_line() -> str:
    """The innermost line of FedTempo on the stack; else the innermost one outside torch and this file."""
    inner, frame = "(no line: a backward pass)", sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        line = f"{file.rpartition(f'{os.sep}fedtempo{os.sep}')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        if f"{os.sep}fedtempo{os.sep}" in file:
            return line
        if inner.startswith("(") and file != __file__ and f"{os.sep}torch{os.sep}" not in file:
            inner = line
        frame = frame.f_back  # type: ignore[assignment]
    return inner


@contextmanager
def watched() -> Iterator[Watch]:
    """Count what happens inside."""
    watch = Watch()
    TWIN.watches.append(watch)
    try:
        yield watch
    finally:
        TWIN.watches.remove(watch)


@contextmanager
def with_settings(**settings: object) -> Iterator[None]:
    """The device with other attributes inside, such as `capacity=2**20`, `has_float64=False` or `lost=True`."""
    before = {name: getattr(TWIN, name) for name in settings}
    vars(TWIN).update(settings)
    try:
        yield
    finally:
        vars(TWIN).update(before)


def failing(first: int, times: int = 1) -> Any:
    """The `first`-th allocation inside finds no memory, nor do the next ones if there are several `times`."""
    return with_settings(fails=range(TWIN.allocations + first, TWIN.allocations + first + times))


# ------------------------------------------------------------------ memory


class Block:
    """Memory that belongs to the device's tensors which show it."""

    def __init__(self, host: torch.UntypedStorage) -> None:
        self.host, self.size = host, 0
        self.fit()

    def fit(self) -> None:
        """Account for what the memory has grown or shrunk by."""
        TWIN.allocate(self.host.nbytes() - self.size)
        self.size = self.host.nbytes()

    def __del__(self) -> None:
        TWIN.used -= self.size


AT = torch.ops.aten
KERNELS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def is_ours(value: object) -> bool:
    """Whether this is a tensor of the device."""
    return isinstance(value, Tensor) and value.device.type == NAME


def in_host(tensor: Tensor) -> Tensor:
    """A tensor of the processor on the memory of one of the device's."""
    block = tensor.untyped_storage().block  # type: ignore[attr-defined]
    return torch.empty(0, dtype=tensor.dtype).set_(block.host, tensor.storage_offset(), tensor.size(), tensor.stride())


def _pointed(tensor: Tensor, storage: Any, like: Tensor) -> Tensor:
    """The device's tensor, which from now on shows this storage in the form of `like`."""
    form = like.storage_offset(), like.size(), like.stride()
    # The processor's kernel only writes down where the tensor points.
    AT.set_.source_Storage_storage_offset.redispatch(KERNELS, tensor, storage, *form)
    return tensor


def _storage_on(block: Block) -> Any:
    storage = torch._C._construct_storage_from_data_pointer(block.host.data_ptr(), TWIN.place, block.host.nbytes())
    storage.block = block
    return storage


def on_device(host: Tensor) -> Tensor:
    """A tensor of the device on the memory of one of the processor's, which nobody else holds."""
    if host.dtype in (torch.float64, torch.complex128) and not TWIN.has_float64:
        raise TypeError("Cannot convert a twin tensor to float64 dtype as the twin device doesn't support float64.")
    storage = _storage_on(Block(host.untyped_storage()))
    return _pointed(torch._C._acc.create_empty_tensor((0,), host.dtype), storage, host)


# ------------------------------------------------------------------ operations

LONE = {"copy_", "fill_", "fill", "masked_fill", "masked_fill_", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take a number in a tensor of the processor, as those of torch's kind `pointwise` do."""
NOT_LONE = {"addcmul", "addcmul_", "addcdiv", "addcdiv_"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
"""Operations that take indices from the processor's memory, which are then copied."""
WAITING = {"_linalg_svd", "_linalg_eigh", "linalg_eig", "bincount", "histc", "unique_consecutive", "unique_dim"}
"""Operations that wait, beside those of torch's kinds `dynamic_output_shape` and `data_dependent_output`."""


class Operation:
    """One of torch's operations, computed on the device's memory by the processor's kernel."""

    def __init__(self, op: Any) -> None:
        schema = op._schema
        self.op, self.name, self.schema = op, schema.name.removeprefix("aten::"), schema
        names = [argument.name for argument in schema.arguments]
        self.generator = names.index("generator") if "generator" in names else None
        kinds = set(op.tags)
        self.takes_numbers = (torch.Tag.pointwise in kinds or self.name in LONE) and self.name not in NOT_LONE
        self.waits = bool({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & kinds)
        # An index says by its type whether the host has to wait: see `_index`.
        self.waits = (self.waits or self.name in WAITING) and self.name not in INDEXED
        self.plain_numbers = torch._C._should_allow_numbers_as_tensors(self.name.rstrip("_"))

    def __call__(self, *args: Any, **named: Any) -> Any:
        with torch._C.DisableTorchFunction():
            TWIN.use()
            TWIN.tell(WAITS if self.waits else OPERATIONS, self.name)
            owners: dict[int, tuple[Tensor, Tensor]] = {}
            there = [self._argument(value, owners, place) for place, value in enumerate(args)]
            named = {name: self._argument(value, owners) for name, value in named.items()}
            if self.generator is not None and len(args) <= self.generator and named.get("generator") is None:
                named["generator"] = TWIN.generator
            result = self.op(*there, **named)
            if self.schema.is_mutable:
                _follow(owners)
            return _result(result, owners)

    def _argument(self, value: Any, owners: dict[int, tuple[Tensor, Tensor]], place: int | None = None) -> Any:
        if isinstance(value, Tensor):
            if value.device.type == NAME:
                host = in_host(value)
                owners[id(host)] = value, host
                return host
            if self.takes_numbers and value.dim() == 0:
                return value
            raise RuntimeError(MIXED.format(value.device, self.name))
        if isinstance(value, (list, tuple)):
            indices = self.name in INDEXED and place == 1
            return [self._index(one, owners) if indices else self._argument(one, owners) for one in value]
        if isinstance(value, torch.device):
            return PROCESSOR
        if isinstance(value, torch.Generator) and value is not TWIN.generator:
            raise RuntimeError(f"Expected a 'twin' device type for generator but found '{value.device.type}'")
        if place is not None and isinstance(value, (bool, int, float)) and not self.plain_numbers:
            # Torch hands over a number where the operation has a tensor, as in `mask | True`.
            return torch.tensor(value) if str(self.schema.arguments[place].type) == "Tensor" else value
        return value

    def _index(self, value: Any, owners: dict[int, tuple[Tensor, Tensor]]) -> Any:
        if isinstance(value, Tensor) and value.dtype in (torch.bool, torch.uint8):
            TWIN.tell(WAITS, f"{self.name} by a mask")
        if isinstance(value, Tensor) and value.device == PROCESSOR:
            TWIN.tell(COPIES, f"{self.name} by the host's index", value.nbytes)
            return value
        return self._argument(value, owners)


def _result(value: Any, owners: dict[int, tuple[Tensor, Tensor]]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_result(one, owners) for one in value)
    if not isinstance(value, Tensor):
        return value
    if id(value) in owners:
        return owners[id(value)][0]
    memory = value.untyped_storage()._cdata
    for owner, host in owners.values():
        if host.untyped_storage()._cdata == memory and owner.dtype == value.dtype:
            form = value.size(), value.stride(), value.storage_offset()
            return AT.as_strided.default.redispatch(KERNELS, owner, *form)
    return on_device(value)


def _follow(owners: dict[int, tuple[Tensor, Tensor]]) -> None:
    """Let the device's tensors have the form that the operation gave to the processor's (`out=`, `resize_`)."""
    for ours, host in owners.values():
        if ours.shape == host.shape and ours.stride() == host.stride():
            continue
        storage: Any = ours.untyped_storage()
        if storage.nbytes() != host.untyped_storage().nbytes():
            storage.block.fit()
            storage = _storage_on(storage.block)
        _pointed(ours, storage, host)


# ------------------------------------------------------------------ what has no kernel of the processor


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **others: Any) -> Tensor:
    TWIN.use()
    with torch._C.DisableTorchFunction():
        form = torch.contiguous_format if memory_format is None else memory_format
        return on_device(torch.empty(size, dtype=dtype, memory_format=form))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **others: Any) -> Tensor:
    TWIN.use()
    with torch._C.DisableTorchFunction():
        return on_device(torch.empty_strided(size, stride, dtype=dtype))


def _copied(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    TWIN.use()
    with torch._C.DisableTorchFunction():
        kind = OPERATIONS if is_ours(source) and is_ours(target) else COPIES if is_ours(target) else WAITS
        TWIN.tell(kind, "copy", source.nbytes if kind == COPIES else 0)
        hosts = [in_host(each) if is_ours(each) else each for each in (source, target)]
        hosts[1].copy_(hosts[0])
    return target


def _copied_and_resized(source: Tensor, target: Tensor) -> Tensor:
    return _copied(source, target.resize_(source.shape))


def _number(tensor: Tensor) -> Any:
    TWIN.use()
    with torch._C.DisableTorchFunction():
        TWIN.tell(WAITS, "item")
        return in_host(tensor).item()


def _set(tensor: Tensor, source: Any = None, offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """The forms of `Tensor.set_`."""
    if source is None:
        source = _empty((0,), dtype=tensor.dtype)
    if isinstance(source, Tensor):
        return _pointed(tensor, source.untyped_storage(), source)
    if size is None:
        size, stride = (source.nbytes() // tensor.element_size(),), (1,)
    if not stride:
        stride = torch.empty(size, device="meta").stride()
    AT.set_.source_Storage_storage_offset.redispatch(KERNELS, tensor, source, offset, size, stride)
    return tensor


def _convolution_backward(
    grad: Tensor, inputs: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, transposed: bool, *rest: Any
) -> Any:
    output_padding, groups, mask = rest
    biases = [weight.shape[1] * groups if transposed else weight.shape[0]]
    fixed = (stride, padding, dilation, transposed, output_padding, groups, mask)
    return CONVOLUTION_BACKWARD(grad, inputs, weight, biases, *fixed)


def _by_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the processor's tensors, as one of the device's. Nothing that it returns shares memory."""

    def run(*args: Any) -> Any:
        TWIN.use()
        TWIN.tell(OPERATIONS, function.__name__)
        with torch._C.DisableTorchFunction():
            return _result(function(*(in_host(each) if is_ours(each) else each for each in args)), {})

    return run


# On a device that is not the processor, torch asks for the cells of recurrent layers as single operations.


def _gates(inputs: Tensor, hidden: Tensor, biases: Sequence[Tensor | None], count: int) -> list[list[Tensor]]:
    both = [part if bias is None else part + bias for part, bias in zip((inputs, hidden), biases, strict=True)]
    return [list(part.chunk(count, 1)) for part in both]


def _gru(inputs: Tensor, hidden: Tensor, before: Tensor, *biases: Tensor | None) -> Any:
    of_input, of_hidden = _gates(inputs, hidden, biases or (None, None), 3)
    reset, update = ((a + b).sigmoid() for a, b in zip(of_input[:2], of_hidden[:2], strict=True))
    candidate = (of_input[2] + reset * of_hidden[2]).tanh()
    kept = torch.cat((reset, update, candidate, before, of_hidden[2]), 1)
    return (before - candidate) * update + candidate, kept


def _gru_backward(grad: Tensor, kept: Tensor, has_bias: bool) -> Any:
    reset, update, candidate, before, hidden = kept.chunk(5, 1)
    to_candidate = grad * (1 - update) * (1 - candidate**2)
    to_reset = to_candidate * hidden * reset * (1 - reset)
    to_update = grad * (before - candidate) * update * (1 - update)
    of_input = torch.cat((to_reset, to_update, to_candidate), 1)
    of_hidden = torch.cat((to_reset, to_update, to_candidate * reset), 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, grad * update, *biases


def _lstm(inputs: Tensor, hidden: Tensor, before: Tensor, *biases: Tensor | None) -> Any:
    of_input, of_hidden = _gates(inputs, hidden, biases or (None, None), 4)
    let_in, forget, candidate, let_out = (a + b for a, b in zip(of_input, of_hidden, strict=True))
    let_in, forget, candidate, let_out = let_in.sigmoid(), forget.sigmoid(), candidate.tanh(), let_out.sigmoid()
    after = forget * before + let_in * candidate
    return let_out * after.tanh(), after, torch.cat((let_in, forget, candidate, let_out), 1)


def _lstm_backward(
    grad: Tensor | None, grad_cell: Tensor | None, before: Tensor, after: Tensor, kept: Tensor, has_bias: bool
) -> Any:
    let_in, forget, candidate, let_out = kept.chunk(4, 1)
    grad = torch.zeros_like(before) if grad is None else grad
    grad_cell = torch.zeros_like(before) if grad_cell is None else grad_cell
    squashed = after.tanh()
    cell = grad_cell + grad * let_out * (1 - squashed**2)
    parts = (
        cell * candidate * let_in * (1 - let_in),
        cell * before * forget * (1 - forget),
        cell * let_in * (1 - candidate**2),
        grad * squashed * let_out * (1 - let_out),
    )
    of_gates = torch.cat(parts, 1)
    return of_gates, cell * forget, of_gates.sum(0) if has_bias else None


CONVOLUTION, CONVOLUTION_BACKWARD = (Operation(op.default) for op in (AT.convolution, AT.convolution_backward))
OWN: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_copy_from": _copied,
    "_copy_from_and_resize": _copied_and_resized,
    "_local_scalar_dense": _number,
    "set_": _set,
    "set_.source_Storage": _set,
    "set_.source_Storage_storage_offset": _set,
    "set_.source_Tensor": _set,
    "convolution_overrideable": CONVOLUTION,
    "convolution_backward_overrideable": _convolution_backward,
    "_thnn_fused_gru_cell": _by_host(_gru),
    "_thnn_fused_gru_cell_backward": _by_host(_gru_backward),
    "_thnn_fused_lstm_cell": _by_host(_lstm),
    "_thnn_fused_lstm_cell_backward_impl": _by_host(_lstm_backward),
}
OF_BOTH = {"_foreach_copy", "_foreach_copy_", "_to_copy", "copy", "copy_"}
"""Operations that torch makes of others and that have tensors of both devices."""


class _Module(ModuleType):
    """`torch.twin`: what torch and libraries ask of a device's module."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return TWIN.started

    def _is_in_bad_fork(self) -> bool:
        return TWIN.inherited

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def synchronize(self, device: Any = None) -> None:
        TWIN.tell(WAITS, "synchronize")

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return TWIN.capacity - TWIN.used, TWIN.capacity

    def empty_cache(self) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        TWIN.generator.manual_seed((seed + 1) % 2**63)  # other numbers than the processor's, as on any other device

    manual_seed = manual_seed_all

    def get_rng_state(self, device: Any = NAME) -> Tensor:
        return TWIN.generator.get_state()

    def set_rng_state(self, state: Tensor, device: Any = NAME) -> None:
        TWIN.generator.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_registered: list[Any] = []


def install() -> None:
    """Add the device to torch, once in this process."""
    if _registered:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module(f"torch.{NAME}"))
    TWIN.place = torch.device(NAME, 0)
    aten = torch.library.Library("aten", "IMPL")
    for name, function in OWN.items():
        aten.impl(name, function, KEY)
    for name in torch._C._dispatch_get_all_op_names():
        short = name.removeprefix("aten::")
        if (
            name.startswith("aten::")
            and short not in OWN
            and short.partition(".")[0] not in OF_BOTH
            and _has_kernel(name)
        ):
            packet, _, overload = short.partition(".")
            aten.impl(short, Operation(getattr(getattr(AT, packet), overload or "default")), KEY)
    _registered.append(aten)
    os.register_at_fork(after_in_child=lambda: vars(TWIN).update(inherited=TWIN.started))
    for kind in (Tensor, nn.Parameter):
        _make_copyable(kind)


def _has_kernel(name: str) -> bool:
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return known(name, "CPU") and not known(name, KEY)


def _make_copyable(kind: Any) -> None:
    """Let `copy.deepcopy` and `pickle` take the device's tensors, for which torch wants an allocator in C++."""
    deepcopy, plain = kind.__deepcopy__, kind.__reduce_ex__

    def copied(self: Tensor, memo: dict[int, Any]) -> Any:
        if not is_ours(self):
            return deepcopy(self, memo)
        if id(self) not in memo:
            values = self.detach().clone()
            memo[id(self)] = _made(type(self), values, self.requires_grad)
        return memo[id(self)]

    def reduced(self: Tensor) -> Any:
        return (_sent, (type(self), self.detach().cpu(), self.requires_grad)) if is_ours(self) else plain(self, 2)

    kind.__deepcopy__ = copied
    copyreg.pickle(kind, reduced)


def _made(kind: Any, values: Tensor, requires_grad: bool) -> Tensor:
    return nn.Parameter(values, requires_grad) if kind is nn.Parameter else values.requires_grad_(requires_grad)


def _sent(kind: Any, values: Tensor, requires_grad: bool) -> Tensor:
    install()
    return _made(kind, values.to(NAME), requires_grad)
