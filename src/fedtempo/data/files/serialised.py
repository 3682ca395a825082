"""Reads the few shapes of value in Planetoid's, CIFAR's and PFLlib's files without running anything that they name.

Planetoid's graphs are published only as pickles, most people have CIFAR-100 as pickles, and PFLlib writes one for each
client. Unpickling a file would run whatever it says: that is why this small reader stays.

The files are programs for a stack machine (Python's object format, protocols 2 to 4). The reader knows the three dozen
instructions that occur in them, builds tuples, lists, dicts, texts and byte strings, and keeps every class or function
that a file names as text. Afterwards `array_of` and `rows_of` take numbers out of the two forms they expect.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fedtempo.errors import DataError

MOST_FEATURES = 1 << 28
_MARK = object()
_TYPES = frozenset({"b1", "u1", "u2", "i1", "i2", "i4", "i8", "f2", "f4", "f8"})


class Named:
    """Something a file says was made by calling a name; here it is only written down."""

    def __init__(self, name: object, arguments: object) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        self.items: dict[Any, Any] = {}


class _Machine:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def run(self) -> Any:
        """The value that the file describes."""
        while True:
            code = self._take(1)
            if code == b".":
                return self._stack.pop()
            if code not in _INSTRUCTIONS:
                raise ValueError(f"instruction {code.hex()} is not one of those that read data")
            _INSTRUCTIONS[code](self)

    def _take(self, count: int) -> bytes:
        piece = self._content[self._place : self._place + count]
        if count < 0 or len(piece) != count:
            raise ValueError("it ends too early")
        self._place += count
        return piece

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def _line(self) -> str:
        end = self._content.index(b"\n", self._place)
        return self._take(end + 1 - self._place)[:-1].decode("ascii")

    def _skip_version(self) -> None:
        self._take(1)

    def _skip_frame(self) -> None:
        self._take(8)  # the length of what follows, which matters only to who reads piece by piece

    def _since_mark(self) -> list[Any]:
        start = len(self._stack) - 1 - next(i for i, value in enumerate(reversed(self._stack)) if value is _MARK)
        values = self._stack[start + 1 :]
        del self._stack[start:]
        return values

    def _tuple(self, count: int) -> None:
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        self._stack.append(tuple(values))

    def _call(self) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        self._stack.append(Named(name, arguments))

    def _set_state(self) -> None:
        state = self._stack.pop()
        self._stack[-1].state = state

    def _set_items(self) -> None:
        values = self._since_mark()
        target = self._stack[-1]
        (target.items if isinstance(target, Named) else target).update(zip(values[::2], values[1::2], strict=True))

    def _remember(self) -> None:
        self._memory[len(self._memory)] = self._stack[-1]

    def _named_on_stack(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(f"{module} {name}")

    def _text(self, form: str) -> str:
        return self._take(self._number(form)).decode("utf-8", "surrogatepass")

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._stack[-1][key] = value

    def _append(self) -> None:
        value = self._stack.pop()
        self._stack[-1].append(value)

    def _extend(self) -> None:
        values = self._since_mark()
        self._stack[-1].extend(values)


_Push = Callable[[_Machine], Any]


def _pushes(value: _Push) -> Callable[[_Machine], None]:
    return lambda machine: machine._stack.append(value(machine))


def _stores(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine._memory.__setitem__(machine._number(form), machine._stack[-1])


_INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine._skip_version,
    b"(": _pushes(lambda machine: _MARK),
    b")": _pushes(lambda machine: ()),
    b"]": _pushes(lambda machine: []),
    b"}": _pushes(lambda machine: {}),
    b"N": _pushes(lambda machine: None),
    b"\x88": _pushes(lambda machine: True),
    b"\x89": _pushes(lambda machine: False),
    b"K": _pushes(lambda machine: machine._number("<B")),
    b"M": _pushes(lambda machine: machine._number("<H")),
    b"J": _pushes(lambda machine: machine._number("<i")),
    b"U": _pushes(lambda machine: machine._take(machine._number("<B"))),
    b"T": _pushes(lambda machine: machine._take(machine._number("<i"))),
    b"B": _pushes(lambda machine: machine._take(machine._number("<I"))),
    b"C": _pushes(lambda machine: machine._take(machine._number("<B"))),
    b"X": _pushes(lambda machine: machine._text("<I")),
    b"\x8c": _pushes(lambda machine: machine._text("<B")),
    b"\x8e": _pushes(lambda machine: machine._take(machine._number("<Q"))),
    b"\x93": _Machine._named_on_stack,
    b"\x94": _Machine._remember,
    b"\x95": _Machine._skip_frame,
    b"s": _Machine._set_item,
    b"c": _pushes(lambda machine: f"{machine._line()} {machine._line()}"),
    b"h": _pushes(lambda machine: machine._memory[machine._number("<B")]),
    b"j": _pushes(lambda machine: machine._memory[machine._number("<I")]),
    b"q": _stores("<B"),
    b"r": _stores("<I"),
    b"\x85": lambda machine: machine._tuple(1),
    b"\x86": lambda machine: machine._tuple(2),
    b"\x87": lambda machine: machine._tuple(3),
    b"t": lambda machine: machine._stack.append(tuple(machine._since_mark())),
    b"R": _Machine._call,
    b"\x81": _Machine._call,
    b"b": _Machine._set_state,
    b"u": _Machine._set_items,
    b"a": _Machine._append,
    b"e": _Machine._extend,
}


def read_serialised(content: bytes, name: str, take: Callable[[Any], Any], whose: str = "Planetoid's") -> Any:
    """What `take` finds in the value a file describes; anything unexpected is refused."""
    try:
        return take(_Machine(content).run())
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, StopIteration, struct.error) as error:
        raise DataError(f"{name} is not one of {whose} files: {error}.") from None


def array_of(value: Named) -> np.ndarray:
    """A numpy array: the state holds version, shape, type, order and bytes."""
    _, shape, kind, columns_first, content = value.state
    code = kind.arguments[0]
    code = code.decode("ascii") if isinstance(code, bytes) else code
    order = kind.state[1] if kind.state else "<"
    if code not in _TYPES or order not in ("<", "|", b"<", b"|"):
        raise ValueError(f"an array of type {order!r} {code!r} does not hold little-endian numbers")
    return np.frombuffer(content, np.dtype(f"<{code}")).reshape(shape, order="F" if columns_first else "C")


def contents_of(value: Named) -> list[object]:
    """The values in a numpy array of objects."""
    content = value.state[4]
    if not isinstance(content, list):
        raise ValueError("an array of objects must hold a list of them")
    return content


def rows_of(value: Named) -> np.ndarray:
    """A scipy matrix of compressed rows, as a dense array."""
    state = {key.decode("ascii"): part for key, part in value.state.items()}
    rows, columns = state["_shape"]
    data, indices, starts = (array_of(state[name]) for name in ("data", "indices", "indptr"))
    if not (rows > 0 and columns > 0 and rows * columns <= MOST_FEATURES) or len(starts) != rows + 1:
        raise ValueError(f"a matrix of {rows}x{columns} does not fit its rows")
    dense = np.zeros((rows, columns), dtype=np.float32)
    dense[np.repeat(np.arange(rows), starts[1:] - starts[:-1]), indices] = data
    return dense


def links_of(value: Named) -> np.ndarray:
    """A dict from each node to the nodes it is linked with, as pairs (smaller, larger), each once, none with itself."""
    if value.name != "collections defaultdict":
        raise ValueError(f"a graph must be a dict of lists. Got {value.name}")
    pairs = np.array([(node, other) for node, others in value.items.items() for other in others], dtype=np.int64)
    pairs = np.sort(pairs.reshape(-1, 2), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
