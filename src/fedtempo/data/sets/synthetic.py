"""The synthetic(alpha, beta) data of the FedProx paper, which LEAF took over."""

from __future__ import annotations

import numpy as np

from fedtempo.data.files.published import PER_CLIENT, DataSet
from fedtempo.data.table import Table
from fedtempo.errors import is_count, is_number, require
from fedtempo.randomness import generator

FEATURES, CLASSES = 60, 10
MEAN_ROWS = 453
"""Of a client: 50 + e^(4 + 2)."""


def synthetic(alpha: float = 0.5, beta: float = 0.5, clients: int = 30, iid: bool = False, seed: int = 0) -> Table:
    """Clients whose models differ by `alpha` and whose inputs differ by `beta`; 60 features, 10 classes.

    Client k has y = argmax(softmax(W_k x + b_k)) with entries of W_k and b_k from N(u_k, 1), u_k from N(0, alpha);
    x from N(v_k, diag(j^-1.2)) with entries of v_k from N(B_k, 1), B_k from N(0, beta); and 50 + lognormal(4, 2)
    rows. As in the authors' code (the paper does not say), alpha and beta are standard deviations. `iid` gives all
    clients one W, one b and v = 0. (Li et al. 2020, section 5.1.)
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        require(is_number(value) and value >= 0, name, "a number >= 0", value)
    require(is_count(clients), "clients", "an int >= 1", clients)
    sizes = (generator(seed, "synthetic", "sizes").lognormal(4, 2, clients)).astype(np.int64) + 50
    pieces = [_client(None if iid else (alpha, beta), int(size), seed, k) for k, size in enumerate(sizes)]
    columns = {"x": np.concatenate([x for x, _ in pieces]), "y": np.concatenate([y for _, y in pieces])}
    return Table("synthetic", columns, keys=np.repeat(np.arange(clients), sizes))


def _client(spread: tuple[float, float] | None, size: int, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    model = generator(seed, "synthetic", "model", "all" if spread is None else client)
    inputs = generator(seed, "synthetic", "inputs", client)
    center, middle = 0.0, np.zeros(FEATURES)
    if spread is not None:
        center = model.normal(0, spread[0])
        middle = inputs.normal(inputs.normal(0, spread[1]), 1, FEATURES)
    weight, bias = model.normal(center, 1, (FEATURES, CLASSES)), model.normal(center, 1, CLASSES)
    x = inputs.normal(middle, np.arange(1, FEATURES + 1) ** -0.6, (size, FEATURES))
    return x.astype(np.float32), np.argmax(x @ weight + bias, axis=1).astype(np.int64)


def _size(clients: int = 30, **others: object) -> float:
    """Rows twice, as pieces and together, and what every client takes besides."""
    return float(clients) * (2 * MEAN_ROWS * (4 * FEATURES + 8) + PER_CLIENT)


SYNTHETIC = DataSet(
    name="synthetic",
    load=synthetic,
    page="https://github.com/TalwalkarLab/leaf",
    licence="none needed: generated",
    citation="Li et al., FedProx (2020), synthetic(alpha, beta)",
    clients="generated",
    about="60 features, 10 classes, from a seed",
    size=_size,
)
