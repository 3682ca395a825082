"""The census: what nodes say about their clients before a run. Counts and shapes, never data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtempo.data.federated import FederatedData
from fedtempo.deploy.nodedata import MOST_CLIENTS, NodeData
from fedtempo.deploy.wire import WireError

LONGEST = 1 << 24
"""Bytes of a census that are read; a hundred thousand clients take a tenth of it."""
MOST_ROWS = 1 << 31
"""Rows of one part of one client. The rows of all nodes together can then be counted in 64 bits."""
MOST_BYTES = 1 << 48
"""Bytes of a node's data."""
LARGEST_ROW_BYTES = 1 << 26
"""Bytes of a row over all columns: the server makes rows of this size."""
ROWS_SHOWN = 4
"""Rows that the server makes up to try the model on."""
Whole = Annotated[int, Field(ge=0, lt=MOST_ROWS)]
Number = Annotated[int, Field(ge=0, lt=MOST_CLIENTS)]
Kind = Literal[
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"
]


class ColumnKind(BaseModel):
    """A column's type, the shape of one row, and whether rows are normalised to floating-point numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Kind
    shape: Annotated[list[Whole], Field(max_length=8)]
    normalised: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return np.dtype(self.kind).itemsize * math.prod(self.shape)


class Census(BaseModel):
    """A node's answer: the clients it holds by number, how many rows each has, and of what form."""

    model_config = ConfigDict(extra="forbid", strict=True)
    experiment: str
    """The fingerprint of the experiment that the node has built."""
    numbers: list[Number]
    rows: list[tuple[Whole, Whole, Whole]]
    """Training, validation and test rows of each client."""
    new: list[Number]
    """Those of the clients that are never trained on."""
    outputs: list[Annotated[int, Field(ge=1, le=1 << 20)]] | None
    columns: Annotated[dict[str, ColumnKind], Field(min_length=1, max_length=64)]
    population: Number | None

    @model_validator(mode="after")
    def _complete(self) -> Census:
        lengths = {len(self.numbers), len(self.rows), *([] if self.outputs is None else [len(self.outputs)])}
        if lengths != {len(set(self.numbers))} or not self.numbers:
            raise ValueError("each client must be counted once")
        new = set(self.new)  # a set: a list would make the loop below quadratic in a node's claim
        if not new <= set(self.numbers):
            raise ValueError("new clients must be among those counted")
        if any(not rows[0] for number, rows in zip(self.numbers, self.rows, strict=True) if number not in new):
            raise ValueError("a client that is trained on must have training rows")
        row = sum(column.row_bytes for column in self.columns.values())
        if row > LARGEST_ROW_BYTES:
            raise ValueError(f"a row must have at most {LARGEST_ROW_BYTES} bytes")
        if sum(map(sum, self.rows)) * row > MOST_BYTES:
            raise ValueError(f"a node's data must be at most {MOST_BYTES} bytes")
        return self

    @property
    def form(self) -> str:
        """Names, types and shapes of the columns, which must be the same on all nodes."""
        named = ", ".join(
            f"{name!r}: {c.kind} {tuple(c.shape)}{' normalised' * c.normalised}"
            for name, c in sorted(self.columns.items())
        )
        return named if self.outputs is None else f"{named}, with outputs"


def census_of(node: NodeData, experiment: str) -> bytes:
    """A node's answer, as JSON."""
    data = node.data
    columns = {
        name: ColumnKind(kind=str(c.dtype), shape=list(c.shape[1:]), normalised=name in data.normalise)  # type: ignore[arg-type]
        for name, c in data.columns.items()
    }
    counted = Census(
        experiment=experiment,
        numbers=[int(number) for number in node.numbers],
        rows=[tuple(np.diff(bounds).tolist()) for bounds in data.bounds],
        new=[int(node.numbers[client]) for client in data.held_out.tolist()],
        outputs=None if data.outputs is None else data.outputs.tolist(),
        columns=columns,
        population=node.population,
    )
    return counted.model_dump_json().encode()


def read_census(answer: bytes) -> Census:
    """A node's answer, or `WireError` with the first thing that is wrong with it."""
    if not isinstance(answer, bytes) or len(answer) > LONGEST:
        raise WireError(f"a census must be at most {LONGEST} bytes.")
    try:
        return Census.model_validate_json(answer)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, found["loc"][:2]))
        raise WireError(f"a census must be counts and shapes. Got {place}: {found['msg']}.") from None


def data_of(counted: Iterable[Census]) -> FederatedData:
    """All nodes' clients as the server knows them. The nodes have columns of one form, and number clients from 0."""
    nodes = list(counted)
    columns = nodes[0].columns
    count = sum(len(node.numbers) for node in nodes)
    rows, outputs = np.zeros((count, 3), dtype=np.int64), np.ones(count, dtype=np.int64)
    for node in nodes:
        rows[node.numbers] = node.rows
        if node.outputs is not None:
            outputs[node.numbers] = node.outputs
    ends = np.cumsum(rows.reshape(-1)).reshape(count, 3)
    bounds = np.concatenate([(ends[:, 0] - rows[:, 0])[:, None], ends], axis=1)
    zeros = {name: np.zeros((ROWS_SHOWN, *column.shape), dtype=column.kind) for name, column in columns.items()}
    return FederatedData(
        zeros,
        bounds,
        held_out=np.array(sorted(number for node in nodes for number in node.new), dtype=np.int64),
        normalise={name: (0.0, 1.0) for name, column in columns.items() if column.normalised},
        outputs=None if nodes[0].outputs is None else outputs,
        description=f"{len(nodes)} nodes",
        stand_in=ROWS_SHOWN,
    )
