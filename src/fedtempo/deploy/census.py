"""The census: what nodes say about their clients before a run. Counts and shapes, never data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtempo.data.federated import FederatedData
from fedtempo.deploy.nodedata import NodeData
from fedtempo.deploy.wire import WireError
from fedtempo.errors import DataError

LONGEST = 1 << 24
"""Bytes of a census that are read; a hundred thousand clients take a tenth of it."""
MOST_CLIENTS = 1 << 30
MOST_ROWS = 1 << 40
LARGEST_ROW = 1 << 26
"""Numbers in a row of a column."""
Whole = Annotated[int, Field(ge=0, lt=MOST_ROWS)]
Number = Annotated[int, Field(ge=0, lt=MOST_CLIENTS)]
Kind = Literal[
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"
]


class Column(BaseModel):
    """A column's type, the shape of one row, and whether rows are normalised to floating-point numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Kind
    shape: Annotated[list[Whole], Field(max_length=8)]
    normalised: bool

    @model_validator(mode="after")
    def _small(self) -> Column:
        if math.prod(self.shape) > LARGEST_ROW:
            raise ValueError(f"a row must have at most {LARGEST_ROW} numbers")
        return self


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
    columns: Annotated[dict[str, Column], Field(min_length=1, max_length=64)]
    population: Number | None

    @model_validator(mode="after")
    def _complete(self) -> Census:
        lengths = {len(self.numbers), len(self.rows), *([] if self.outputs is None else [len(self.outputs)])}
        if lengths != {len(set(self.numbers))} or not self.numbers:
            raise ValueError("each client must be counted once")
        if not set(self.new) <= set(self.numbers):
            raise ValueError("new clients must be among those counted")
        if any(not rows[0] for number, rows in zip(self.numbers, self.rows, strict=True) if number not in self.new):
            raise ValueError("a client that is trained on must have training rows")
        return self


def census_of(node: NodeData, experiment: str) -> bytes:
    """A node's answer, as JSON."""
    data = node.data
    columns = {
        name: Column(kind=str(c.dtype), shape=list(c.shape[1:]), normalised=name in data.normalise)  # type: ignore[arg-type]
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


def data_of(counted: Mapping[int, Census]) -> FederatedData:
    """All nodes' clients as the server knows them: who has how many rows of which shape, and only zeros in the rows."""
    nodes = list(counted.values())
    columns = nodes[0].columns
    for node in nodes[1:]:
        if node.columns != columns or (node.outputs is None) != (nodes[0].outputs is None):
            raise DataError(f"all nodes must have columns of one form, {_named(columns)}. Got {_named(node.columns)}.")
    count = 1 + max(max(node.numbers) for node in nodes)
    rows, outputs = np.zeros((count, 3), dtype=np.int64), np.ones(count, dtype=np.int64)
    for node in nodes:
        rows[node.numbers] = node.rows
        if node.outputs is not None:
            outputs[node.numbers] = node.outputs
    ends = np.cumsum(rows.reshape(-1)).reshape(count, 3)
    bounds = np.concatenate([(ends[:, 0] - rows[:, 0])[:, None], ends], axis=1)
    total = int(ends[-1, -1])
    zeros = {n: np.broadcast_to(np.zeros((), dtype=c.kind), (total, *c.shape)) for n, c in columns.items()}
    return FederatedData(
        zeros,
        bounds,
        held_out=np.array(sorted(number for node in nodes for number in node.new), dtype=np.int64),
        normalise={name: (0.0, 1.0) for name, column in columns.items() if column.normalised},
        outputs=None if nodes[0].outputs is None else outputs,
        description=f"{len(nodes)} nodes",
    )


def _named(columns: Mapping[str, Column]) -> str:
    return ", ".join(f"{name}: {c.kind} {tuple(c.shape)}" for name, c in sorted(columns.items()))
