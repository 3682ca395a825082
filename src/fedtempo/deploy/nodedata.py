"""The data of a node: its share of a data set, files in a folder, or what a function of its own loads."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.safe import read_npy
from fedtempo.data.parts import PARTS
from fedtempo.errors import ConfigError, DataError, first_line, is_count, shown

MOST_CLIENTS = 1 << 26
"""Clients of a run; their numbers are below it."""
NodeConfig = Mapping[str, str | int | float | bool]
"""What a node was started with."""


class NodeData(NamedTuple):
    """A node's clients. `numbers` are their numbers in the whole run, one for each client of `data`, in its order."""

    numbers: np.ndarray
    data: FederatedData
    population: int | None = None
    """How many clients the whole run has, new ones too, where the node knows."""
    trained: np.ndarray | None = None
    """The numbers of all clients of the run that are trained on, where the node knows; AFL's weights are theirs."""


Loader = Callable[[NodeConfig], NodeData]


def share(data: FederatedData, part: int, parts: int) -> NodeData:
    """Every `parts`-th client of a data set, from number `part` on."""
    if not (is_count(part, 0) and is_count(parts) and part < parts <= len(data)):
        raise ConfigError(f"a node's part must be an int in [0, parts), parts at most {len(data)}. Got {part}/{parts}.")
    numbers = np.arange(part, len(data), parts)
    return NodeData(numbers, _only(data, numbers), len(data), data.clients)


def from_folder(folder: Path) -> NodeData:
    """One file per client, `NUMBER.npz`: arrays x and y, and x_validation, y_validation, x_test, y_test if any.

    A client whose file holds an array `new` is a new user: it is never trained on.
    """
    files = sorted(folder.glob("*.npz"), key=lambda path: (len(path.stem), path.stem))
    wrong = [path.name for path in files if not (path.stem.isascii() and path.stem.isdecimal())]
    if wrong or not files:
        found = f"{wrong[0]!r}" if wrong else "no such file"
        raise DataError(f"the data folder must hold one NUMBER.npz per client. Got {found} in {folder}.")
    clients = [_client(path) for path in files]
    parts = {part: [client.get(part, _empty(client["train"])) for client in clients] for part in PARTS}
    data = FederatedData.from_clients(parts["train"], validation=parts["validation"], test=parts["test"])
    new = np.flatnonzero(["new" in client for client in clients])
    return NodeData(np.array([int(path.stem) for path in files]), _holding_out(data, new))


def from_function(name: str, config: NodeConfig) -> NodeData:
    """What `module:function` returns for this node."""
    module, separator, function = name.partition(":")
    try:
        loader: Loader = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"loader must be module:function. Got {name!r}: {first_line(error)}.") from None
    except Exception as error:
        raise ConfigError(f"loader's module must be one that can be imported. {_raised(name, error)}") from error
    try:
        found = loader(config) if separator else None
    except (Exception, SystemExit) as error:  # SystemExit would end the process without a word to the server
        raise DataError(f"loader must return this node's clients. {_raised(name, error)}") from error
    if not isinstance(found, NodeData) or not isinstance(found.data, FederatedData):
        raise DataError(f"loader must return a NodeData with one number per client. Got {type(found).__name__}.")
    return found


def _raised(name: str, error: BaseException) -> str:
    return f"{name} raised {type(error).__name__}: {first_line(error)}."


def load_node_data(config: NodeConfig, experiments_own: Callable[[], FederatedData]) -> NodeData:
    """The node's data, as its configuration says; without a word about it, its share of the experiment's data set."""
    if "data-folder" in config:
        found = from_folder(Path(str(config["data-folder"])))
    elif "data-loader" in config:
        found = from_function(str(config["data-loader"]), config)
    else:
        found = share(experiments_own(), int(config.get("partition-id", 0)), int(config.get("num-partitions", 1)))
    found.data.check()
    trained = None if found.trained is None else np.sort(_checked(found.trained, np.size(found.trained), "training"))
    return found._replace(numbers=_checked(found.numbers, len(found.data), "a node's"), trained=trained)


def _checked(numbers: object, clients: int, whose: str) -> np.ndarray:
    """The clients' numbers, which must be different and one for each client."""
    given = np.asarray(numbers)
    whole = given.ndim == 1 and np.issubdtype(given.dtype, np.integer) and len(given) == clients > 0
    if not whole or len(np.unique(given)) != clients or given.min() < 0 or given.max() >= MOST_CLIENTS:
        rule = f"{clients} different ints in [0, {MOST_CLIENTS})"
        raise DataError(f"the numbers of {whose} clients must be {rule}. Got {shown(numbers)}.")
    return given.astype(np.int64)


def placed(node: NodeData) -> FederatedData:
    """The node's clients under their numbers in the run; all others are empty and not trained on here."""
    data, numbers = node.data, np.asarray(node.numbers, dtype=np.int64)
    count = int(numbers.max()) + 1
    bounds = np.zeros((count, 4), dtype=np.int64)
    bounds[numbers] = data.bounds
    outputs = None
    if data.outputs is not None:
        outputs = np.ones(count, dtype=np.int64)
        outputs[numbers] = data.outputs
    others = np.setdiff1d(np.arange(count), numbers)
    return replace(data, bounds=bounds, held_out=others, names=None, outputs=outputs)


def _only(data: FederatedData, clients: np.ndarray) -> FederatedData:
    """Some clients of a data set, numbered from 0, over the same columns."""
    outputs = None if data.outputs is None else data.outputs[clients]
    held_out = np.flatnonzero(np.isin(clients, data.held_out))
    names = None if data.names is None else [data.names[client] for client in clients.tolist()]
    return replace(data, bounds=data.bounds[clients], held_out=held_out, names=names, outputs=outputs)


def _holding_out(data: FederatedData, new: np.ndarray) -> FederatedData:
    return FederatedData(data.columns, data.bounds, data.order, new, description="own data")


def _client(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """The columns of a client's file, by part."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    for member, content in read_zip(path, lambda name: name.endswith(".npy")):
        name = member.removesuffix(".npy")
        column, _, part = name.partition("_")
        array = read_npy(content, f"{path.name}: {name}")
        if name == "new":
            parts["new"] = {}
        elif part in ("", "validation", "test"):
            parts.setdefault(part or "train", {})[column] = array
        else:
            raise DataError(f"{path.name} must hold x, y and their _validation and _test. Got {name!r}.")
    if not parts.get("train"):
        raise DataError(f"{path.name} must hold an array x. Got {sorted(parts)}.")
    return parts


def _empty(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array[:0] for name, array in columns.items()}
